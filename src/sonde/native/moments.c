/* Sums over the elements of tensors on the host, in one pass: what a norm, a mean and shares are made of. `native/moments.pyi` says what is what.

   Sums of a block are taken in lanes of the elements' own precision; where squares vanish or overflow in it, the block is read again in
   doubles. Where this was not built, and of other tensors, torch does the same in several operations (`probes/learning/tensors.py`). */
#include "shared/errors.h"
#include "shared/tensor.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define WIDE
#endif

#define LANES 32
#define BLOCK 4096
#define MOST (1 << 22) /* elements: others wait meanwhile */
#define TINY 1e-28     /* squares in single precision that add up to less may have vanished */

typedef struct {
    double sum, squares;
    int64_t nonzero, nonfinite, beyond;
} Sums;

/* One block of floats, as long as LANES divides it; 0: it has to be read in doubles. */
WIDE static int quick(const float *x, size_t count, float middle, float far, Sums *out)
{
    float sum[LANES] = {0}, squares[LANES] = {0};
    int32_t zeros[LANES] = {0}, beyond[LANES] = {0};
    for (size_t i = 0; i < count; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            float v = x[i + j];
            sum[j] += v;
            squares[j] += v * v;
            zeros[j] += v == 0.0f;
            beyond[j] += fabsf(v - middle) >= far;
        }
    double total = 0, squared = 0;
    int64_t none = 0, away = 0;
    for (size_t j = 0; j < LANES; j++) {
        total += sum[j];
        squared += squares[j];
        none += zeros[j];
        away += beyond[j];
    }
    if (!isfinite(squared) || (squared < TINY && none < (int64_t)count))
        return 0;
    out->sum += total;
    out->squares += squared;
    out->nonzero += (int64_t)count - none;
    out->beyond += away;
    return 1;
}

#define DEFINE_SLOW(NAME, TYPE) \
    static void NAME(const TYPE *x, size_t count, double middle, double far, Sums *out) \
    { \
        for (size_t i = 0; i < count; i++) { \
            double v = (double)x[i]; \
            out->sum += v; \
            out->squares += v * v; \
            out->nonzero += v != 0.0; \
            out->nonfinite += !isfinite(v); \
            out->beyond += fabs(v - middle) >= far; \
        } \
    }
DEFINE_SLOW(slow_single, float)
DEFINE_SLOW(slow_twofold, double)

static void single(const float *x, size_t count, double middle, double far, Sums *out)
{
    for (size_t i = 0; i < count;) {
        size_t size = count - i < BLOCK ? count - i : BLOCK, whole = size - size % LANES;
        if (!whole || !quick(x + i, whole, (float)middle, (float)far, out))
            slow_single(x + i, whole ? whole : size, middle, far, out);
        i += whole ? whole : size;
    }
}

/* bfloat16 is the upper half of a float. */
static void brain(const uint16_t *x, size_t count, double middle, double far, Sums *out)
{
    float wide[BLOCK];
    for (size_t i = 0; i < count; i += BLOCK) {
        size_t size = count - i < BLOCK ? count - i : BLOCK;
        for (size_t j = 0; j < size; j++) {
            uint32_t bits = (uint32_t)x[i + j] << 16;
            memcpy(wide + j, &bits, sizeof bits);
        }
        single(wide, size, middle, far, out);
    }
}

enum { OTHER, SINGLE, TWOFOLD, HALVED };

/* Which numbers these are, if they can be read here: dense ones in order, or, if that does not matter, all that fill their memory. */
static int kind_of(PyObject *tensor, View *view, int64_t *count, int ordered)
{
    int dense;
    if (view_of(tensor, view) != READABLE || view->device != CPU || view->lanes != 1)
        return OTHER;
    *count = count_of(view, &dense);
    if (*count > MOST || !(dense || (!ordered && is_filled(view->dims, view->shape, view->strides))))
        return OTHER;
    if (view->code == FLOATING)
        return view->bits == 32 ? SINGLE : view->bits == 64 ? TWOFOLD : OTHER;
    return view->code == BRAIN && view->bits == 16 ? HALVED : OTHER;
}

static const void *memory_of(const View *view)
{
    return (const char *)view->data + view->offset;
}

static PyObject *moments(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tensor;
    double middle, far;
    View view;
    int64_t count;
    Sums sums = {0};
    if (!PyArg_ParseTuple(args, "Odd:moments", &tensor, &middle, &far))
        return NULL;
    switch (kind_of(tensor, &view, &count, 0)) {
    case SINGLE:
        single(memory_of(&view), (size_t)count, middle, far, &sums);
        break;
    case TWOFOLD:
        slow_twofold(memory_of(&view), (size_t)count, middle, far, &sums);
        break;
    case HALVED:
        brain(memory_of(&view), (size_t)count, middle, far, &sums);
        break;
    default:
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(ddLLL)", sums.sum, sums.squares, (long long)sums.nonzero, (long long)sums.nonfinite, (long long)sums.beyond);
}

#define DEFINE_DISTANCE(NAME, TYPE) \
    WIDE static double NAME(const TYPE *x, const TYPE *y, size_t count) \
    { \
        double lanes[LANES] = {0}, squares = 0; \
        size_t whole = count - count % LANES; \
        for (size_t i = 0; i < whole; i += LANES) \
            for (size_t j = 0; j < LANES; j++) { \
                double far = (double)x[i + j] - (double)y[i + j]; \
                lanes[j] += far * far; \
            } \
        for (size_t j = 0; j < LANES; j++) \
            squares += lanes[j]; \
        for (size_t i = whole; i < count; i++) \
            squares += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]); \
        return squares; \
    }
DEFINE_DISTANCE(single_distance, float)
DEFINE_DISTANCE(twofold_distance, double)

static PyObject *distance(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *one, *other;
    View first, second;
    int64_t count, also;
    if (!PyArg_ParseTuple(args, "OO:distance", &one, &other))
        return NULL;
    int kind = kind_of(one, &first, &count, 1);
    if (kind != kind_of(other, &second, &also, 1) || count != also || (kind != SINGLE && kind != TWOFOLD))
        Py_RETURN_NONE;
    const void *x = memory_of(&first), *y = memory_of(&second);
    return PyFloat_FromDouble(kind == SINGLE ? single_distance(x, y, (size_t)count) : twofold_distance(x, y, (size_t)count));
}

static PyObject *active(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *tensor;
    int unit;
    View view;
    int64_t count, inner = 1, found = 0;
    if (!PyArg_ParseTuple(args, "Oi:active", &tensor, &unit))
        return NULL;
    if (kind_of(tensor, &view, &count, 1) != SINGLE || unit < 0 || unit >= view.dims)
        Py_RETURN_NONE;
    for (int i = unit + 1; i < view.dims; i++)
        inner *= view.shape[i];
    int64_t units = view.shape[unit];
    char *seen = PyMem_Calloc((size_t)(units ? units : 1), 1);
    if (!seen)
        return PyErr_NoMemory();
    const float *x = memory_of(&view);
    for (int64_t i = 0; i < count; i += inner)
        for (int64_t j = 0; j < inner; j++)
            seen[i / inner % units] |= x[i + j] != 0.0f;
    for (int64_t i = 0; i < units; i++)
        found += seen[i];
    PyMem_Free(seen);
    return PyLong_FromLongLong(found);
}

static PyMethodDef functions[] = {
    {"moments", moments, METH_VARARGS, "(sum, squares, nonzero, nonfinite, beyond) of a tensor; None if it cannot be read here."},
    {"distance", distance, METH_VARARGS, "Squared distance of two tensors; None if they cannot be read here."},
    {"active", active, METH_VARARGS, "Number of units of a tensor that are not zero everywhere; None if it cannot be read here."},
    {NULL, NULL, 0, NULL},
};

int fill_moments(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
