/* The fingerprint of a tensor, in one pass: the digest of its bits and its sum. The fast path of `probes/learning/fingerprint.py`, for plain
   tensors of the host; whatever else there is, Python reads. `native/fingerprints.pyi` says what is what. */
#include "shared/errors.h"
#include "shared/tensor.h"
#include "shared/wide.h"

#include <stdlib.h>
#include <string.h>

#define LANES 16 /* sums side by side, always in this order: the same number on every machine */
#define MOST_DIMS 16
#define MOST_SEEDS 4096

enum { TENSOR, PARAMETER, EXCHANGE, COPIED_LATE, DIGEST, SEED, NOTE, MASK, PARTS };
static const char *const part_names[] = {"tensor", "parameter", "exchange", "copied_late", "digest", "seed", "note", "mask", NULL};
static PyObject *parts[PARTS];
static PyObject *seeds; /* by what is known of type and shape, as bytes */
static uint64_t mask;

static float brain_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#define DEFINE_SUM(NAME, TYPE, VALUE) \
    WIDE static double sum_##NAME(const void *data, int64_t count) \
    { \
        const TYPE *x = data; \
        double lanes[LANES] = {0}, sum = 0; \
        int64_t i = 0; \
        for (; i + LANES <= count; i += LANES) \
            for (int j = 0; j < LANES; j++) \
                lanes[j] += (double)VALUE(x[i + j]); \
        for (int j = 0; j < LANES; j++) \
            sum += lanes[j]; \
        for (; i < count; i++) \
            sum += (double)VALUE(x[i]); \
        return sum; \
    }

#define AS_IT_IS(x) (x)
DEFINE_SUM(f4, float, AS_IT_IS)
DEFINE_SUM(f8, double, AS_IT_IS)
DEFINE_SUM(b2, uint16_t, brain_value)
DEFINE_SUM(u1, uint8_t, AS_IT_IS)
DEFINE_SUM(i1, int8_t, AS_IT_IS)
DEFINE_SUM(i2, int16_t, AS_IT_IS)
DEFINE_SUM(i4, int32_t, AS_IT_IS)
DEFINE_SUM(i8, int64_t, AS_IT_IS)

static const struct {
    uint8_t code, bits;
    double (*sum)(const void *, int64_t);
} formats[] = {{FLOATING, 32, sum_f4}, {FLOATING, 64, sum_f8}, {BRAIN, 16, sum_b2}, {UNSIGNED, 8, sum_u1}, {TRUTH, 8, sum_u1},
               {SIGNED, 8, sum_i1},    {SIGNED, 16, sum_i2},   {SIGNED, 32, sum_i4}, {SIGNED, 64, sum_i8}};

/* The elements one after the other, in the order of their places: memory that the caller frees. NULL: there is none. */
static char *gathered(const View *view, int64_t count, int64_t size)
{
    int64_t place[MOST_DIMS] = {0}, inner = view->shape[view->dims - 1], stride = view->strides[view->dims - 1] * size;
    char *made = malloc((size_t)(count * size)), *next = made;
    for (const char *from = (const char *)view->data + view->offset; made && next < made + count * size;) {
        if (stride == size)
            memcpy(next, from, (size_t)(inner * size));
        else
            for (int64_t i = 0; i < inner; i++)
                memcpy(next + i * size, from + i * stride, (size_t)size);
        next += inner * size;
        for (int i = view->dims - 2; i >= 0; i--) { /* as the digits of a number that is counted up */
            from += view->strides[i] * size;
            if (++place[i] < view->shape[i])
                break;
            from -= place[i] * view->strides[i] * size;
            place[i] = 0;
        }
    }
    return made;
}

/* What the digest of a tensor of this type and shape begins with: a borrowed number. NULL with an exception. */
static PyObject *seed_of(PyObject *tensor, const View *view)
{
    int64_t facts[MOST_DIMS + 1] = {view->code << 8 | view->bits};
    memcpy(facts + 1, view->shape, (size_t)view->dims * sizeof *facts);
    PyObject *key = PyBytes_FromStringAndSize((const char *)facts, (view->dims + 1) * (Py_ssize_t)sizeof *facts);
    PyObject *found = key ? PyDict_GetItemWithError(seeds, key) : NULL;
    if (key && !found && !PyErr_Occurred()) {
        if (PyDict_Size(seeds) >= MOST_SEEDS)
            PyDict_Clear(seeds);
        PyObject *made = PyObject_Vectorcall(parts[SEED], &tensor, 1, NULL);
        if (made && PyDict_SetItem(seeds, key, made) == 0)
            found = made; /* the dict has it */
        Py_XDECREF(made);
    }
    Py_XDECREF(key);
    return found;
}

/* 0 with an exception. */
static uint64_t digest_of(PyObject *tensor, const View *view, const char *data, int64_t bytes)
{
    PyObject *seed = Py_XNewRef(seed_of(tensor, view));
    PyObject *memory = seed ? PyMemoryView_FromMemory((char *)data, bytes, PyBUF_READ) : NULL;
    PyObject *args[] = {memory, seed}, *made = memory ? PyObject_Vectorcall(parts[DIGEST], args, 2, NULL) : NULL;
    uint64_t digest = made ? PyLong_AsUnsignedLongLongMask(made) : 0;
    Py_XDECREF(seed);
    Py_XDECREF(memory);
    Py_XDECREF(made);
    return digest;
}

static int noted(PyObject *span, double sum, uint64_t digest)
{
    PyObject *args[] = {span, PyFloat_FromDouble(sum), PyLong_FromUnsignedLongLong(digest & mask)};
    PyObject *made = args[1] && args[2] ? PyObject_Vectorcall(parts[NOTE], args, 3, NULL) : NULL;
    Py_XDECREF(args[1]);
    Py_XDECREF(args[2]);
    return done(made);
}

/* 1: it is written. 0: it is not plain. -1 with an exception. */
static int write_one(PyObject *span, PyObject *tensor)
{
    View view;
    int dense;
    size_t format = 0, formats_known = sizeof formats / sizeof *formats;
    PyObject *type = (PyObject *)Py_TYPE(tensor);
    if ((type != parts[TENSOR] && type != parts[PARAMETER]) || view_of(tensor, &view) != READABLE || view.device != CPU || view.lanes != 1 ||
        view.dims > MOST_DIMS)
        return 0;
    while (format < formats_known && (formats[format].code != view.code || formats[format].bits != view.bits))
        format++;
    int64_t count = count_of(&view, &dense), size = view.bits / 8;
    if (format == formats_known || !count || !view.data)
        return 0;
    char *copy = dense ? NULL : gathered(&view, count, size);
    const char *data = dense ? (const char *)view.data + view.offset : copy;
    double sum = data ? formats[format].sum(data, count) : 0;
    uint64_t digest = data ? digest_of(tensor, &view, data, count * size) : 0;
    free(copy);
    if (!data)
        return 0;
    return PyErr_Occurred() || noted(span, sum, digest) < 0 ? -1 : 1;
}

static PyObject *fingerprints_write(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *span, *tensor;
    int written = PyArg_ParseTuple(args, "OO:write", &span, &tensor) ? write_one(span, tensor) : -1;
    return written < 0 ? NULL : PyBool_FromLong(written);
}

static PyObject *write_many(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *spans, *tensors, *left = PyList_New(0);
    if (!left || !PyArg_ParseTuple(args, "O!O!:write_many", &PyList_Type, &spans, &PyList_Type, &tensors)) {
        Py_XDECREF(left);
        return NULL;
    }
    for (Py_ssize_t i = 0; left && i < PyList_Size(spans) && i < PyList_Size(tensors); i++) {
        PyObject *span = Py_NewRef(PyList_GetItem(spans, i)), *tensor = Py_NewRef(PyList_GetItem(tensors, i));
        PyObject *pair = NULL;
        int written = tensor == Py_None ? 1 : write_one(span, tensor);
        if (written < 0 || (!written && (!(pair = PyTuple_Pack(2, span, tensor)) || PyList_Append(left, pair) < 0)))
            Py_CLEAR(left);
        Py_XDECREF(pair);
        Py_DECREF(span);
        Py_DECREF(tensor);
    }
    return left;
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    if (take_arguments(args, kwargs, part_names, parts) < 0 || tensors_known(parts[EXCHANGE], parts[COPIED_LATE]) < 0)
        return NULL;
    mask = PyLong_AsUnsignedLongLongMask(parts[MASK]);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Set the parts of torch and Sonde to use."},
    {"write", fingerprints_write, METH_VARARGS, "Record the fingerprint of a tensor; False if Python must do it."},
    {"write_many", write_many, METH_VARARGS, "The same for lists of spans and tensors; returns those that Python must write."},
    {NULL, NULL, 0, NULL},
};

int fill_fingerprints(PyObject *module)
{
    return (seeds = PyDict_New()) ? PyModule_AddFunctions(module, functions) : -1;
}
