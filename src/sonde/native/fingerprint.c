/* A batch at a glance: the fast path of `blackbox/fingerprint.py`, for plain tensors of the host, texts and numbers in plain containers, as nearly
   all batches are. Whatever else there is, Python looks. `native/fingerprint.pyi` says what is what. */
#include "shared/callable.h"
#include "shared/errors.h"
#include "shared/ledger.h"
#include "shared/tensor.h"

#include <string.h>

#define WHOLE 16384 /* the limits of blackbox/fingerprint.py */
#define BLOCKS 16
#define MOST_PARTS 64
#define MOST_DEPTH 4
#define MOST_ROW 1024
#define FIRST 8
#define MOST_DIMS 16 /* of an array that lies in another order than its own: more are left to Python */
#define FEW 6 /* parts of a batch for which there is room in any case */

enum { TENSOR, EXCHANGE, COPIED_LATE, DIGEST, LOOK, PARTS };
static const char *const part_names[] = {"tensor", "exchange", "copied_late", "digest", "look", NULL};
static PyObject *parts[PARTS];
static PyObject *places[FIRST]; /* the ways to the first parts of a row: tuples of a number */
static newfunc tuple_new;
static PyObject *s_version;

/* ---- one look ---- */

typedef struct {
    PyObject *way, *part; /* owned */
    int64_t version;      /* torch's count of changes; UNCOUNTED: it is no tensor */
} Part;

typedef struct {
    Part few[FEW], *more; /* parts; those for which there is no room in `few` are in memory of its own */
    int found;            /* how many there are */
    PyObject *exclude;
    uint64_t digest;
    int64_t size;
    int count, whole;
} Glance;

#define UNCOUNTED (-1)

static Part *part_at(Glance *glance, int place)
{
    return place < FEW ? &glance->few[place] : &glance->more[place - FEW];
}

enum { OTHER, ARRAY, CONTAINER, SINGLE };

static int kind_of(PyObject *part)
{
    PyTypeObject *type = Py_TYPE(part);
    if ((PyObject *)type == parts[TENSOR])
        return ARRAY;
    if (type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type)
        return CONTAINER;
    int single = type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBytes_Type ||
                 type == &PyBool_Type || part == Py_None;
    return single ? SINGLE : OTHER;
}

/* A digest of these bytes and of all before. -1 with an exception. */
static int digest_of(Glance *glance, const char *data, int64_t size)
{
    PyObject *args[2] = {PyMemoryView_FromMemory((char *)data, size, PyBUF_READ), PyLong_FromUnsignedLongLong(glance->digest)};
    PyObject *made = args[0] && args[1] ? PyObject_Vectorcall(parts[DIGEST], args, 2, NULL) : NULL;
    Py_XDECREF(args[0]);
    Py_XDECREF(args[1]);
    if (made)
        glance->digest = PyLong_AsUnsignedLongLongMask(made); /* it has 64 bits, and this asks less */
    Py_XDECREF(made);
    return PyErr_Occurred() ? -1 : 0;
}

/* Of a large array only blocks of it. */
RARE static int digest_of_sample(Glance *glance, const char *data, int64_t size)
{
    char sample[WHOLE];
    int64_t apart = size / BLOCKS;
    for (int i = 0; i < BLOCKS; i++)
        memcpy(sample + i * (WHOLE / BLOCKS), data + i * apart, WHOLE / BLOCKS);
    return digest_of(glance, sample, WHOLE);
}

static int add_digest(Glance *glance, const char *data, int64_t size)
{
    glance->whole &= size <= WHOLE;
    glance->count++;
    return (size > WHOLE ? digest_of_sample : digest_of)(glance, data, size) == 0;
}

/* One that lies in another order than its own is read as it lies, after its strides. 0: this batch is not plain. */
RARE static int look_at_turned(Glance *glance, const View *view, int64_t size)
{
    int64_t strides[MOST_DIMS];
    if (!is_filled(view->dims, view->shape, view->strides)) {
        glance->whole = 0;
        return 1;
    }
    if (view->dims > MOST_DIMS)
        return 0;
    for (int i = 0; i < view->dims; i++)
        strides[i] = view->shape[i] == 1 ? 0 : view->strides[i];
    return digest_of(glance, (const char *)strides, view->dims * (int64_t)sizeof *strides) == 0 &&
           add_digest(glance, (const char *)view->data + view->offset, size);
}

/* Those of which Python decides whether they have memory that may be read are left to it: all that are empty or hold one number. */
static int look_at(Glance *glance, PyObject *tensor)
{
    View view;
    int dense;
    if (view_of(tensor, &view) != READABLE || view.device != CPU || view.lanes != 1 || view.bits % 8 || !view.data)
        return 0;
    if (view.code != SIGNED && view.code != UNSIGNED && view.code != FLOATING && view.code != BRAIN && view.code != TRUTH)
        return 0;
    int64_t count = count_of(&view, &dense);
    if (!view.dims || count <= (view.code == FLOATING || view.code == BRAIN))
        return 0;
    int64_t version = number_at(tensor, s_version), size = count * (view.bits / 8);
    if (version < 0)
        return 0;
    part_at(glance, glance->found - 1)->version = version;
    glance->size += size;
    return dense ? add_digest(glance, (const char *)view.data + view.offset, size) : look_at_turned(glance, &view, size);
}

static int add_number(Glance *glance, PyObject *number)
{
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    glance->whole &= !overflow;
    return overflow || add_digest(glance, (const char *)&value, sizeof value);
}

static int add_text(Glance *glance, PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    return bytes && add_digest(glance, bytes, size); /* none: half a character, which is left to Python */
}

/* A text or a number. */
static int look_at_single(Glance *glance, PyObject *part)
{
    if (part == Py_None)
        return add_digest(glance, "", 0);
    if (PyUnicode_CheckExact(part))
        return add_text(glance, part);
    if (PyBytes_CheckExact(part))
        return add_digest(glance, PyBytes_AsString(part), PyBytes_Size(part));
    if (!PyFloat_CheckExact(part))
        return add_number(glance, part);
    double value = PyFloat_AsDouble(part);
    return add_digest(glance, (const char *)&value, sizeof value);
}

static int add_part(Glance *glance, PyObject *way, PyObject *part)
{
    if (glance->found == FEW && !(glance->more = PyMem_Calloc(MOST_PARTS - FEW, sizeof(Part))))
        return 0;
    *part_at(glance, glance->found++) = (Part){Py_NewRef(way), Py_NewRef(part), UNCOUNTED};
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *way);

static PyObject *longer(PyObject *way, PyObject *key)
{
    Py_ssize_t depth = PyTuple_Size(way);
    PyObject *made = PyTuple_New(depth + 1);
    for (Py_ssize_t i = 0; made && i < depth; i++)
        PyTuple_SetItem(made, i, Py_NewRef(PyTuple_GetItem(way, i)));
    if (made)
        PyTuple_SetItem(made, depth, Py_NewRef(key));
    return made;
}

/* 1: go on. 0: this batch is not plain. */
static int collect_under(Glance *glance, PyObject *way, PyObject *key, PyObject *part)
{
    Py_INCREF(part); /* a collection of garbage may run meanwhile, and with it any code */
    PyObject *further = longer(way, key);
    int plain = further && collect(glance, part, further);
    Py_XDECREF(further);
    Py_DECREF(part);
    return plain;
}

static int collect_dict(Glance *glance, PyObject *data, PyObject *way)
{
    PyObject *key, *part;
    Py_ssize_t place = 0;
    while (PyDict_Next(data, &place, &key, &part)) {
        int left_out = kind_of(key) == SINGLE ? PySet_Contains(glance->exclude, key) : -1; /* others may run any code */
        if (left_out < 0)
            return 0;
        if (left_out)
            continue;
        if (glance->found >= MOST_PARTS) {
            glance->whole = 0;
            return 1;
        }
        if (!collect_under(glance, way, key, part))
            return 0;
    }
    return 1;
}

/* As `collect_under`, of a row, whose places are never left out. */
static int collect_at(Glance *glance, PyObject *way, Py_ssize_t place, PyObject *part)
{
    if (place < FIRST && PyTuple_Size(way) == 0) {
        Py_INCREF(part);
        int plain = collect(glance, part, places[place]);
        Py_DECREF(part);
        return plain;
    }
    PyObject *key = PyLong_FromSsize_t(place);
    int plain = key && collect_under(glance, way, key, part);
    Py_XDECREF(key);
    return plain;
}

/* What lies in a container that is not taken apart: texts and numbers are read. */
static int look_inside(Glance *glance, PyObject *data)
{
    if (PyDict_CheckExact(data)) {
        glance->whole &= !PyDict_Size(data);
        return 1;
    }
    Py_ssize_t count = length_of(data);
    glance->whole &= count <= MOST_ROW;
    for (Py_ssize_t i = 0; i < count && i < MOST_ROW; i++) {
        PyObject *part = Py_XNewRef(item_of(data, i));
        int kind = part ? kind_of(part) : OTHER;
        if (kind != SINGLE)
            glance->whole &= kind == CONTAINER && !PyObject_Size(part);
        int plain = part && (kind != SINGLE || look_at_single(glance, part));
        Py_XDECREF(part);
        if (!plain)
            return 0;
    }
    return 1;
}

static int collect_row(Glance *glance, PyObject *data, PyObject *way)
{
    Py_ssize_t count = length_of(data);
    int nests = 0;
    for (Py_ssize_t i = 0; i < count && i < FIRST; i++) {
        int kind = kind_of(item_of(data, i));
        if (kind == OTHER)
            return 0;
        nests |= kind != SINGLE;
    }
    if (!nests)
        return add_part(glance, way, data) && look_inside(glance, data);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (glance->found >= MOST_PARTS) {
            glance->whole = 0;
            return 1;
        }
        PyObject *part = item_of(data, i);
        if (!part || !collect_at(glance, way, i, part))
            return 0;
    }
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *way)
{
    switch (kind_of(data)) {
    case ARRAY:
        return add_part(glance, way, data) && look_at(glance, data);
    case SINGLE:
        return add_part(glance, way, data) && (data == Py_None || look_at_single(glance, data));
    case CONTAINER:
        if (PyTuple_Size(way) >= MOST_DEPTH)
            return add_part(glance, way, data) && look_inside(glance, data);
        return PyDict_CheckExact(data) ? collect_dict(glance, data, way) : collect_row(glance, data, way);
    default:
        return 0;
    }
}

/* Its parts, as Python has them. */
static PyObject *found_made(Glance *glance)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < glance->found; i++) {
        PyObject *pair = PyTuple_Pack(2, part_at(glance, i)->way, part_at(glance, i)->part);
        if (!pair || PyList_Append(made, pair) != 0)
            Py_CLEAR(made);
        Py_XDECREF(pair);
    }
    return made;
}

static PyObject *versions_made(Glance *glance)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < glance->found; i++) {
        if (part_at(glance, i)->version == UNCOUNTED)
            continue;
        PyObject *version = PyLong_FromLongLong(part_at(glance, i)->version);
        if (!version || PyList_Append(made, version) != 0)
            Py_CLEAR(made);
        Py_XDECREF(version);
    }
    PyObject *row = made ? PyList_AsTuple(made) : NULL;
    Py_XDECREF(made);
    return row;
}

/* A `Fingerprint`, which is a tuple, without a Python frame. */
static PyObject *look_made(Glance *glance)
{
    PyObject *digest = glance->count ? PyLong_FromUnsignedLongLong(glance->digest) : Py_NewRef(Py_None);
    PyObject *versions = versions_made(glance), *size = PyLong_FromLongLong(glance->size);
    PyObject *values = digest && versions && size
                           ? PyTuple_Pack(5, digest, glance->whole ? Py_True : Py_False, versions, size, Py_False)
                           : NULL;
    PyObject *given = values ? PyTuple_Pack(1, values) : NULL;
    PyObject *made = given ? tuple_new((PyTypeObject *)parts[LOOK], given, NULL) : NULL;
    Py_XDECREF(digest);
    Py_XDECREF(versions);
    Py_XDECREF(size);
    Py_XDECREF(values);
    Py_XDECREF(given);
    return made;
}

/* 1: `glance` has all of it. 0, perhaps with an exception: this batch is not plain. To be cleared in any case. */
static int glance_at(Glance *glance, PyObject *data, PyObject *exclude)
{
    *glance = (Glance){.exclude = Py_NewRef(exclude), .whole = 1};
    PyObject *way = PyTuple_New(0);
    int plain = tensors_are_read() && way && collect(glance, data, way);
    Py_XDECREF(way);
    return plain;
}

static void glance_cleared(Glance *glance)
{
    Glance old = *glance; /* freeing may run any code */
    memset(glance, 0, sizeof *glance);
    for (int i = 0; i < old.found; i++) {
        Py_DECREF(part_at(&old, i)->way);
        Py_DECREF(part_at(&old, i)->part);
    }
    PyMem_Free(old.more);
    Py_XDECREF(old.exclude);
}

static PyObject *glanced(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *exclude, *result = NULL;
    Glance glance;
    if (!PyArg_ParseTuple(args, "OO", &data, &exclude))
        return NULL;
    if (!PyAnySet_Check(exclude))
        Py_RETURN_NONE;
    if (glance_at(&glance, data, exclude)) {
        PyObject *look = look_made(&glance), *found = look ? found_made(&glance) : NULL;
        result = found ? PyTuple_Pack(2, found, look) : NULL;
        Py_XDECREF(look);
        Py_XDECREF(found);
    }
    glance_cleared(&glance);
    if (!result && interrupted())
        return NULL;
    return result ? result : Py_NewRef(Py_None);
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    int taken = take_arguments(args, kwargs, part_names, parts);
    return taken < 0 || tensors_known(parts[EXCHANGE], parts[COPIED_LATE]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- batches that are delivered ---- */

/* What of a black box is asked for each batch: the part of it that is C's. There is one for the life of a process. */
typedef struct {
    PyObject_HEAD
    long long due; /* when it is time to look around */
    char suspect;  /* a loss was not finite */
    PyObject *ring;
} State;

static PyTypeObject *state_type;
static PyMemberDef state_members[] = {
    {"due", T_LONGLONG, offsetof(State, due), 0, "When it is time to look around."},
    {"suspect", T_BOOL, offsetof(State, suspect), 0, "A loss was not finite."},
    {"ring", T_OBJECT, offsetof(State, ring), 0, "The batches that are kept."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot state_slots[] = {{Py_tp_members, state_members}, {0, NULL}};
static PyType_Spec state_spec = {"sonde.native.fingerprint.State", sizeof(State), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, state_slots};

#define MOST_KEPT 64

enum { BOX, CONTEXT, KEPT, BOOK, SAMPLED, READ, NOTE, DELIVERY_PARTS };
static const char *const delivery_names[] = {"box", "context", "kept", "book", "sampled", "read", "note", NULL};
enum { BATCH, KEY, DATA, STEP, EPOCH, FOUND, SEEN, ATTRIBUTES };

/* What becomes a `DeliveredBatch` when somebody asks for it. */
typedef struct {
    PyObject *batch, *key, *data, *context;
    Glance glance;
} Entry;

typedef struct {
    CALLABLE_HEAD
    PyObject *parts[DELIVERY_PARTS];
    PyObject *ring; /* whose attributes the following are; may be NULL */
    PyObject *held, *exclude;
    int64_t limit, most;
    Entry entries[MOST_KEPT]; /* newer than all that are held; the oldest is the one at `first` */
    int first, count;
} Delivery;

static PyTypeObject *delivery_type;
static PyObject *attributes[ATTRIBUTES]; /* their names in a DeliveredBatch */
static PyObject *s_held, *s_exclude, *s_limit, *s_reads, *s_maxlen, *s_popleft, *s_settings,
    *s_writer;

/* Is this attribute that object? */
static int is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_XDECREF(value);
    return value == wanted;
}

static void entry_cleared(Entry *entry)
{
    Py_CLEAR(entry->batch);
    Py_CLEAR(entry->key);
    Py_CLEAR(entry->data);
    Py_CLEAR(entry->context);
    glance_cleared(&entry->glance);
}

/* The oldest entry, which is the caller's now. There has to be one. */
static Entry entry_taken(Delivery *delivery)
{
    Entry entry = delivery->entries[delivery->first];
    delivery->entries[delivery->first] = (Entry){0};
    delivery->first = (delivery->first + 1) % MOST_KEPT;
    delivery->count--;
    return entry;
}

/* What a ring is never changes. 0: it is none for us, as where nothing is read of batches. */
static int learn(Delivery *delivery, PyObject *ring)
{
    if (ring == delivery->ring)
        return 1;
    put_owned(&delivery->ring, NULL);
    put_owned(&delivery->held, PyObject_GetAttr(ring, s_held));
    put_owned(&delivery->exclude, PyObject_GetAttr(ring, s_exclude));
    delivery->limit = number_at(ring, s_limit);
    delivery->most = delivery->held ? number_at(delivery->held, s_maxlen) : -1;
    if (PyErr_Occurred() || !is(ring, s_reads, Py_True) || !PyAnySet_Check(delivery->exclude))
        return 0;
    if (delivery->most < 1 || delivery->most > MOST_KEPT || delivery->count > delivery->most)
        return 0;
    delivery->ring = Py_NewRef(ring);
    return 1;
}

/* Is there a ring, and nothing to be done but to put the batch there? */
static int is_usual(Delivery *delivery)
{
    State *box = (State *)delivery->parts[BOX];
    if (box->suspect || now_ns() >= box->due || !box->ring || box->ring == Py_None)
        return 0;
    PyObject *ring = Py_NewRef(box->ring);
    int known = learn(delivery, ring);
    Py_DECREF(ring);
    return known;
}

/* A `DeliveredBatch`, as `Ring.keep` makes it. */
static PyObject *kept_made(Delivery *delivery, Entry *entry)
{
    PyObject *made = PyObject_CallNoArgs(delivery->parts[KEPT]);
    PyObject *look = made ? look_made(&entry->glance) : NULL, *found = look ? found_made(&entry->glance) : NULL;
    PyObject *values[ATTRIBUTES] = {entry->batch, entry->key, entry->data, PyTuple_GetItem(entry->context, 0),
                                    PyTuple_GetItem(entry->context, 1), found, look};
    int set = found && !PyErr_Occurred() ? 0 : -1;
    for (int i = 0; set == 0 && i < ATTRIBUTES; i++)
        set = PyObject_SetAttr(made, attributes[i], values[i]);
    Py_XDECREF(look);
    Py_XDECREF(found);
    if (set < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *delivery_newer(PyObject *self, PyObject *Py_UNUSED(none))
{
    Delivery *delivery = (Delivery *)self;
    Entry taken[MOST_KEPT]; /* making objects may run any code: meanwhile they are nobody else's */
    int count = delivery->count;
    for (int i = 0; i < count; i++)
        taken[i] = entry_taken(delivery);
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < count; i++) {
        PyObject *kept = kept_made(delivery, &taken[i]);
        if (!kept || PyList_Append(made, kept) != 0)
            Py_CLEAR(made);
        Py_XDECREF(kept);
    }
    int back = !made && !delivery->count; /* there is no memory now */
    for (int i = 0; i < count; i++)
        if (back)
            delivery->entries[(delivery->first + delivery->count++) % MOST_KEPT] = taken[i];
        else
            entry_cleared(&taken[i]);
    return made;
}

/* Room for one more entry: the oldest goes, which may be one that is held. */
static int make_room(Delivery *delivery, PyObject *holder, Py_ssize_t held)
{
    if (held + delivery->count < delivery->most)
        return 1;
    if (held) {
        PyObject *oldest = PyObject_CallMethodObjArgs(holder, s_popleft, NULL);
        Py_XDECREF(oldest);
        return oldest != NULL;
    }
    if (delivery->count) {
        Entry oldest = entry_taken(delivery);
        entry_cleared(&oldest);
    }
    return 1;
}

/* 1: the batch is in the ring, and the glance at it too. 0, perhaps with an exception: it is not. */
static int keep(Delivery *delivery, PyObject *const *given, Glance *glance)
{
    Py_ssize_t held = PyObject_Size(delivery->held);
    int64_t after = held + delivery->count < delivery->most ? held + delivery->count + 1 : delivery->most;
    if (held < 0 || glance->size > delivery->limit / after) /* then older ones would have to go too */
        return 0;
    PyObject *context = PyObject_CallNoArgs(delivery->parts[CONTEXT]), *holder = Py_NewRef(delivery->held);
    int ready = context && PyTuple_Check(context) && PyTuple_Size(context) == 2 &&
                make_room(delivery, holder, held) && delivery->count < MOST_KEPT; /* freeing a batch may run any code */
    Py_DECREF(holder);
    if (!ready) {
        Py_XDECREF(context);
        return 0;
    }
    delivery->entries[(delivery->first + delivery->count++) % MOST_KEPT] =
        (Entry){Py_NewRef(given[0]), Py_NewRef(given[1]), Py_NewRef(given[2]), context, *glance};
    return 1;
}

/* ---- the digest of a batch ---- */

enum { ENTRY_BYTES = 24 };

/* The entry of a digest in the ledger: how it begins, then key and digest. */
static int make_entry(char *entry, PyObject *beginning, PyObject *key, uint64_t digest)
{
    long long number = PyLong_CheckExact(key) ? PyLong_AsLongLong(key) : -1;
    if (number < 0 || PyBytes_Size(beginning) != 8)
        return 0;
    memcpy(entry, PyBytes_AsString(beginning), 8);
    put_number(put_number(entry + 8, (uint64_t)number, 8), digest, 8);
    return 1;
}

/* As `note_digest` of probes/loader/ledger.py, which does it where this cannot. */
static int note_digest(Delivery *delivery, PyObject *key, uint64_t digest, int whole)
{
    char entry[ENTRY_BYTES];
    PyObject *book = delivery->parts[BOOK], *writer = PyObject_GetAttr(book, s_writer), *done = NULL;
    int noted = writer && (writer == Py_None || is(book, s_settings, Py_None));
    if (writer && !noted)
        noted = make_entry(entry, delivery->parts[whole ? READ : SAMPLED], key, digest) &&
                put_quickly(writer, entry, ENTRY_BYTES, 0);
    Py_XDECREF(writer);
    if (!noted && !interrupted())
        done = PyObject_CallFunction(delivery->parts[NOTE], "OKO", key, (unsigned long long)digest, whole ? Py_True : Py_False);
    Py_XDECREF(done);
    return noted || done;
}

static PyObject *delivery_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Delivery *delivery = (Delivery *)self;
    Glance glance = {0};
    Py_INCREF(self); /* whoever runs meanwhile may switch the black box off */
    int plain = !names && args_in(flags) == 3 && is_usual(delivery);
    int kept = plain && glance_at(&glance, args[2], delivery->exclude) && keep(delivery, args, &glance);
    PyObject *result = NULL;
    if (kept) {
        if (args[1] == Py_None || !glance.count || note_digest(delivery, args[1], glance.digest, glance.whole))
            result = Py_NewRef(Py_None);
    } else {
        glance_cleared(&glance);
        if (!interrupted())
            result = PyObject_Vectorcall(delivery->function, args, flags, names);
    }
    if (!result && !interrupted())
        result = Py_NewRef(Py_None);
    Py_DECREF(self);
    return result;
}

static int delivery_clear(PyObject *self)
{
    Delivery *delivery = (Delivery *)self;
    while (delivery->count) {
        Entry entry = entry_taken(delivery);
        entry_cleared(&entry);
    }
    Py_CLEAR(delivery->ring);
    Py_CLEAR(delivery->held);
    Py_CLEAR(delivery->exclude);
    return 0;
}

static void delivery_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    delivery_clear(self);
    callable_dealloc(self);
}

static int delivery_traverse(PyObject *self, visitproc visit, void *arg)
{
    for (int i = 0; i < MOST_KEPT; i++) {
        Entry *entry = &((Delivery *)self)->entries[i];
        Py_VISIT(entry->batch);
        Py_VISIT(entry->data);
        for (int j = 0; j < entry->glance.found; j++)
            Py_VISIT(part_at(&entry->glance, j)->part);
    }
    return callable_traverse(self, visit, arg);
}

static PyMethodDef delivery_methods[] = {
    {"newer", delivery_newer, METH_NOARGS, "What was kept since this was asked before, oldest first."},
    {NULL, NULL, 0, NULL},
};
static const PyType_Slot delivery_slots[] = {{Py_tp_dealloc, delivery_dealloc}, {Py_tp_traverse, delivery_traverse},
                                             {Py_tp_clear, delivery_clear}, {Py_tp_methods, delivery_methods}, {0, NULL}};

static PyObject *delivery(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    PyObject *slow, *none = PyTuple_New(0);
    Delivery *made = none && PyArg_ParseTuple(args, "O", &slow) ? callable_new(delivery_type, delivery_call, OWNED(Delivery, exclude), slow) : NULL;
    if (made && take_arguments(none, kwargs, delivery_names, made->parts) < 0)
        Py_CLEAR(made);
    Py_XDECREF(none);
    if (made && (!PyObject_TypeCheck(made->parts[BOX], state_type) ||
                 !PyBytes_Check(made->parts[SAMPLED]) || !PyBytes_Check(made->parts[READ]))) {
        Py_CLEAR(made);
        PyErr_SetString(PyExc_TypeError, "delivery() takes a State as box, and bytes as sampled and read");
    }
    return (PyObject *)made;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Take what is needed of torch, the function of digests, and the class of a look."},
    {"glance", glanced, METH_VARARGS, "The parts of a batch and the look at them; None: it is not plain."},
    {"delivery", (PyCFunction)(void (*)(void))delivery, METH_VARARGS | METH_KEYWORDS, "What is told of batches, and keeps the plain ones."},
    {NULL, NULL, 0, NULL},
};

int fill_fingerprint(PyObject *module)
{
    static const Name names[] = {
        {&s_version, "_version"}, {&s_held, "held"}, {&s_exclude, "exclude"}, {&s_limit, "limit"}, {&s_reads, "reads"}, {&s_maxlen, "maxlen"},
        {&s_popleft, "popleft"}, {&s_settings, "settings"}, {&s_writer, "writer"}, {&attributes[BATCH], "batch"}, {&attributes[KEY], "key"},
        {&attributes[DATA], "data"}, {&attributes[STEP], "step"}, {&attributes[EPOCH], "epoch"}, {&attributes[FOUND], "parts"},
        {&attributes[SEEN], "seen"}, {NULL, NULL}};
    for (int i = 0; i < FIRST; i++)
        if (!(places[i] = Py_BuildValue("(i)", i)))
            return -1;
    tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    delivery_type = callable_type("sonde.native.fingerprint.Delivery", sizeof(Delivery), PLAIN_CALL, NULL, delivery_slots);
    state_type = add_type(module, &state_spec);
    return !delivery_type || !state_type || make_names(names) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
