/* What a reader does with each slot of a recording, of which a long one has millions. `native/slots.pyi` says what is what.

   Nothing here trusts a file: each number that leads into memory is compared with what is there. NumPy does the same where this
   was not built, in several passes (`store/segment.py`, `store/sequence.py`, `analysis/training/reader.py`). */
#include "shared/abi.h"
#include "core/record.h"

#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "files are little-endian, and read as they lie"
#endif

#define RECORD_SIZE ((Py_ssize_t)sizeof(Record))
#define FLAGS 16 /* kinds, each open or not */
#define MOST_PILES 32

enum { BAD, PLAIN, SPECIAL };

static Record record_at(const Py_buffer *slots, Py_ssize_t place)
{
    Record one;
    memcpy(&one, (const char *)slots->buf + place * RECORD_SIZE, RECORD_SIZE);
    return one;
}

static void release(Py_buffer *views, int count)
{
    for (int i = 0; i < count; i++)
        PyBuffer_Release(&views[i]);
}

static PyObject *refuse(Py_buffer *views, int count, const char *why)
{
    release(views, count);
    return PyErr_Format(PyExc_ValueError, why);
}

/* ---- what each slot is ---- */

static uint8_t class_of(uint8_t kind)
{
    uint8_t low = kind & KIND_MASK;
    if (low == VOID)
        return SPECIAL;
    return low >= SPAN && low <= MARK ? (kind & AGAIN ? SPECIAL : PLAIN) : BAD;
}

static PyObject *cut(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer v[5]; /* slots, kinds, seqs, what, threads */
    unsigned int thread;
    long long left;
    if (!PyArg_ParseTuple(args, "y*w*w*w*w*IL:cut", &v[0], &v[1], &v[2], &v[3], &v[4], &thread, &left))
        return NULL;
    Py_ssize_t count = v[0].len / RECORD_SIZE, bad = 0;
    if (v[1].len != count || v[2].len != 4 * count || v[3].len != count || v[4].len != 4 * count)
        return refuse(v, 5, "columns and slots differ in length");
    uint8_t *kinds = v[1].buf, *what = v[3].buf, classes[256];
    uint32_t *seqs = v[2].buf, *threads = v[4].buf, first = thread;
    int alone = 1;
    for (int kind = 0; kind < 256; kind++)
        classes[kind] = class_of((uint8_t)kind);
    for (Py_ssize_t i = 0; i < count; i++) {
        Record one = record_at(&v[0], i);
        kinds[i] = one.kind;
        seqs[i] = one.seq;
        what[i] = BAD;
        if (one.kind == BLOCK && one.start == BLOCK_MAGIC && one.key > 0 && one.key <= (int64_t)RING_RECORDS) {
            thread = one.name;
            left = one.key;
            alone &= thread == first;
        } else if (left > 0) { /* behind the end of a block, slots are nobody's */
            left--;
            what[i] = one.seq ? classes[one.kind] : BAD;
            bad += what[i] == BAD;
        } else {
            bad++;
        }
        threads[i] = thread;
    }
    release(v, 5);
    return Py_BuildValue("(ILni)", thread, left, bad, alone);
}

/* ---- which numbers there are ---- */

static PyObject *mark(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer v[5]; /* seqs, what, seen, twice, above */
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*:mark", &v[0], &v[1], &v[2], &v[3], &v[4]))
        return NULL;
    Py_ssize_t count = v[0].len / 4, known = v[2].len, plain = 0, again = 0, beyond = 0;
    if (v[1].len != count || v[3].len < 4 * count || v[4].len < 4 * count)
        return refuse(v, 5, "columns and numbers differ in length");
    const uint32_t *seqs = v[0].buf;
    const uint8_t *what = v[1].buf;
    uint8_t *seen = v[2].buf;
    uint32_t *twice = v[3].buf, *above = v[4].buf, highest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (what[i] != PLAIN)
            continue;
        uint32_t seq = seqs[i];
        plain++;
        highest = seq > highest ? seq : highest;
        if ((Py_ssize_t)seq >= known) {
            above[beyond++] = seq;
        } else {
            if (seen[seq])
                twice[again++] = seq;
            seen[seq] = 1;
        }
    }
    release(v, 5);
    return Py_BuildValue("(nInn)", plain, highest, again, beyond);
}

/* ---- records in piles, and their columns ---- */

static PyObject *sort(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer v[8]; /* slots, kinds, what, own, table, piles, codes, places */
    unsigned char other;
    if (!PyArg_ParseTuple(
            args, "y*y*y*y*y*y*w*w*b:sort", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &other))
        return NULL;
    Py_ssize_t count = v[0].len / RECORD_SIZE, names = v[4].len, counts[MOST_PILES] = {0};
    Py_ssize_t room = count ? v[7].len / 8 / count : MOST_PILES;
    const uint8_t *kinds = v[1].buf, *what = v[2].buf, *own = v[3].buf, *table = v[4].buf, *piles = v[5].buf;
    room = room < MOST_PILES ? room : MOST_PILES;
    if (v[1].len != count || v[2].len != count || v[3].len != count || v[6].len != count || !names || v[5].len != 2 * 256 * FLAGS)
        return refuse(v, 8, "columns and slots differ in length");
    for (Py_ssize_t i = 0; i < 2 * 256 * FLAGS; i++)
        if (piles[i] >= room)
            return refuse(v, 8, "there are too many groups");
    uint8_t *codes = v[6].buf;
    int64_t *places = v[7].buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint32_t name;
        memcpy(&name, (const char *)v[0].buf + i * RECORD_SIZE + offsetof(Record, name), 4);
        uint8_t code = what[i] == BAD ? other : table[name < names ? name : names - 1];
        uint8_t pile = piles[((own[i] != 0) * 256 + code) * FLAGS + (kinds[i] & (FLAGS - 1))];
        codes[i] = code;
        places[pile * count + counts[pile]++] = i;
    }
    release(v, 8);
    PyObject *found = PyTuple_New(room);
    for (Py_ssize_t i = 0; found && i < room; i++) {
        PyObject *one = PyLong_FromSsize_t(counts[i]);
        if (!one || PyTuple_SetItem(found, i, one) < 0)
            Py_CLEAR(found);
    }
    return found;
}

#define GATHER(WIDTH) \
    for (Py_ssize_t i = 0; i < count; i++) { \
        if (places[i] < 0 || places[i] >= slots) \
            return -1; \
        memcpy(to + i * WIDTH, from + places[i] * RECORD_SIZE, WIDTH); \
    } \
    return 0;

static int gather_into(char *to, const char *from, Py_ssize_t slots, const int64_t *places, Py_ssize_t count, int width)
{
    switch (width) {
    case 4: GATHER(4)
    case 8: GATHER(8)
    default: return -1;
    }
}

static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer v[3]; /* slots, places, out */
    int at, width;
    if (!PyArg_ParseTuple(args, "y*y*w*ii:gather", &v[0], &v[1], &v[2], &at, &width))
        return NULL;
    Py_ssize_t count = v[1].len / 8;
    if (at < 0 || width < 1 || at + width > RECORD_SIZE || v[2].len != count * width)
        return refuse(v, 3, "unknown field, or a different number of places and values");
    if (gather_into(v[2].buf, (const char *)v[0].buf + at, v[0].len / RECORD_SIZE, v[1].buf, count, width) < 0)
        return refuse(v, 3, "unknown slot, or a wrong width");
    release(v, 3);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"cut", cut, METH_VARARGS, "Classify each slot."},
    {"mark", mark, METH_VARARGS, "Mark the numbers of records."},
    {"sort", sort, METH_VARARGS, "Group records."},
    {"gather", gather, METH_VARARGS, "One field of the selected records."},
    {NULL, NULL, 0, NULL},
};

int fill_slots(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
