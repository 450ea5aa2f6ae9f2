/* Statistics of an array in one pass over its memory: least, greatest, mean, standard deviation, how many are not finite.

   The loops run over small blocks of independent lanes, so that a compiler can vectorise them without being allowed to
   reorder sums; for float32, the usual case, they are written out for x86-64. The widest instructions of the machine are
   chosen at run time. Sums are taken of the distance from the first finite element: the spread of values far from zero keeps
   its digits. */
#include "shared/abi.h"
#include "shared/wide.h"
#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 32
#define BLOCK 4096
#define TINY 1e-28 /* squares in float32 that add up to less may have vanished: they are taken again, in doubles */
#define ROWS 64 /* sums of a block stay in the lanes' own precision; then they go into doubles */

typedef struct {
    double low, high, sum, squares; /* sums are of the distance from `shift` */
    double shift;
    int64_t finite;
    int64_t least, greatest; /* exact, of integers */
    uint64_t most;           /* exact, of unsigned integers */
} Stats;

/* ---- float32 on x86-64, with all lanes in registers, and sums by the units that multiply: the others are busy ---- */

#ifdef BY_HAND
#include <immintrin.h>

#define DEFINE_SIMD(NAME, TARGET, VECTOR, WIDTH, LOAD, SET, ADD, SUB, MIN, MAX, FMA, STORE) \
    __attribute__((target(TARGET), optimize("O3", "unroll-loops"))) static void NAME(const float *x, size_t count, float shift, Stats *out) \
    { \
        VECTOR low[4], high[4], sum[4], squares[4], away = SET(shift), one = SET(1.0f); \
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) { \
            low[k] = high[k] = SET(x[0]); \
            sum[k] = squares[k] = SET(0.0f); \
        } \
        for (size_t i = 0; i < count; i += 4 * WIDTH) \
            _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) { \
                VECTOR v = LOAD(x + i + k * WIDTH), far = SUB(v, away); \
                low[k] = MIN(low[k], v); \
                high[k] = MAX(high[k], v); \
                sum[k] = FMA(far, one, sum[k]); \
                squares[k] = FMA(far, far, squares[k]); \
            } \
        float lanes[4][WIDTH]; \
        STORE(lanes[0], MIN(MIN(low[0], low[1]), MIN(low[2], low[3]))); \
        STORE(lanes[1], MAX(MAX(high[0], high[1]), MAX(high[2], high[3]))); \
        STORE(lanes[2], ADD(ADD(sum[0], sum[1]), ADD(sum[2], sum[3]))); \
        STORE(lanes[3], ADD(ADD(squares[0], squares[1]), ADD(squares[2], squares[3]))); \
        for (int j = 0; j < WIDTH; j++) { \
            out->low = lanes[0][j] < out->low ? lanes[0][j] : out->low; \
            out->high = lanes[1][j] > out->high ? lanes[1][j] : out->high; \
            out->sum += lanes[2][j]; \
            out->squares += lanes[3][j]; \
        } \
    }

DEFINE_SIMD(floats_512, "avx512f", __m512, 16, _mm512_loadu_ps, _mm512_set1_ps, _mm512_add_ps, _mm512_sub_ps, _mm512_min_ps,
            _mm512_max_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
DEFINE_SIMD(floats_256, "avx2,fma", __m256, 8, _mm256_loadu_ps, _mm256_set1_ps, _mm256_add_ps, _mm256_sub_ps, _mm256_min_ps,
            _mm256_max_ps, _mm256_fmadd_ps, _mm256_storeu_ps)

typedef void (*Floats)(const float *, size_t, float, Stats *);

static Floats widest(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return floats_512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? floats_256 : NULL;
}

/* Whole blocks from the front, as long as all is finite; how many elements that were. */
static Py_ssize_t by_hand(const float *x, Py_ssize_t count, float shift, Stats *out)
{
    static Floats run;
    Py_ssize_t i = 0;
    if (!run && !(run = widest()))
        return 0;
    for (; count - i >= BLOCK; i += BLOCK) {
        Stats part = {.low = INFINITY, .high = -INFINITY};
        run(x + i, BLOCK, shift, &part);
        if (!isfinite(part.squares) || (part.squares < TINY && part.low < part.high))
            break;
        out->low = part.low < out->low ? part.low : out->low;
        out->high = part.high > out->high ? part.high : out->high;
        out->sum += part.sum;
        out->squares += part.squares;
        out->finite += BLOCK;
    }
    return i;
}
#else
static Py_ssize_t by_hand(const float *x, Py_ssize_t count, float shift, Stats *out)
{
    return 0;
}
#endif

/* ---- floating point ---- */

#define DEFINE_FLOATS(NAME, TYPE, BITS, EXPONENT, VANISHED, FRONT) \
    static int NAME##_finite(TYPE value) \
    { \
        BITS bits; \
        memcpy(&bits, &value, sizeof bits); \
        return (bits & EXPONENT) != EXPONENT; \
    } \
    /* As if all were finite; if one is not, or the squares overflow or vanish, this shows it, and nothing is added. */ \
    WIDE static int NAME##_plain(const TYPE *x, int rows, TYPE shift, Stats *out) \
    { \
        TYPE low[LANES], high[LANES], sum[LANES], squares[LANES]; \
        double total = 0, squared = 0; \
        for (size_t j = 0; j < LANES; j++) { \
            low[j] = high[j] = x[j]; \
            sum[j] = squares[j] = 0; \
        } \
        for (size_t i = 0; i < (size_t)rows; i++) \
            for (size_t j = 0; j < LANES; j++) { \
                TYPE v = x[i * LANES + j], far = v - shift; \
                low[j] = v < low[j] ? v : low[j]; \
                high[j] = v > high[j] ? v : high[j]; \
                sum[j] += far; \
                squares[j] += far * far; \
            } \
        for (size_t j = 0; j < LANES; j++) { \
            total += sum[j]; \
            squared += squares[j]; \
        } \
        if (!isfinite(squared) || squared < VANISHED) \
            return 0; \
        for (size_t j = 0; j < LANES; j++) { \
            out->low = low[j] < out->low ? low[j] : out->low; \
            out->high = high[j] > out->high ? high[j] : out->high; \
        } \
        out->sum += total; \
        out->squares += squared; \
        out->finite += (int64_t)rows * LANES; \
        return 1; \
    } \
    WIDE static void NAME##_block(const TYPE *x, int rows, TYPE shift, Stats *out) \
    { \
        TYPE low[LANES], high[LANES]; \
        double sum[LANES], squares[LANES]; \
        BITS finite[LANES]; \
        for (size_t j = 0; j < LANES; j++) { \
            low[j] = (TYPE)INFINITY; \
            high[j] = (TYPE)-INFINITY; \
            sum[j] = squares[j] = 0; \
            finite[j] = 0; \
        } \
        for (size_t i = 0; i < (size_t)rows; i++) \
            for (size_t j = 0; j < LANES; j++) { \
                TYPE v = x[i * LANES + j]; \
                BITS bits; \
                memcpy(&bits, &v, sizeof bits); \
                int good = (bits & EXPONENT) != EXPONENT; \
                TYPE small = good ? v : (TYPE)INFINITY, large = good ? v : (TYPE)-INFINITY; \
                double far = good ? (double)v - (double)shift : 0; \
                low[j] = small < low[j] ? small : low[j]; \
                high[j] = large > high[j] ? large : high[j]; \
                sum[j] += far; \
                squares[j] += far * far; \
                finite[j] += (BITS)good; \
            } \
        for (size_t j = 0; j < LANES; j++) { \
            out->low = low[j] < out->low ? low[j] : out->low; \
            out->high = high[j] > out->high ? high[j] : out->high; \
            out->sum += sum[j]; \
            out->squares += squares[j]; \
            out->finite += (int64_t)finite[j]; \
        } \
    } \
    static void NAME##_stats(const void *data, Py_ssize_t count, Stats *out) \
    { \
        const TYPE *x = data; \
        Py_ssize_t first = 0, i; \
        while (first < count && !NAME##_finite(x[first])) \
            first++; \
        TYPE shift = first < count ? x[first] : 0; \
        out->shift = shift; \
        i = FRONT(x, count, shift, out); \
        while (count - i >= LANES) { \
            Py_ssize_t rows = (count - i) / LANES; \
            rows = rows < ROWS ? rows : ROWS; \
            if (!NAME##_plain(x + i, (int)rows, shift, out)) \
                NAME##_block(x + i, (int)rows, shift, out); \
            i += rows * LANES; \
        } \
        for (; i < count; i++) \
            if (NAME##_finite(x[i])) { \
                double far = (double)x[i] - (double)shift; \
                out->low = x[i] < out->low ? x[i] : out->low; \
                out->high = x[i] > out->high ? x[i] : out->high; \
                out->sum += far; \
                out->squares += far * far; \
                out->finite++; \
            } \
    }

#define NO_FRONT(x, count, shift, out) 0

DEFINE_FLOATS(single, float, uint32_t, 0x7f800000u, TINY, by_hand)
DEFINE_FLOATS(twofold, double, uint64_t, 0x7ff0000000000000ull, 0.0, NO_FRONT)

/* ---- integers ---- */

#define DEFINE_INTEGERS(NAME, TYPE, LEAST, GREATEST) \
    WIDE static void NAME##_stats(const void *data, Py_ssize_t count, Stats *out) \
    { \
        const TYPE *x = data; \
        double shift = count ? (double)x[0] : 0.0, sum = 0.0, squares = 0.0; \
        TYPE low = GREATEST, high = LEAST; \
        Py_ssize_t i = 0; \
        for (; count - i >= LANES; i += LANES) { \
            double sums[LANES], products[LANES]; \
            for (size_t j = 0; j < LANES; j++) { \
                TYPE v = x[i + j]; \
                low = v < low ? v : low; \
                high = v > high ? v : high; \
            } \
            for (size_t j = 0; j < LANES; j++) { \
                double far = (double)x[i + j] - shift; \
                sums[j] = far; \
                products[j] = far * far; \
            } \
            for (size_t half = LANES / 2; half; half /= 2) \
                for (size_t j = 0; j < half; j++) { \
                    sums[j] += sums[j + half]; \
                    products[j] += products[j + half]; \
                } \
            sum += sums[0]; \
            squares += products[0]; \
        } \
        for (; i < count; i++) { \
            double far = (double)x[i] - shift; \
            low = x[i] < low ? x[i] : low; \
            high = x[i] > high ? x[i] : high; \
            sum += far; \
            squares += far * far; \
        } \
        out->least = (int64_t)low; \
        out->greatest = (int64_t)high; \
        out->most = (uint64_t)high; \
        out->low = (double)low; \
        out->shift = shift; \
        out->sum = sum; \
        out->squares = squares; \
        out->finite = count; \
    }

DEFINE_INTEGERS(int8, int8_t, INT8_MIN, INT8_MAX)
DEFINE_INTEGERS(uint8, uint8_t, 0, UINT8_MAX)
DEFINE_INTEGERS(int16, int16_t, INT16_MIN, INT16_MAX)
DEFINE_INTEGERS(uint16, uint16_t, 0, UINT16_MAX)
DEFINE_INTEGERS(int32, int32_t, INT32_MIN, INT32_MAX)
DEFINE_INTEGERS(uint32, uint32_t, 0, UINT32_MAX)
DEFINE_INTEGERS(int64, int64_t, INT64_MIN, INT64_MAX)
DEFINE_INTEGERS(uint64, uint64_t, 0, UINT64_MAX)

/* ---- the module ---- */

typedef struct {
    char code;
    size_t size;
    int kind; /* 0 floating point, 1 signed, 2 unsigned */
    void (*run)(const void *, Py_ssize_t, Stats *);
} Format;

static const Format formats[] = {
    {'f', 4, 0, single_stats}, {'d', 8, 0, twofold_stats}, {'b', 1, 1, int8_stats},   {'B', 1, 2, uint8_stats},
    {'?', 1, 2, uint8_stats},  {'h', 2, 1, int16_stats},   {'H', 2, 2, uint16_stats}, {'i', 4, 1, int32_stats},
    {'I', 4, 2, uint32_stats}, {'q', 8, 1, int64_stats},   {'Q', 8, 2, uint64_stats}, {0, 0, 0, NULL},
};

static PyObject *answer(const Format *format, const Stats *s, Py_ssize_t count)
{
    if (!s->finite)
        return Py_BuildValue("(OOOOn)", Py_None, Py_None, Py_None, Py_None, count);
    double n = (double)s->finite, away = s->sum / n, variance = s->squares / n - away * away;
    double mean = s->shift + away, std = sqrt(variance > 0 ? variance : 0);
    Py_ssize_t rest = count - (Py_ssize_t)s->finite;
    if (!isfinite(mean) || !isfinite(std)) /* beyond what doubles hold: not known */
        return Py_BuildValue("(ddOOn)", s->low, s->high, Py_None, Py_None, rest);
    if (format->kind == 1)
        return Py_BuildValue("(LLddn)", (long long)s->least, (long long)s->greatest, mean, std, rest);
    if (format->kind == 2)
        return Py_BuildValue("(KKddn)", (unsigned long long)(uint64_t)s->least, (unsigned long long)s->most, mean, std, rest);
    return Py_BuildValue("(ddddn)", s->low, s->high, mean, std, rest);
}

static PyObject *stats(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    const char *code;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "y*s#:stats", &view, &code, &length))
        return NULL;
    const Format *format = formats;
    while (format->code && !(length == 1 && format->code == code[0]))
        format++;
    PyObject *result = NULL;
    if (!format->code) {
        PyErr_Format(PyExc_ValueError, "unknown format: %s", code);
    } else if ((uintptr_t)view.buf % format->size || view.len % (Py_ssize_t)format->size) {
        PyErr_SetString(PyExc_ValueError, "the memory is not a whole number of aligned elements");
    } else {
        Stats s = {.low = INFINITY, .high = -INFINITY};
        Py_ssize_t count = view.len / (Py_ssize_t)format->size;
        Py_BEGIN_ALLOW_THREADS
        format->run(view.buf, count, &s);
        Py_END_ALLOW_THREADS
        result = answer(format, &s, count);
    }
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"stats", stats, METH_VARARGS, "(low, high, mean, std, nonfinite) of contiguous memory; the first four over finite values."},
    {NULL, NULL, 0, NULL},
};

int fill_stats(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
