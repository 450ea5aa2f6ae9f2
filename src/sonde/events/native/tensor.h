/* Tensors as torch's own C functions tell of them: the same view as that of DLPack, without the detour through Python's types, which takes
   more than the look itself. Where a tensor keeps its part in C++ is found and proved by `directly` before any of this is used;
   whatever cannot be told here, DLPack tells. */
#ifndef SONDE_TENSOR_H
#define SONDE_TENSOR_H

#include "dlpack.h"

#include <string.h>

/* In the order of ASKED in hooks/torch/direct.py. A handle is the address of a pointer to a tensor's part in C++. */
typedef struct {
    _Bool (*has_storage)(void *), (*requires_grad)(void *);
    void *(*grad)(void *); /* a handle */
    int (*device)(void *, int32_t *), (*dtype)(void *, int32_t *);
    int (*dim)(void *, int64_t *), (*sizes)(void *, int64_t **), (*strides)(void *, int64_t **), (*data)(void *, void **);
} Asked;
static struct {
    int trusted;
    size_t offset; /* in the Python object, of that pointer */
    Asked ask;
} direct;

static inline void *handle_of(PyObject *tensor)
{
    return (char *)tensor + direct.offset;
}

/* Are gradients of this tensor computed? 0 also where nobody knows. */
static inline int is_tracked(PyObject *tensor)
{
    return direct.trusted && direct.ask.requires_grad(*(void **)handle_of(tensor));
}

/* 0: `view` is filled. */
static inline int view_of_handle(void *handle, View *view)
{
    /* codes and bits, by torch's number of a dtype */
    static const uint8_t known[][2] = {{UNSIGNED, 8}, {SIGNED, 8}, {SIGNED, 16}, {SIGNED, 32}, {SIGNED, 64}, {FLOATING, 16}, {FLOATING, 32},
                                       {FLOATING, 64}, {COMPLEX, 32}, {COMPLEX, 64}, {COMPLEX, 128}, {TRUTH, 8}, {0, 0}, {0, 0}, {0, 0},
                                       {BRAIN, 16}};
    int32_t device, dtype;
    int64_t dims;
    if (!direct.ask.has_storage(*(void **)handle) || direct.ask.device(handle, &device) || device || direct.ask.dtype(handle, &dtype))
        return -1;
    if (dtype < 0 || dtype >= (int32_t)(sizeof known / sizeof *known) || !known[dtype][1])
        return -1;
    *view = (View){.device = CPU, .code = known[dtype][0], .bits = known[dtype][1], .lanes = 1};
    if (direct.ask.dim(handle, &dims) || direct.ask.sizes(handle, &view->shape) || direct.ask.strides(handle, &view->strides) ||
        direct.ask.data(handle, &view->data))
        return -1;
    view->dims = (int32_t)dims;
    return 0;
}

/* The view of a tensor or parameter of torch itself. 0: it is filled. Perhaps with an exception if not. */
static inline int view_of(const Exchange *exchange, PyObject *tensor, View *view)
{
    if (direct.trusted && view_of_handle(handle_of(tensor), view) == 0)
        return 0;
    return exchange->view(tensor, view);
}

static inline int same_views(const View *one, const View *other)
{
    size_t bytes = sizeof(int64_t) * (size_t)one->dims;
    return one->data == (void *)((char *)other->data + other->offset) && one->device == other->device && one->dims == other->dims &&
           one->code == other->code && one->bits == other->bits && one->lanes == other->lanes &&
           !memcmp(one->shape, other->shape, bytes) && !memcmp(one->strides, other->strides, bytes);
}

/* Does this tensor keep `impl` at that offset, and is all that is told of it what DLPack tells? `grad`: that of its gradient, NULL: it has none;
   `wanted`: gradients of it are computed. */
static inline int is_proved(const Exchange *exchange, PyObject *tensor, void *impl, void *grad, int wanted)
{
    View one, other;
    void *place;
    memcpy(&place, handle_of(tensor), sizeof place);
    if (place != impl || view_of_handle(handle_of(tensor), &one) || exchange->view(tensor, &other))
        return 0;
    void *found = *(void **)direct.ask.grad(impl);
    int told = grad ? found == grad : !direct.ask.has_storage(found);
    return told && !!direct.ask.requires_grad(impl) == wanted && same_views(&one, &other);
}

static inline void *address_in(PyObject *tuple, Py_ssize_t place)
{
    PyObject *number = PyTuple_Check(tuple) ? PyTuple_GetItem(tuple, place) : NULL;
    return number ? PyLong_AsVoidPtr(number) : NULL;
}

/* `given`: the offset, the addresses of the functions, and samples, of which each is a tensor with the addresses of its part in C++ and of
   that of its gradient, and whether gradients of it are computed. Only if all that is true, they are asked from now on. */
static inline void directly(const Exchange *exchange, PyObject *given)
{
    PyObject *offset, *addresses, *samples;
    void *functions[sizeof(Asked) / sizeof(void *)];
    int proved = exchange && given != Py_None &&
                 PyArg_ParseTuple(given, "OO!O!", &offset, &PyTuple_Type, &addresses, &PyTuple_Type, &samples);
    direct.trusted = 0;
    for (size_t i = 0; proved && i < sizeof functions / sizeof *functions; i++)
        proved = (functions[i] = address_in(addresses, (Py_ssize_t)i)) != NULL;
    if (proved) {
        memcpy(&direct.ask, functions, sizeof functions);
        direct.offset = PyLong_AsSize_t(offset);
        proved = !PyErr_Occurred() && PyTuple_Size(samples) > 0;
    }
    for (Py_ssize_t i = 0; proved && i < PyTuple_Size(samples); i++) {
        PyObject *sample = PyTuple_GetItem(samples, i);
        proved = PyTuple_Check(sample) && PyTuple_Size(sample) == 4 &&
                 is_proved(exchange, PyTuple_GetItem(sample, 0), address_in(sample, 1), address_in(sample, 2),
                           PyTuple_GetItem(sample, 3) == Py_True);
    }
    direct.trusted = proved && !PyErr_Occurred();
    PyErr_Clear();
}

#endif
