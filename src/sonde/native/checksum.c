/* A batch at a glance: the fast path of `blackbox/checksum.py`, for plain tensors of the host, texts and numbers in plain containers, as nearly
   all batches are. Whatever else there is, Python looks. `native/checksum.pyi` says what is what. */
#include "shared/errors.h"
#include "shared/tensor.h"

#include <string.h>

#define WHOLE 16384 /* the limits of blackbox/checksum.py */
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
    PyObject *path, *part; /* owned */
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

static int add_part(Glance *glance, PyObject *path, PyObject *part)
{
    if (glance->found == FEW && !(glance->more = PyMem_Calloc(MOST_PARTS - FEW, sizeof(Part))))
        return 0;
    *part_at(glance, glance->found++) = (Part){Py_NewRef(path), Py_NewRef(part), UNCOUNTED};
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *path);

static PyObject *longer(PyObject *path, PyObject *key)
{
    Py_ssize_t depth = PyTuple_Size(path);
    PyObject *made = PyTuple_New(depth + 1);
    for (Py_ssize_t i = 0; made && i < depth; i++)
        PyTuple_SetItem(made, i, Py_NewRef(PyTuple_GetItem(path, i)));
    if (made)
        PyTuple_SetItem(made, depth, Py_NewRef(key));
    return made;
}

/* 1: go on. 0: this batch is not plain. */
static int collect_under(Glance *glance, PyObject *path, PyObject *key, PyObject *part)
{
    Py_INCREF(part); /* a collection of garbage may run meanwhile, and with it any code */
    PyObject *further = longer(path, key);
    int plain = further && collect(glance, part, further);
    Py_XDECREF(further);
    Py_DECREF(part);
    return plain;
}

static int collect_dict(Glance *glance, PyObject *data, PyObject *path)
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
        if (!collect_under(glance, path, key, part))
            return 0;
    }
    return 1;
}

/* As `collect_under`, of a row, whose places are never left out. */
static int collect_at(Glance *glance, PyObject *path, Py_ssize_t place, PyObject *part)
{
    if (place < FIRST && PyTuple_Size(path) == 0) {
        Py_INCREF(part);
        int plain = collect(glance, part, places[place]);
        Py_DECREF(part);
        return plain;
    }
    PyObject *key = PyLong_FromSsize_t(place);
    int plain = key && collect_under(glance, path, key, part);
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

static int collect_row(Glance *glance, PyObject *data, PyObject *path)
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
        return add_part(glance, path, data) && look_inside(glance, data);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (glance->found >= MOST_PARTS) {
            glance->whole = 0;
            return 1;
        }
        PyObject *part = item_of(data, i);
        if (!part || !collect_at(glance, path, i, part))
            return 0;
    }
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *path)
{
    switch (kind_of(data)) {
    case ARRAY:
        return add_part(glance, path, data) && look_at(glance, data);
    case SINGLE:
        return add_part(glance, path, data) && (data == Py_None || look_at_single(glance, data));
    case CONTAINER:
        if (PyTuple_Size(path) >= MOST_DEPTH)
            return add_part(glance, path, data) && look_inside(glance, data);
        return PyDict_CheckExact(data) ? collect_dict(glance, data, path) : collect_row(glance, data, path);
    default:
        return 0;
    }
}

/* Its parts, as Python has them. */
static PyObject *found_made(Glance *glance)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < glance->found; i++) {
        PyObject *pair = PyTuple_Pack(2, part_at(glance, i)->path, part_at(glance, i)->part);
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
    PyObject *path = PyTuple_New(0);
    int plain = tensors_are_read() && path && collect(glance, data, path);
    Py_XDECREF(path);
    return plain;
}

static void glance_cleared(Glance *glance)
{
    Glance old = *glance; /* freeing may run any code */
    memset(glance, 0, sizeof *glance);
    for (int i = 0; i < old.found; i++) {
        Py_DECREF(part_at(&old, i)->path);
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

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Set the parts of torch, the digest function and the class of results to use."},
    {"glance", glanced, METH_VARARGS, "The parts of a batch and their digests; None if it is not plain."},
    {NULL, NULL, 0, NULL},
};

int fill_checksum(PyObject *module)
{
    static const Name names[] = {{&s_version, "_version"}, {NULL, NULL}};
    for (int i = 0; i < FIRST; i++)
        if (!(places[i] = Py_BuildValue("(i)", i)))
            return -1;
    tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    return make_names(names) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
