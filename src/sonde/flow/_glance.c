/* A batch at a glance: the quick way of `sample.py`, for plain tensors of the host, texts and numbers in plain containers, as nearly
   all batches are. Whatever else there is, Python looks. `_glance.pyi` says what is what. */
#include "../events/native/dlpack.h"

#include <math.h>
#include <string.h>

#define WHOLE 16384 /* the limits of sample.py */
#define BLOCKS 16
#define MOST_PARTS 64
#define MOST_DEPTH 4
#define FIRST 8

enum { TENSOR, EXCHANGE, DIGEST, LOOK, PARTS };
static PyObject *parts[PARTS];
static const Exchange *exchange; /* may be NULL: then nothing is plain */
static newfunc tuple_new;
static PyObject *s_version;

/* ---- one look ---- */

typedef struct {
    PyObject *found, *versions; /* lists */
    PyObject *exclude;
    uint64_t digest;
    int64_t size;
    int count, whole;
} Glance;

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

static int add_digest(Glance *glance, const char *data, int64_t size)
{
    char sample[WHOLE];
    if (size > WHOLE) {
        int64_t apart = size / BLOCKS;
        for (int i = 0; i < BLOCKS; i++)
            memcpy(sample + i * (WHOLE / BLOCKS), data + i * apart, WHOLE / BLOCKS);
        data = sample;
    }
    PyObject *args[2] = {PyMemoryView_FromMemory((char *)data, size > WHOLE ? WHOLE : size, PyBUF_READ),
                         PyLong_FromUnsignedLongLong(glance->digest)};
    PyObject *made = args[0] && args[1] ? PyObject_Vectorcall(parts[DIGEST], args, 2, NULL) : NULL;
    Py_XDECREF(args[0]);
    Py_XDECREF(args[1]);
    if (!made)
        return 0;
    glance->digest = PyLong_AsUnsignedLongLong(made);
    Py_DECREF(made);
    glance->whole &= size <= WHOLE;
    glance->count++;
    return !PyErr_Occurred();
}

/* Those of which Python decides whether they have memory that may be read are left to it: all that are empty or hold one number. */
static int look_at(Glance *glance, PyObject *tensor)
{
    View view;
    int dense;
    if (exchange->view(tensor, &view) != 0 || view.device != CPU || view.lanes != 1 || view.bits % 8 || !view.data)
        return 0;
    if (view.code != SIGNED && view.code != UNSIGNED && view.code != FLOATING && view.code != BRAIN && view.code != TRUTH)
        return 0;
    int64_t count = count_of(&view, &dense);
    if (!view.dims || count <= (view.code == FLOATING || view.code == BRAIN))
        return 0;
    PyObject *version = PyObject_GetAttr(tensor, s_version);
    int noted = version ? PyList_Append(glance->versions, version) : -1;
    Py_XDECREF(version);
    int64_t size = count * (view.bits / 8);
    glance->size += size;
    return noted == 0 && (!dense || add_digest(glance, (const char *)view.data + view.offset, size));
}

static int add_part(Glance *glance, PyObject *way, PyObject *part)
{
    PyObject *pair = PyTuple_Pack(2, way, part);
    int added = pair ? PyList_Append(glance->found, pair) : -1;
    Py_XDECREF(pair);
    return added == 0;
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
    int left_out = kind_of(key) == SINGLE ? PySet_Contains(glance->exclude, key) : -1; /* others may run any code */
    if (left_out)
        return left_out > 0;
    PyObject *further = longer(way, key);
    int plain = further && collect(glance, part, further);
    Py_XDECREF(further);
    return plain;
}

static int collect_dict(Glance *glance, PyObject *data, PyObject *way)
{
    PyObject *key, *part;
    Py_ssize_t place = 0;
    while (PyDict_Next(data, &place, &key, &part)) {
        if (PyList_Size(glance->found) >= MOST_PARTS)
            return 1;
        if (!collect_under(glance, way, key, part))
            return 0;
    }
    return 1;
}

static PyObject *item(PyObject *row, Py_ssize_t place)
{
    return PyTuple_CheckExact(row) ? PyTuple_GetItem(row, place) : PyList_GetItem(row, place);
}

static int collect_row(Glance *glance, PyObject *data, PyObject *way)
{
    Py_ssize_t count = PyTuple_CheckExact(data) ? PyTuple_Size(data) : PyList_Size(data);
    int nests = 0;
    for (Py_ssize_t i = 0; i < count && i < FIRST; i++) {
        int kind = kind_of(item(data, i));
        if (kind == OTHER)
            return 0;
        nests |= kind != SINGLE;
    }
    if (!nests)
        return add_part(glance, way, data);
    for (Py_ssize_t i = 0; i < count && PyList_Size(glance->found) < MOST_PARTS; i++) {
        PyObject *place = PyLong_FromSsize_t(i), *part = item(data, i);
        int plain = place && part && collect_under(glance, way, place, part);
        Py_XDECREF(place);
        if (!plain)
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
        return add_part(glance, way, data);
    case CONTAINER:
        if (PyTuple_Size(way) >= MOST_DEPTH)
            return add_part(glance, way, data);
        return PyDict_CheckExact(data) ? collect_dict(glance, data, way) : collect_row(glance, data, way);
    default:
        return 0;
    }
}

/* A `Look`, which is a tuple, without a Python frame. */
static PyObject *look_made(Glance *glance)
{
    PyObject *digest = glance->count ? PyLong_FromUnsignedLongLong(glance->digest) : Py_NewRef(Py_None);
    PyObject *versions = PyList_AsTuple(glance->versions);
    PyObject *values = digest && versions ? Py_BuildValue("((OOOLO))", digest, glance->whole ? Py_True : Py_False, versions,
                                                          (long long)glance->size, Py_False)
                                          : NULL;
    PyObject *made = values ? tuple_new((PyTypeObject *)parts[LOOK], values, NULL) : NULL;
    Py_XDECREF(digest);
    Py_XDECREF(versions);
    Py_XDECREF(values);
    return made;
}

static PyObject *glanced(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *exclude, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO", &data, &exclude))
        return NULL;
    if (!exchange || !PyAnySet_Check(exclude))
        Py_RETURN_NONE;
    Glance glance = {PyList_New(0), PyList_New(0), exclude, 0, 0, 0, 1};
    PyObject *way = PyTuple_New(0);
    if (glance.found && glance.versions && way && collect(&glance, data, way)) {
        PyObject *look = look_made(&glance);
        result = look ? PyTuple_Pack(2, glance.found, look) : NULL;
        Py_XDECREF(look);
    }
    Py_XDECREF(glance.found);
    Py_XDECREF(glance.versions);
    Py_XDECREF(way);
    if (!result && PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        return NULL; /* of a handler of a signal: the program's */
    PyErr_Clear();
    return result ? result : Py_NewRef(Py_None);
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *given)
{
    if (!PyTuple_Check(given) || PyTuple_Size(given) != PARTS || !PyType_Check(PyTuple_GetItem(given, LOOK)))
        return PyErr_Format(PyExc_TypeError, "prepare() takes a tuple of %d", PARTS);
    for (int i = 0; i < PARTS; i++) {
        PyObject *old = parts[i];
        parts[i] = Py_NewRef(PyTuple_GetItem(given, i));
        Py_XDECREF(old);
    }
    exchange = exchange_of(parts[EXCHANGE]);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* ---- the last loss ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vector;
    PyObject *note, *told;
    PyObject *last; /* may be NULL */
} Latest;

static PyTypeObject *latest_type;

static PyObject *latest_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Latest *latest = (Latest *)self;
    PyObject *result = PyObject_Vectorcall(latest->note, args, flags, names);
    if (!result || (flags & ~OFFSET_BIT) < 2)
        return result;
    PyObject *before = latest->last;
    latest->last = Py_NewRef(args[1]);
    Py_XDECREF(before);
    double value = PyFloat_AsDouble(args[1]);
    if (!isfinite(value) && !PyErr_Occurred())
        Py_XDECREF(PyObject_CallFunctionObjArgs(latest->told, args[1], NULL));
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

static PyObject *latest_take(PyObject *self, PyObject *Py_UNUSED(none))
{
    PyObject *last = ((Latest *)self)->last;
    ((Latest *)self)->last = NULL;
    return last ? last : Py_NewRef(Py_None);
}

static void latest_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((Latest *)self)->note);
    Py_XDECREF(((Latest *)self)->told);
    Py_XDECREF(((Latest *)self)->last);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static int latest_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Latest *)self)->note);
    Py_VISIT(((Latest *)self)->told);
    Py_VISIT(((Latest *)self)->last);
    return 0;
}

static PyMemberDef latest_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Latest, vector), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef latest_methods[] = {
    {"take", latest_take, METH_NOARGS, "The last loss since this was asked before; None: there was none."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot latest_slots[] = {
    {Py_tp_dealloc, latest_dealloc}, {Py_tp_traverse, latest_traverse}, {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, latest_members}, {Py_tp_methods, latest_methods},   {0, NULL}};
static PyType_Spec latest_spec = {
    "sonde.flow._glance.Latest", sizeof(Latest), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, latest_slots};

static PyObject *latest(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *note, *told;
    if (!PyArg_ParseTuple(args, "OO", &note, &told))
        return NULL;
    Latest *made = PyObject_GC_New(Latest, latest_type);
    if (!made)
        return NULL;
    made->vector = latest_call;
    made->note = Py_NewRef(note);
    made->told = Py_NewRef(told);
    made->last = NULL;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"prepare", prepare, METH_O, "Take the class of tensors, the exchange, the function of digests, and the class of a look."},
    {"glance", glanced, METH_VARARGS, "The parts of a batch and the look at them; None: it is not plain."},
    {"latest", latest, METH_VARARGS, "What writes losses, and knows the last one."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sonde.flow._glance", "A batch at a glance.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__glance(void)
{
    s_version = PyUnicode_InternFromString("_version");
    tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    latest_type = s_version ? (PyTypeObject *)PyType_FromSpec(&latest_spec) : NULL;
    return latest_type ? PyModule_Create(&definition) : NULL;
}
