/* Is this tensor finite? And the calls, gradients and backward passes of which that is asked. `native/finite.pyi` says what is what.

   A model has hundreds of layers, and each runs a few microseconds: so the good case, in which all is finite, is here, without
   a Python frame. Whatever is found is reported to Python, which decides what it means. `nonfinite/fallback.py` has plain hooks where this was not built. */
#include "shared/callable.h"
#include "shared/errors.h"
#include "shared/tensor.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3", "unroll-loops")))
#else
#define WIDE
#endif

#define BLOCK 1024
#define LARGE (1 << 16) /* elements; others may run meanwhile */
#define MOST_DIMS 16
#define MOST_VALUES 64 /* of one container, and how many in each other: as in nonfinite/check.py */
#define DEEPEST 4
#define CALM_PLACES 4 /* of so many in a row one is hooked: as in nonfinite/fallback.py */
#define INF 1
#define NAN_ 2
#define UNKNOWN (-1)
#define NO_GRADIENT (-2)

enum { OFF, ON, QUIET };

/* ---- memory ---- */

/* The greatest exponent is two instructions for each vector, a comparison is three; of 64 bits few machines know the greatest. */
#define GREATEST(BITS, EXPONENT) \
    BITS found = 0; \
    for (size_t i = 0; i < count; i++) { \
        BITS one = x[i] & EXPONENT; \
        found = found > one ? found : one; \
    } \
    return found == EXPONENT;
#define EQUAL(BITS, EXPONENT) \
    BITS found = 0; \
    for (size_t i = 0; i < count; i++) \
        found |= (BITS)((x[i] & EXPONENT) == EXPONENT); \
    return found != 0;

#define DEFINE_SCAN(NAME, BITS, EXPONENT, SIGN, SEARCH) \
    WIDE static int NAME##_any(const BITS *x, size_t count) \
    { \
        SEARCH(BITS, EXPONENT) \
    } \
    RARE static int NAME##_kinds(const BITS *x, int64_t count, int64_t step) \
    { \
        int found = 0; \
        for (int64_t i = 0; i < count && found != (INF | NAN_); i++) { \
            BITS one = x[i * step] & (BITS)~SIGN; \
            if (one >= EXPONENT) \
                found |= one == EXPONENT ? INF : NAN_; \
        } \
        return found; \
    } \
    static int NAME##_scan(const void *data, int64_t count, int64_t step) \
    { \
        const BITS *x = data; \
        if (step != 1) \
            return NAME##_kinds(x, count, step); \
        int found = 0; \
        for (int64_t i = 0; i < count && found != (INF | NAN_); i += BLOCK) { \
            int64_t size = count - i < BLOCK ? count - i : BLOCK; \
            if (NAME##_any(x + i, (size_t)size)) \
                found |= NAME##_kinds(x + i, size, 1); \
        } \
        return found; \
    }

DEFINE_SCAN(single, uint32_t, 0x7f800000u, 0x80000000u, GREATEST)
DEFINE_SCAN(twofold, uint64_t, 0x7ff0000000000000ull, 0x8000000000000000ull, EQUAL)
DEFINE_SCAN(half, uint16_t, 0x7c00u, 0x8000u, GREATEST)
DEFINE_SCAN(brain, uint16_t, 0x7f80u, 0x8000u, GREATEST)

typedef int (*Scan)(const void *, int64_t, int64_t);
static const struct {
    Scan scan;
    int size;
} formats[] = {{single_scan, 4}, {twofold_scan, 8}, {half_scan, 2}, {brain_scan, 2}};

static int strided(int format, const char *data, int dims, const int64_t *sizes, const int64_t *strides)
{
    int found = 0, size = formats[format].size;
    if (dims == 0)
        return formats[format].scan(data, 1, 1);
    if (dims == 1)
        return formats[format].scan(data, strides[0] ? sizes[0] : 1, strides[0] ? strides[0] : 1);
    int64_t count = strides[0] ? sizes[0] : 1; /* the same memory again and again */
    for (int64_t i = 0; i < count && found != (INF | NAN_); i++)
        found |= strided(format, data + i * strides[0] * size, dims - 1, sizes + 1, strides + 1);
    return found;
}

static int scan(int format, const void *data, int64_t count)
{
    int found;
    if (count < LARGE)
        return formats[format].scan(data, count, 1);
    Py_BEGIN_ALLOW_THREADS
    found = formats[format].scan(data, count, 1);
    Py_END_ALLOW_THREADS
    return found;
}

/* ---- tensors ---- */

enum { TENSOR, PARAMETER, EXCHANGE, COPIED_LATE, NUMBER, TRACING, FOUND, LOOK, OUTPUT, GRADIENT, LOSS, ENDED, LATER, BLAME, CALM, PARTS };
static const char *const part_names[] = {
    "tensor", "parameter", "exchange", "copied_late", "number", "tracing", "found", "look", "output", "gradient", "loss", "ended", "later",
    "blame", "calm", NULL};
static PyObject *parts[PARTS];
static PyObject *s_grad_fn, *s_grad, *s_output, *s_prehook, *s_requires_grad, *s_name;

static int is_tensor(PyObject *value)
{
    PyObject *type = (PyObject *)Py_TYPE(value);
    return type == parts[TENSOR] || type == parts[PARAMETER];
}

RARE static int look_apart(const View *view, int format, const char *data)
{
    int complex = view->code == COMPLEX;
    int64_t sizes[MOST_DIMS], strides[MOST_DIMS];
    for (int i = 0; i < view->dims; i++) {
        sizes[i] = view->shape[i];
        strides[i] = view->strides[i] * (complex ? 2 : 1);
    }
    sizes[view->dims] = complex ? 2 : 1;
    strides[view->dims] = 1;
    int found;
    Py_BEGIN_ALLOW_THREADS
    found = strided(format, data, view->dims + complex, sizes, strides);
    Py_END_ALLOW_THREADS
    return found;
}

static int look_at_view(const View *view)
{
    int complex = view->code == COMPLEX, bits = complex ? view->bits / 2 : view->bits;
    int format = view->code == BRAIN ? 3 : bits == 32 ? 0 : bits == 64 ? 1 : bits == 16 ? 2 : -1;
    if (view->code != FLOATING && view->code != BRAIN && !complex)
        return 0;
    if (format < 0 || view->lanes != 1 || view->device != CPU || view->dims >= MOST_DIMS)
        return UNKNOWN;
    int dense;
    int64_t count = count_of(view, &dense);
    if (count == 0)
        return 0;
    if (!view->data)
        return UNKNOWN;
    const char *data = (const char *)view->data + view->offset;
    if (dense || is_filled(view->dims, view->shape, view->strides))
        return scan(format, data, complex ? 2 * count : count);
    return look_apart(view, format, data);
}

/* Bits of what is in it; UNKNOWN: not of a kind that can be read here. Never an exception. */
static int look(PyObject *tensor)
{
    View view;
    int seen = view_of(tensor, &view);
    return seen == READABLE ? look_at_view(&view) : seen == FREED ? 0 : UNKNOWN;
}

/* Our failure, if there was one, never the program's: Python counts it, and switches the watch off. */
RARE static void blame(void)
{
    blame_on(parts[BLAME]);
}

RARE static int look_slowly(PyObject *tensor)
{
    int found = (int)number_of(PyObject_CallFunctionObjArgs(parts[LOOK], tensor, NULL));
    blame();
    return found > 0 ? found : 0;
}

/* The same with Python's help. */
static int look_well(PyObject *tensor)
{
    int found = is_tensor(tensor) ? look(tensor) : UNKNOWN;
    return found != UNKNOWN ? found : look_slowly(tensor);
}

/* What Python answers: None, or an exception that the program shall get. Returns 0, or -1 with that exception set. */
RARE static int answered(PyObject *owned)
{
    if (!owned) {
        blame();
        return 0;
    }
    int none = owned == Py_None;
    if (!none)
        PyErr_SetObject((PyObject *)Py_TYPE(owned), owned);
    Py_DECREF(owned);
    return none ? 0 : -1;
}

/* ---- calls ---- */

typedef struct {
    CALLABLE_HEAD
    PyObject *layer;
    PyObject *outs, *ins; /* tuples of hooks, by the number of an output */
    PyObject *hooks;      /* a tuple of dicts: while all are empty, it makes of finite numbers only such; NULL: that is not known */
    int64_t first, end;   /* how far autograd had counted when its last call as a layer began and ended */
    int own;              /* code of the program: its gradients are looked at on both sides */
} Call;

typedef struct {
    CALLABLE_HEAD
    PyObject *layer;
    int side;   /* 0: what comes to the result; 1: what was given to the input */
    int output; /* the number of the tensor among those that its node made */
} Hook;

static PyTypeObject *call_type, *hook_type;
static int mode;
static int suspected;      /* Python wants to know of the end of a backward pass */
static int bad_gradient;   /* one was reported in this pass */
static Hook *good;         /* the last hook whose gradient was finite; owned */
static PyObject *weights;  /* a list of weak references to parameters */
static PyObject *passed;   /* what the backward pass that began last began with, while it runs; owned */

/* A call that has begun. Greenlets end calls in any order: one that has ended is freed when all that began after it have ended too. */
typedef struct Frame {
    struct Frame *outer;
    PyObject *layer, *given; /* owned; NULL once it has ended. `given`: the first argument */
    int parted;              /* a module was called in it */
    int ended;
} Frame;

typedef struct {
    Frame *top;
    PyObject *last;       /* the layer that ended last; owned */
    PyObject *last_given; /* its result, or the first of it, if that was finite; only compared */
    int64_t last_end;     /* how far autograd had counted then */
    int last_made;        /* it made nodes of autograd's graph: whatever changes its result is counted */
    int in_pass;
    unsigned calm; /* places behind a single harmless operation, since the batch came */
} Thread;
static _Thread_local Thread mine;

typedef struct {
    int64_t first;
    int adjacent, changed, parted;
    int steady; /* its input is finite, so its result is */
} Situation;

static int64_t counted(void)
{
    int64_t number = number_of(PyObject_CallNoArgs(parts[NUMBER]));
    blame();
    return number;
}

/* Are gradients of this tensor computed? */
static int is_tracked(PyObject *tensor)
{
    int tracked = truth_of(PyObject_GetAttr(tensor, s_requires_grad)) == 1;
    forget_error();
    return tracked;
}

/* Is this the very tensor that the last layer gave, which was finite, and has autograd counted nothing since? What it tracks was made
   then, and not at the same address since, and whatever changes it is counted: so it is finite still. */
static int is_known(const Thread *thread, PyObject *value)
{
    return value == thread->last_given && is_tensor(value) && thread->last_made && counted() == thread->last_end && is_tracked(value);
}

/* The first argument of the outermost call. */
RARE static PyObject *root_of(const Frame *frame)
{
    PyObject *found = NULL;
    for (; frame; frame = frame->outer)
        found = frame->ended ? found : frame->given;
    return found;
}

RARE static int report_output(Call *call, PyObject *result, PyObject *const *args, size_t flags, PyObject *names, int bits, Situation *at)
{
    Py_ssize_t count = args_in(flags), named = names ? PyTuple_Size(names) : 0;
    PyObject *given = PyTuple_New(count + named);
    if (!given) {
        blame();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count + named; i++)
        PyTuple_SetItem(given, i, Py_NewRef(args[i]));
    PyObject *situation = Py_BuildValue("(OOLLiiiO)", or_none(mine.top ? mine.top->layer : NULL), or_none(mine.last), (long long)mine.last_end,
                                        (long long)at->first, at->adjacent, at->changed, at->parted, or_none(root_of(mine.top)));
    PyObject *number = PyLong_FromLong(bits);
    PyObject *answer = situation && number ? PyObject_CallFunctionObjArgs(parts[OUTPUT], call->layer, result, given, or_none(names),
                                                                          number, situation, NULL)
                                           : NULL;
    Py_DECREF(given);
    Py_XDECREF(situation);
    Py_XDECREF(number);
    return answered(answer);
}

/* Does the backward pass through this node make nothing of a finite gradient that is not finite? */
static int is_calm(PyObject *node)
{
    PyObject *name = PyObject_CallMethodObjArgs(node, s_name, NULL);
    int calm = name && PySet_Contains(parts[CALM], name) == 1;
    Py_XDECREF(name);
    forget_error();
    return calm;
}

/* Puts the hook on the node that made this tensor; `alone`: it is the only one since the last layer. */
static int hook_node(PyObject *tensor, PyObject *hooks, int alone)
{
    PyObject *node = PyObject_GetAttr(tensor, s_grad_fn);
    if (!node || node == Py_None || (alone && is_calm(node) && mine.calm++ % CALM_PLACES)) {
        Py_XDECREF(node);
        return node ? 0 : -1;
    }
    int64_t output = number_of(PyObject_GetAttr(tensor, s_output));
    int result = PyErr_Occurred() ? -1 : 0;
    if (result == 0 && output < PyTuple_Size(hooks))
        result = done(PyObject_CallMethodObjArgs(node, s_prehook, PyTuple_GetItem(hooks, output), NULL));
    Py_DECREF(node);
    return result;
}

static void leaf_ended(Thread *thread, Call *call, PyObject *tensors, PyObject *result, PyObject *given, Situation *at, int bits)
{
    int ok = 0;
    if (!call->own)
        ok = 0; /* what it does to a gradient is known to be harmless, and its parameters tell the rest */
    else if (tensors)
        for (Py_ssize_t i = 0; ok == 0 && i < PyTuple_Size(tensors); i++)
            ok = is_tensor(PyTuple_GetItem(tensors, i)) ? hook_node(PyTuple_GetItem(tensors, i), call->outs, 0) : 0;
    else
        ok = hook_node(result, call->outs, 0);
    if (ok == 0 && (call->own || !at->adjacent) && !at->changed && given && is_tensor(given))
        ok = hook_node(given, call->ins, !call->own && at->first - thread->last_end == 1);
    if (ok < 0)
        blame();
    put_owned(&thread->last, Py_NewRef(call->layer));
    thread->last_given = bits ? NULL : !tensors ? result : PyTuple_Size(tensors) ? PyTuple_GetItem(tensors, 0) : NULL;
    thread->last_end = counted();
    thread->last_made = thread->last_end != at->first;
    call->first = at->first;
    call->end = thread->last_end;
}

/* A new reference to a tuple of the tensors in a result that is none itself; of plain tuples without a call of Python. */
static PyObject *tensors_of(PyObject *result)
{
    int plain = PyTuple_CheckExact(result);
    for (Py_ssize_t i = 0; plain && i < PyTuple_Size(result); i++)
        plain = is_tensor(PyTuple_GetItem(result, i)) || PyTuple_GetItem(result, i) == Py_None;
    return plain ? Py_NewRef(result) : PyObject_CallFunctionObjArgs(parts[FOUND], result, NULL);
}

/* Does it make of finite numbers only such, and has nobody hooked it? */
static int is_steady(const Call *call)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(call->hooks); i++)
        if (PyDict_Size(PyTuple_GetItem(call->hooks, i)))
            return 0;
    return 1;
}

/* The call has ended: returns 0, or -1 with an exception that the program shall get. */
static int check_output(Thread *thread, Call *call, PyObject *result, PyObject *const *args, size_t flags, PyObject *names, Situation *at)
{
    PyObject *given = args_in(flags) > 1 ? args[1] : NULL;
    PyObject *tensors = NULL;
    int bits = 0;
    if (is_tensor(result)) {
        int known = at->parted ? is_known(thread, result) : at->steady;
        bits = known ? 0 : look_well(result);
    } else {
        tensors = tensors_of(result);
        if (!tensors || !PyTuple_Check(tensors)) {
            blame();
            Py_XDECREF(tensors);
            return 0;
        }
        for (Py_ssize_t i = 0; i < PyTuple_Size(tensors); i++)
            if (PyTuple_GetItem(tensors, i) != Py_None)
                bits |= look_well(PyTuple_GetItem(tensors, i));
    }
    /* Its input is what the last layer gave, which was finite then: if it is not now, this call has changed it. */
    at->changed = given && (given == result || (bits && at->adjacent && is_tensor(given) && look_well(given)));
    int reported = bits ? report_output(call, result, args, flags, names, bits, at) : 0;
    if (reported == 0 && !at->parted)
        leaf_ended(thread, call, tensors, result, given, at, bits);
    Py_XDECREF(tensors);
    return reported;
}

static Frame *frame_begun(Thread *thread, PyObject *layer, PyObject *given)
{
    Frame *frame = PyMem_Calloc(1, sizeof *frame);
    if (!frame)
        return NULL;
    *frame = (Frame){thread->top, Py_NewRef(layer), Py_XNewRef(given), 0, 0};
    if (thread->top)
        thread->top->parted = 1;
    return thread->top = frame;
}

/* Returns whether a module was called in it. */
static int frame_ended(Thread *thread, Frame *frame)
{
    PyObject *layer = frame->layer, *given = frame->given;
    int parted = frame->parted;
    frame->layer = frame->given = NULL;
    frame->ended = 1;
    while (thread->top && thread->top->ended) {
        Frame *done = thread->top;
        thread->top = done->outer;
        PyMem_Free(done);
    }
    Py_DECREF(layer); /* freeing may run any code */
    Py_XDECREF(given);
    return parted;
}

static int is_traced(void)
{
    PyObject *tracing = PyObject_CallNoArgs(parts[TRACING]);
    Py_XDECREF(tracing);
    forget_error();
    return tracing != Py_None;
}

static PyObject *call_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Call *call = (Call *)self;
    Thread *thread = &mine;
    PyObject *given = args_in(flags) > 1 ? args[1] : NULL;
    if (mode != ON || (!thread->top && is_traced())) /* what is asked of a tensor would be traced */
        return PyObject_Vectorcall(call->function, args, flags, names);
    Situation at = {counted(), 0, 0, 0, 0};
    at.adjacent = given && given == thread->last_given && at.first == thread->last_end;
    at.steady = at.adjacent && call->hooks && is_known(thread, given) && is_steady(call);
    Frame *frame = frame_begun(thread, call->layer, given);
    if (!frame)
        return PyObject_Vectorcall(call->function, args, flags, names);
    Py_INCREF(self);
    PyObject *result = PyObject_Vectorcall(call->function, args, flags, names);
    at.parted = frame_ended(thread, frame);
    if (result && mode == ON && check_output(thread, call, result, args, flags, names, &at) < 0)
        Py_CLEAR(result);
    Py_DECREF(self);
    return result;
}

/* ---- backward ---- */

/* Gets the gradients of all that its node made. */
static PyObject *hook_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Hook *hook = (Hook *)self;
    (void)names;
    if (mode != ON || bad_gradient || args_in(flags) < 1 || !PyTuple_Check(args[0]) || hook->output >= PyTuple_Size(args[0]))
        Py_RETURN_NONE;
    PyObject *gradient = PyTuple_GetItem(args[0], hook->output);
    if (gradient == Py_None)
        Py_RETURN_NONE;
    int bits = look_well(gradient);
    if (!bits) {
        put_owned((PyObject **)&good, Py_NewRef(self));
        Py_RETURN_NONE;
    }
    bad_gradient = 1;
    PyObject *answer = PyObject_CallFunction(parts[GRADIENT], "OiOiOi", hook->layer, hook->side, gradient, bits,
                                             good ? good->layer : Py_None, good ? good->side : 0);
    if (answered(answer) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The bits of the gradient of a parameter; or that it has none. */
static int look_at_gradient(PyObject *weight)
{
    PyObject *gradient = PyObject_GetAttr(weight, s_grad);
    int bits = gradient && gradient != Py_None ? look_well(gradient) : NO_GRADIENT;
    Py_XDECREF(gradient);
    forget_error();
    return bits;
}

/* Which of the parameters has a gradient that is not finite; -1: none; `seen`: how many have one. */
static Py_ssize_t bad_weight(int *bits, long *seen)
{
    Py_ssize_t count = weights ? PyList_Size(weights) : 0;
    for (Py_ssize_t i = 0; i < count && i < PyList_Size(weights); i++) {
        PyObject *weight = Py_XNewRef(PyWeakref_GetObject(PyList_GetItem(weights, i)));
        int found = weight && weight != Py_None ? look_at_gradient(weight) : NO_GRADIENT;
        *seen += found != NO_GRADIENT;
        *bits = found == NO_GRADIENT ? 0 : found;
        Py_XDECREF(weight);
        forget_error();
        if (*bits)
            return i;
    }
    return -1;
}

/* What comes now comes after no layer. */
static void forget_last(void)
{
    Py_CLEAR(mine.last);
    mine.last_given = NULL;
    mine.last_end = 0;
    mine.calm = 0;
}

static int pass_begins(PyObject *loss)
{
    if (mode == OFF || !loss)
        return 0;
    int bits = is_known(&mine, loss) ? 0 : look_well(loss);
    bad_gradient = 0;
    Py_CLEAR(good);
    if (mode == QUIET) {
        Py_XDECREF(PyObject_CallFunction(parts[LATER], "i", bits));
        blame();
        return 0;
    }
    return bits ? answered(PyObject_CallFunction(parts[LOSS], "Oi", loss, bits)) : 0;
}

static int pass_ended(void)
{
    int bits = 0;
    long seen = 0;
    if (mode != ON)
        return 0;
    Py_ssize_t index = bad_weight(&bits, &seen);
    if (index < 0 && !bad_gradient && !suspected)
        return 0;
    return answered(PyObject_CallFunction(parts[ENDED], "nil", index, bits, seen));
}

static PyObject *pass_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    PyObject *original = ((Call *)self)->function;
    if (mode == OFF || mine.in_pass)
        return PyObject_Vectorcall(original, args, flags, names);
    if (pass_begins(args_in(flags) > 0 ? args[0] : NULL) < 0)
        return NULL;
    mine.in_pass = 1;
    PyObject *loss = args_in(flags) > 0 ? Py_NewRef(args[0]) : NULL;
    put_owned(&passed, Py_XNewRef(loss));
    PyObject *result = PyObject_Vectorcall(original, args, flags, names);
    mine.in_pass = 0;
    if (result && pass_ended() < 0)
        Py_CLEAR(result);
    forget_last();
    if (passed == loss) /* and not that of another thread */
        Py_CLEAR(passed);
    Py_XDECREF(loss);
    return result;
}

/* ---- batches ---- */

static int bits_of_number(double value)
{
    return isnan(value) ? NAN_ : isinf(value) ? INF : 0;
}

/* As `look_into` of nonfinite/check.py, of plain containers; UNKNOWN: something that Python has to look at. */
static int look_into(PyObject *value, int deeper)
{
    if (PyFloat_CheckExact(value))
        return bits_of_number(PyFloat_AsDouble(value));
    if (PyLong_CheckExact(value) || PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyBool_Check(value) ||
        value == Py_None)
        return 0;
    if (parts[TENSOR] && is_tensor(value))
        return look(value);
    if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value) && !PyDict_CheckExact(value))
        return UNKNOWN;
    if (deeper == 0)
        return 0;
    int found = 0; /* others may run while a large tensor is read: each part is held */
    PyObject *held = PyDict_CheckExact(value) ? PyDict_Values(value) : Py_NewRef(value);
    for (Py_ssize_t i = 0; held && found != UNKNOWN && i < MOST_VALUES; i++) {
        if (i >= length_of(held))
            break;
        PyObject *one = Py_NewRef(item_of(held, i));
        int bits = look_into(one, deeper - 1);
        found = bits == UNKNOWN ? UNKNOWN : found | bits;
        Py_DECREF(one);
    }
    Py_XDECREF(held);
    PyErr_Clear();
    return found;
}

/* ---- the types ---- */

static const PyMemberDef call_members[] = {
    {"first", T_LONGLONG, offsetof(Call, first), READONLY, "Lowest number of a node of its last call."},
    {"end", T_LONGLONG, offsetof(Call, end), READONLY, "One more than the highest such number."},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *call_made(vectorcallfunc vector, PyObject *layer, PyObject *original, PyObject *outs, PyObject *ins)
{
    Call *call = callable_new(call_type, vector, OWNED(Call, hooks), original);
    if (call) {
        call->layer = Py_XNewRef(layer);
        call->outs = Py_XNewRef(outs);
        call->ins = Py_XNewRef(ins);
    }
    return (PyObject *)call;
}

/* ---- for Python ---- */

static PyObject *watched(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *layer, *original, *outs, *ins, *hooks;
    int own;
    if (!PyArg_ParseTuple(args, "OOO!O!pO", &layer, &original, &PyTuple_Type, &outs, &PyTuple_Type, &ins, &own, &hooks))
        return NULL;
    Call *call = (Call *)call_made(call_call, layer, original, outs, ins);
    if (call) {
        call->own = own;
        call->hooks = PyTuple_Check(hooks) ? Py_NewRef(hooks) : NULL;
    }
    return (PyObject *)call;
}

static PyObject *passing(PyObject *Py_UNUSED(module), PyObject *original)
{
    return call_made(pass_call, NULL, original, NULL, NULL);
}

static PyObject *hook(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *layer;
    int side, output;
    if (!PyArg_ParseTuple(args, "Oii", &layer, &side, &output))
        return NULL;
    Hook *made = callable_new(hook_type, hook_call, OWNED(Hook, layer), NULL);
    if (made) {
        made->layer = Py_NewRef(layer);
        made->side = side;
        made->output = output;
    }
    return (PyObject *)made;
}

static PyObject *look_at(PyObject *Py_UNUSED(module), PyObject *tensor)
{
    return PyLong_FromLong(parts[TENSOR] && is_tensor(tensor) ? look(tensor) : UNKNOWN);
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    int taken = take_arguments(args, kwargs, part_names, parts);
    return taken < 0 || tensors_known(parts[EXCHANGE], parts[COPIED_LATE]) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *turn(PyObject *Py_UNUSED(module), PyObject *number)
{
    long value = PyLong_AsLong(number);
    if (PyErr_Occurred())
        return NULL;
    mode = parts[TENSOR] ? (int)value : OFF;
    Py_CLEAR(good);
    forget_last();
    bad_gradient = suspected = 0;
    Py_RETURN_NONE;
}

static PyObject *renew(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    forget_last();
    Py_RETURN_NONE;
}

static PyObject *suspect(PyObject *Py_UNUSED(module), PyObject *on)
{
    suspected = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *weigh(PyObject *Py_UNUSED(module), PyObject *list)
{
    put_owned(&weights, PyList_Check(list) ? Py_NewRef(list) : NULL);
    Py_RETURN_NONE;
}

static PyObject *at(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("(OOLO)", or_none(mine.top ? mine.top->layer : NULL), or_none(mine.last), (long long)mine.last_end, or_none(passed));
}

static PyObject *look_in(PyObject *Py_UNUSED(module), PyObject *value)
{
    return PyLong_FromLong(look_into(value, DEEPEST));
}

static PyMethodDef functions[] = {
    {"look", look_at, METH_O, "Bits: 1 infinity, 2 NaN; -1 if it cannot be read here."},
    {"look_into", look_in, METH_O, "The same for plain containers of tensors and numbers."},
    {"watched", watched, METH_VARARGS, "The function that replaces `original` for a layer."},
    {"passing", passing, METH_O, "The function that replaces the backward pass."},
    {"hook", hook, METH_VARARGS, "A gradient hook: layer, 0 for its result or 1 for its input, output of the node."},
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Set the parts of torch and of the watch to use."},
    {"turn", turn, METH_O, "0: off, 1: on, 2: losses only."},
    {"renew", renew, METH_NOARGS, "Forget the last layer."},
    {"suspect", suspect, METH_O, "Set whether the end of each backward pass is reported."},
    {"weigh", weigh, METH_O, "Set the list of weak references to parameters."},
    {"at", at, METH_NOARGS, "The open layers and the last one seen."},
    {NULL, NULL, 0, NULL},
};

int fill_finite(PyObject *module)
{
    static const Name names[] = {{&s_grad_fn, "grad_fn"}, {&s_grad, "grad"}, {&s_output, "output_nr"}, {&s_prehook, "register_prehook"},
                                 {&s_requires_grad, "requires_grad"}, {&s_name, "name"}, {NULL, NULL}};
    call_type = callable_type("sonde.native.finite.Call", sizeof(Call), PLAIN_CALL, call_members, NULL);
    hook_type = callable_type("sonde.native.finite.Hook", sizeof(Hook), PLAIN_CALL, NULL, NULL);
    return !call_type || !hook_type || make_names(names) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
