/* What stands in the place of torch's own functions, and must cost next to nothing. `native/points.pyi` says what each part is for.

   Outermost: a function of torch of which only outermost calls matter. A call inside another one, or while torch itself is at work,
   is a call of the function, after a test of a bit and without a Python frame in between.

   FastPath: a Python frame that runs once in a step is never in a cache, and costs a microsecond or more; this does not. Whatever is not
   plain goes to the Python function.

   Block: the same for the block around a step of training. */
#include "shared/points.h"
#include "shared/tensor.h"

#include <string.h>

static PyTypeObject *outermost_type, *fast_path_type;
static PyObject *s_cpu, *s_groups, *s_item, *s_made_by, *s_rate, *s_training;
static _Thread_local uint64_t inside; /* the bits of the outermost calls that this thread is inside of */

static int in_backward(PyObject *task)
{
    PyObject *number = PyObject_CallNoArgs(task);
    int inside = !number || PyLong_AsLong(number) != -1 || PyErr_Occurred();
    Py_XDECREF(number);
    return inside;
}

/* Is torch compiling this code, or in the middle of a backward pass? What is not known counts as yes. `compiler`: its dict. */
static int torch_at_work(PyObject *compiler, PyObject *flag, PyObject *task)
{
    PyObject *compiling = PyDict_GetItemWithError(compiler, flag);
    int busy = compiling ? PyObject_IsTrue(compiling) : -1;
    if (busy == 0 && task != Py_None)
        busy = in_backward(task);
    if (busy)
        forget_error();
    return busy;
}

static PyObject *outermost_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Outermost *outermost = (Outermost *)self;
    int nested = (inside & outermost->bit) != 0;
    if (nested ? !outermost->replaced : torch_at_work(outermost->compiler, outermost->flag, outermost->task))
        return PyObject_Vectorcall(outermost->function, args, flags, names);
    PyObject *target = Py_NewRef(nested ? outermost->replaced : outermost->fast ? outermost->fast : outermost->subscribed);
    inside |= outermost->bit;
    PyObject *result = PyObject_Vectorcall(target, args, flags, names);
    inside &= nested ? ~(uint64_t)0 : ~outermost->bit;
    Py_DECREF(target);
    return result;
}

Outermost *outermost_made(vectorcallfunc vector, PyObject *function, PyObject *subscribed)
{
    Outermost *outermost = function_new(outermost_type, vector, OWNED(Outermost, task), function);
    if (outermost)
        outermost->subscribed = Py_NewRef(subscribed);
    return outermost;
}

static PyObject *outermost_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "compiler", "flag", "task", "number", NULL};
    PyObject *function, *compiler, *flag, *task;
    unsigned int number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!OOI:Outermost", names, &function, &PyDict_Type, &compiler, &flag, &task, &number))
        return NULL;
    if (number > 63)
        return PyErr_Format(PyExc_ValueError, "the number of a kind of outermost calls is 0 to 63, not %u", number);
    Outermost *outermost = outermost_made(outermost_call, function, function);
    if (!outermost)
        return NULL;
    outermost->compiler = Py_NewRef(compiler);
    outermost->flag = Py_NewRef(flag);
    outermost->task = Py_NewRef(task);
    outermost->bit = (uint64_t)1 << number;
    return (PyObject *)outermost;
}

/* The functions stay: an object may still be called while a circle that it is part of is taken apart. */
static int outermost_clear(PyObject *self)
{
    Py_CLEAR(((Outermost *)self)->dict);
    Py_CLEAR(((Outermost *)self)->fast);
    Py_CLEAR(((Outermost *)self)->replaced);
    return 0;
}

static PyObject *outermost_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%R, followed>", ((Outermost *)self)->function);
}

static PyObject *outermost_subscribe(PyObject *self, PyObject *subscribed)
{
    put_owned(&((Outermost *)self)->subscribed, Py_NewRef(subscribed));
    Py_RETURN_NONE;
}

static PyObject *outermost_fast_path(PyObject *self, PyObject *fast)
{
    put_owned(&((Outermost *)self)->fast, Py_XNewRef(unless_none(fast)));
    Py_RETURN_NONE;
}

static PyObject *outermost_replace(PyObject *self, PyObject *replaced)
{
    put_owned(&((Outermost *)self)->replaced, Py_XNewRef(unless_none(replaced)));
    Py_RETURN_NONE;
}

static PyMethodDef outermost_methods[] = {
    REDUCE,
    {"subscribe", outermost_subscribe, METH_O, "Set the function called for outermost calls."},
    {"fast_path", outermost_fast_path, METH_O, "Set the fast function called instead, or None."},
    {"replace", outermost_replace, METH_O, "Set the function called for inner calls; None for the function itself."},
    {NULL, NULL, 0, NULL},
};
static const PyType_Slot outermost_slots[] = {
    {Py_tp_new, outermost_new}, {Py_tp_clear, outermost_clear}, {Py_tp_repr, outermost_repr}, {Py_tp_methods, outermost_methods}, {0, NULL}};

/* ---- fast paths ---- */

int ready;
_Thread_local int muted;
static int passes;                       /* so it is with forward and backward passes: Python need not see each */
static PyObject *leader;                 /* a weak reference to the optimizer whose steps are plain; NULL: none */
static _Thread_local PyObject *stepping; /* the leader, while its step runs here; owned */

static inline PyObject *part(PyObject *self, int index)
{
    return ((FastPath *)self)->parts[index];
}

static PyObject *go_slow(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (interrupted())
        return NULL;
    return PyObject_Vectorcall(((FastPath *)self)->function, args, flags, names);
}

static int leads(PyObject *optimizer)
{
    return leader && PyWeakref_GetObject(leader) == optimizer;
}

/* Other functions are called for some modules. */
enum { CALLS, COMPILER, FLAG };
static const char *const replaced_names[] = {"calls", "compiler", "flag", NULL};

static PyObject *replaced_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    PyObject *address = args_in(flags) < 1 ? NULL : PyLong_FromVoidPtr(args[0]);
    PyObject *found = address ? PyDict_GetItemWithError(part(self, CALLS), address) : NULL;
    Py_XDECREF(address);
    if (!found)
        return go_slow(self, args, flags, names);
    Py_INCREF(found);
    int compiling = torch_at_work(part(self, COMPILER), part(self, FLAG), Py_None);
    PyObject *result = compiling == 0 ? PyObject_Vectorcall(found, args, flags, names) : go_slow(self, args, flags, names);
    Py_DECREF(found);
    return result;
}

enum { TIMED, GRADIENTS_ON, LOSSES, LEARNED_MODULES };
static const char *const forward_names[] = {"timed", "gradients", "losses", "learned", NULL};

/* Is this module a loss? Asking costs more than all the rest, and a program has a model and a loss: the answers are kept. */
static int is_loss(PyObject *self, PyObject *module)
{
    FastPath *fast = (FastPath *)self;
    PyObject *kind = (PyObject *)Py_TYPE(module);
    for (int i = 0; i < 2; i++)
        if (fast->kinds[i] == kind)
            return i;
    int loss = PyObject_IsInstance(module, part(self, LOSSES));
    if (loss < 0)
        return loss;
    put_owned(&fast->kinds[loss], Py_NewRef(kind));
    return loss;
}

#define TRAINING 1
#define GRADIENTS 2
#define LEARNED 8

/* What a call without gradients has in its bits: LEARNED too, if the module went forward in training and with gradients before. */
static int learned(PyObject *self, PyObject *module, int bits)
{
    FastPath *fast = (FastPath *)self;
    int without = (bits & ~TRAINING) == 0;
    if (!without && (bits != (TRAINING | GRADIENTS) || fast->last == (intptr_t)module))
        return bits;
    PyObject *address = PyLong_FromVoidPtr(module);
    if (address && without && PyDict_GetItemWithError(part(self, LEARNED_MODULES), address))
        bits |= LEARNED;
    else if (address && !without && PyDict_SetItem(part(self, LEARNED_MODULES), address, Py_None) == 0)
        fast->last = (intptr_t)module;
    Py_XDECREF(address);
    PyErr_Clear();
    return bits;
}

static PyObject *forward_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (!ready || !passes || muted || stepping || args_in(flags) < 1)
        return go_slow(self, args, flags, names);
    int training = truth_of(PyObject_GetAttr(args[0], s_training));
    int gradients = training < 0 ? -1 : truth_of(PyObject_CallNoArgs(part(self, GRADIENTS_ON)));
    int loss = gradients < 0 ? -1 : is_loss(self, args[0]);
    if (loss < 0)
        return go_slow(self, args, flags, names);
    int bits = learned(self, args[0], training | gradients << 1 | loss << 2);
    return PyObject_Vectorcall(PyTuple_GetItem(part(self, TIMED), bits), args, flags, names);
}

/* Reads the only number of a tensor where it lies: READABLE, OPAQUE or FREED. Not one at an odd place: it may be the imaginary part of a number
   whose conjugate is meant, and have the other sign. */
static int read_number(PyObject *tensor, double *number)
{
    View view;
    int dense;
    int seen = view_of(tensor, &view);
    if (seen != READABLE)
        return seen;
    if (view.device != CPU || view.code != FLOATING || view.lanes != 1 || !view.data || count_of(&view, &dense) != 1)
        return OPAQUE;
    const char *place = (const char *)view.data + view.offset;
    float single;
    if ((view.bits != 32 && view.bits != 64) || (uintptr_t)place % (view.bits / 4))
        return OPAQUE;
    if (view.bits == 64)
        memcpy(number, place, sizeof *number);
    else
        memcpy(&single, place, sizeof single);
    if (view.bits == 32)
        *number = single;
    return READABLE;
}

/* The loss, if it is a single number of the host; torch's `item` takes more time than all else that is done for a backward pass.
   NULL, perhaps with an error set: it is none. `elsewhere`: it is not on the host. */
static PyObject *loss_of(PyObject *tensor, int *elsewhere)
{
    double number;
    *elsewhere = 0;
    int seen = read_number(tensor, &number);
    if (seen != OPAQUE)
        return seen == FREED ? NULL : PyFloat_FromDouble(number);
    *elsewhere = truth_of(PyObject_GetAttr(tensor, s_cpu)) != 1;
    return *elsewhere ? NULL : PyObject_CallMethodObjArgs(tensor, s_item, NULL);
}

enum { PASS, TENSOR, WRITE, SPAN_OF_LOSS, UNUSUAL, SCALING };
static const char *const backward_names[] = {"timed", "tensor", "write", "span", "unusual", "scaling", NULL};

/* Was this loss scaled last, so that Python has to look at it? Asked once for each type of operation, as in `is_loss`. */
static int is_scaled(PyObject *self, PyObject *tensor)
{
    FastPath *fast = (FastPath *)self;
    PyObject *made_by = PyObject_GetAttr(tensor, s_made_by);
    PyObject *kind = made_by ? (PyObject *)Py_TYPE(made_by) : NULL;
    for (int i = 0; kind && i < 2; i++)
        if (fast->kinds[i] == kind) {
            Py_DECREF(made_by);
            return i;
        }
    PyObject *name = kind ? PyObject_GetAttrString(kind, "__name__") : NULL;
    int scaled = name ? PySequence_Contains(part(self, SCALING), name) : -1;
    Py_XDECREF(name);
    if (scaled >= 0)
        put_owned(&fast->kinds[scaled], Py_NewRef(kind));
    Py_XDECREF(made_by);
    return scaled;
}

static PyObject *backward_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (!ready || !passes || args_in(flags) < 1 || (PyObject *)Py_TYPE(args[0]) != part(self, TENSOR) || is_scaled(self, args[0]))
        return go_slow(self, args, flags, names);
    int elsewhere;
    PyObject *value = loss_of(args[0], &elsewhere);
    if (elsewhere)
        return go_slow(self, args, flags, names);
    PyObject *given[] = {NULL, part(self, SPAN_OF_LOSS), value};
    if (value)
        Py_XDECREF(PyObject_Vectorcall(part(self, WRITE), given + 1, 2 | OFFSET_BIT, NULL));
    Py_XDECREF(value);
    forget_error(); /* more than one number */
    PyObject *result = PyObject_Vectorcall(part(self, PASS), args, flags, names);
    if (!ready) {
        PyObject *kind, *error, *trace; /* of a pass that was left by an exception */
        PyErr_Fetch(&kind, &error, &trace);
        Py_XDECREF(PyObject_CallFunctionObjArgs(part(self, UNUSUAL), result ? Py_True : Py_False, NULL));
        forget_error();
        PyErr_Restore(kind, error, trace);
    }
    return result;
}

/* Both of steps of optimizers. CALLED: a list of what is called for the leader: at the begin, at the end, with the optimizer that has stepped,
   and after it (None: nothing). */
enum { STEP_COMPILER, STEP_FLAG, TASK, CALLED };
static const char *const step_names[] = {"compiler", "flag", "task", "called", NULL};

static PyObject *begins_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (stepping || args_in(flags) < 1 || !leads(args[0]) ||
        torch_at_work(part(self, STEP_COMPILER), part(self, STEP_FLAG), part(self, TASK)))
        return go_slow(self, args, flags, names);
    PyObject *started = PyObject_CallNoArgs(PyList_GetItem(part(self, CALLED), 0));
    if (!started)
        return go_slow(self, args, flags, names);
    Py_DECREF(started);
    stepping = Py_NewRef(args[0]);
    Py_RETURN_NONE;
}

static PyObject *ends_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (args_in(flags) < 1 || stepping != args[0] || !leads(args[0]))
        return go_slow(self, args, flags, names);
    Py_CLEAR(stepping);
    for (int i = 1; i < 4; i++) {
        PyObject *callback = PyList_GetItem(part(self, CALLED), i);
        if (callback != Py_None)
            Py_XDECREF(i == 2 ? PyObject_CallFunctionObjArgs(callback, args[0], NULL) : PyObject_CallNoArgs(callback));
        if (interrupted())
            return NULL;
    }
    Py_RETURN_NONE;
}

enum { SEEN, LISTENERS };
static const char *const stepped_names[] = {"seen", "listeners", NULL};

/* Is the rate of this group the number that was seen last? A tensor may have another value and be the same. */
static int same_rate(PyObject *group, PyObject *seen)
{
    if (!group || !PyDict_CheckExact(group))
        return 0;
    PyObject *rate = PyDict_GetItemWithError(group, s_rate);
    return rate == seen && PyFloat_CheckExact(rate);
}

/* Every rate of an optimizer is looked at after each of its steps, and hardly ever is one new. */
static int same_rates(PyObject *optimizer, PyObject *seen)
{
    Py_ssize_t count = PyList_Size(seen);
    PyObject *groups = count > 0 ? PyObject_GetAttr(optimizer, s_groups) : NULL;
    int same = groups && PyList_CheckExact(groups) && PyList_Size(groups) == count;
    for (Py_ssize_t i = 0; same && i < count; i++)
        same = same_rate(PyList_GetItem(groups, i), PyList_GetItem(seen, i));
    Py_XDECREF(groups);
    return same;
}

static PyObject *stepped_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (args_in(flags) == 1 && PyList_Size(part(self, LISTENERS)) == 0 && same_rates(args[0], part(self, SEEN)))
        Py_RETURN_NONE;
    return go_slow(self, args, flags, names);
}

enum { ADVANCE, END, PAUSE };
static const char *const ended_names[] = {"advance", "span", "pause", NULL};

/* The end of a step is written. The slow function is called too, but not more often than every `pause`. */
static PyObject *ended_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    FastPath *fast = (FastPath *)self;
    PyObject *given[] = {NULL, part(self, END)};
    Py_XDECREF(PyObject_Vectorcall(part(self, ADVANCE), given + 1, 1 | OFFSET_BIT, NULL));
    if (interrupted())
        return NULL;
    int64_t now = now_ns();
    if (now - fast->last < PyLong_AsLongLong(part(self, PAUSE)))
        Py_RETURN_NONE;
    fast->last = now;
    return PyObject_Vectorcall(fast->function, args, flags, names);
}

FastPath *fast_path_made(vectorcallfunc vector, PyObject *slow)
{
    return callable_new(fast_path_type, vector, OWNED(FastPath, kinds[1]), slow);
}

static PyObject *made(vectorcallfunc vector, const char *const *names, PyObject *args, PyObject *kwargs)
{
    PyObject *slow, *none = PyTuple_New(0);
    FastPath *fast = none && PyArg_ParseTuple(args, "O", &slow) ? fast_path_made(vector, slow) : NULL;
    if (fast && take_arguments(none, kwargs, names, fast->parts) < 0)
        Py_CLEAR(fast);
    Py_XDECREF(none);
    return (PyObject *)fast;
}

static const PyMemberDef fast_path_members[] = {
    {"__python_implementation__", T_OBJECT_EX, offsetof(FastPath, function), READONLY, "The Python equivalent, under the name that torch.compile looks up."},
    {NULL, 0, 0, 0, NULL},
};

/* ---- blocks ---- */

typedef struct {
    PyObject_HEAD
    PyObject *step; /* the number that was given; NULL: none */
    uint64_t begun; /* a bit for each entry, the newest is the lowest: is it a step, or a part of one? */
} Block;

enum { STATE, ENTER, LEAVE, SPAN, ENDED, ABORTED, SLOW_ENTER, SLOW_EXIT, BLOCK_PARTS };
static const char *const block_names[] = {"state", "enter", "leave", "span", "ended", "aborted", "slow_enter", "slow_exit", NULL};
static PyObject *blocks[BLOCK_PARTS]; /* NULL: a block does nothing */

static PyObject *block_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"model", "step", NULL};
    PyObject *model, *step = Py_None;
    if ((kwargs || PyTuple_Size(args) > 1) && !PyArg_ParseTupleAndKeywords(args, kwargs, "|O$O:trace_step", names, &model, &step))
        return NULL;
    Block *block = (Block *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (block)
        block->step = step == Py_None ? NULL : Py_NewRef(step);
    return (PyObject *)block;
}

static void block_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Block *)self)->step);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The state of blocks is the only item of a list. Py_False: outside of one; Py_True: inside. */
static int block_changes(PyObject *from, PyObject *to)
{
    PyObject *state = blocks[STATE];
    if (PyList_GetItem(state, 0) == from && PyList_SetItem(state, 0, Py_NewRef(to)) == 0)
        return 1;
    PyErr_Clear();
    return 0;
}

static void block_leaves(PyObject *kind)
{
    PyObject *given[] = {NULL, blocks[SPAN], Py_None, kind};
    Py_XDECREF(PyObject_Vectorcall(blocks[LEAVE], given + 1, 3 | OFFSET_BIT, NULL));
}

/* A block without a number, and not the first one, where all steps are recorded whole.
   1: begun; 0: the slow function has to; -1: what a handler of a signal has raised is set, and nothing is begun. */
static int block_enters(void)
{
    if (!block_changes(Py_False, Py_True))
        return 0;
    PyObject *given[] = {NULL, blocks[SPAN]};
    Py_XDECREF(PyObject_Vectorcall(blocks[ENTER], given + 1, 1 | OFFSET_BIT, NULL));
    if (!interrupted())
        return 1;
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    block_leaves(kind);
    forget_error();
    block_changes(Py_True, Py_False);
    PyErr_Restore(kind, value, trace);
    return -1;
}

static PyObject *block_enter(PyObject *self, PyObject *Py_UNUSED(none))
{
    Block *block = (Block *)self;
    int begun = ready && blocks[STATE] && !block->step ? block_enters() : 0;
    if (begun < 0)
        return NULL;
    if (!begun && blocks[STATE]) {
        begun = truth_of(PyObject_CallFunctionObjArgs(blocks[SLOW_ENTER], block->step ? block->step : Py_None, NULL));
        if (begun < 0)
            return NULL;
    }
    block->begun = block->begun << 1 | (uint64_t)begun;
    return Py_NewRef(self);
}

static PyObject *block_exit(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Block *block = (Block *)self;
    PyObject *kind = count > 0 ? args[0] : Py_None;
    int begun = (int)(block->begun & 1);
    block->begun >>= 1;
    if (!begun || !blocks[STATE])
        Py_RETURN_NONE;
    if (!ready || !block_changes(Py_True, Py_False))
        return PyObject_CallFunctionObjArgs(blocks[SLOW_EXIT], kind, NULL);
    block_leaves(kind);
    if (interrupted())
        return NULL;
    return PyObject_CallNoArgs(blocks[kind == Py_None ? ENDED : ABORTED]);
}

static PyMethodDef block_methods[] = {
    {"__enter__", block_enter, METH_NOARGS, "Begin the step."},
    {"__exit__", (PyCFunction)(void (*)(void))block_exit, METH_FASTCALL, "End the step."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef block_members[] = {
    {"_step", T_OBJECT, offsetof(Block, step), READONLY, "The given step number."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot block_slots[] = {
    {Py_tp_doc, "Block(model=None, *, step=None)\n--\n\nA step of training."},
    {Py_tp_new, block_new},
    {Py_tp_dealloc, block_dealloc},
    {Py_tp_methods, block_methods},
    {Py_tp_members, block_members},
    {0, NULL},
};
static PyType_Spec block_spec = {
    "sonde.native.points.Block", sizeof(Block), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, block_slots};

static PyObject *set_blocks(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    return take_arguments(args, kwargs, block_names, blocks) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- for Python ---- */

#define FAST_PATH(NAME, NAMES) \
    static PyObject *NAME(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) \
    { \
        return made(NAME##_call, NAMES, args, kwargs); \
    }
FAST_PATH(forward, forward_names)
FAST_PATH(backward, backward_names)
FAST_PATH(begins, step_names)
FAST_PATH(ends, step_names)
FAST_PATH(stepped, stepped_names)
FAST_PATH(ended, ended_names)
FAST_PATH(replaced, replaced_names)

static PyObject *set_exchange(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *capsule, *copied_late;
    if (!PyArg_ParseTuple(args, "OO", &capsule, &copied_late) || tensors_known(capsule, copied_late) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_ready(PyObject *Py_UNUSED(module), PyObject *on)
{
    ready = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *set_passes(PyObject *Py_UNUSED(module), PyObject *on)
{
    passes = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *set_muted(PyObject *Py_UNUSED(module), PyObject *on)
{
    muted = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *lead(PyObject *Py_UNUSED(module), PyObject *optimizer)
{
    PyObject *reference = optimizer == Py_None ? NULL : PyWeakref_NewRef(optimizer, NULL);
    if (optimizer != Py_None && !reference)
        return NULL;
    put_owned(&leader, reference);
    Py_RETURN_NONE;
}

static PyObject *take(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    PyObject *taken = stepping ? stepping : Py_NewRef(Py_None);
    stepping = NULL;
    return taken;
}

/* What gc calls: starts and stops the span of a generation. A Python function here could be interrupted, and what a signal handler
   then raises would be lost. */
static PyObject *collects(PyObject *spans, PyObject *args)
{
    PyObject *phase, *info;
    if (!PyArg_ParseTuple(args, "UO!", &phase, &PyDict_Type, &info))
        return NULL;
    PyObject *number = PyDict_GetItemString(info, "generation");
    long generation = number ? PyLong_AsLong(number) : 0;
    int begins = PyUnicode_CompareWithASCIIString(phase, "start") == 0;
    if (generation > 0 && generation < PyTuple_Size(spans)) /* those of 0 are short, and there may be thousands in a second */
        Py_XDECREF(PyObject_CallMethod(PyTuple_GetItem(spans, generation), begins ? "start" : "stop", NULL));
    forget_error();
    Py_RETURN_NONE;
}

static PyObject *collecting(PyObject *Py_UNUSED(module), PyObject *spans)
{
    static PyMethodDef made = {"collects", collects, METH_VARARGS, "Record a garbage collection."};
    return PyTuple_Check(spans) ? PyCFunction_New(&made, spans) : PyErr_Format(PyExc_TypeError, "spans must be a tuple");
}

#define NAMED(NAME) (PyCFunction)(void (*)(void))NAME, METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    {"collecting", collecting, METH_O, "A callback that records garbage collections, with a span for each generation."},
    {"forward", NAMED(forward), "The fast path for module calls."},
    {"backward", NAMED(backward), "The fast path for backward passes."},
    {"begins", NAMED(begins), "The fast path for the beginning of an optimizer step."},
    {"ends", NAMED(ends), "The fast path for the end of an optimizer step."},
    {"stepped", NAMED(stepped), "The fast path for reading an optimizer's learning rates after its step."},
    {"ended", NAMED(ended), "The fast path for the end of a training step."},
    {"replaced", NAMED(replaced), "A dispatcher that calls other functions for some modules."},
    {"blocks", NAMED(set_blocks), "Set what blocks do."},
    {"exchange", set_exchange, METH_VARARGS, "Set how tensor values are read; None for Python calls."},
    {"ready", set_ready, METH_O, "Set whether the plain case applies."},
    {"passes", set_passes, METH_O, "Set whether forward and backward passes may use the fast path."},
    {"mute", set_muted, METH_O, "Set whether module calls of this thread skip the fast path."},
    {"lead", lead, METH_O, "Set the optimizer whose steps are plain, or None."},
    {"take", take, METH_NOARGS, "Take the optimizer whose plain step runs in this thread, and end that plain step."},
    {NULL, NULL, 0, NULL},
};

int fill_points(PyObject *module)
{
    static const Name names[] = {{&s_cpu, "is_cpu"}, {&s_groups, "param_groups"}, {&s_item, "item"}, {&s_made_by, "grad_fn"},
                                 {&s_rate, "lr"}, {&s_training, "training"}, {NULL, NULL}};
    if (make_names(names) < 0 || PyModule_AddFunctions(module, functions) != 0)
        return -1;
    outermost_type = callable_type("sonde.native.points.Outermost", sizeof(Outermost), FUNCTION, NULL, outermost_slots);
    fast_path_type = callable_type("sonde.native.points.FastPath", sizeof(FastPath), PLAIN_CALL, fast_path_members, NULL);
    if (!outermost_type || !fast_path_type || !add_type(module, &block_spec))
        return -1;
    return PyModule_AddObjectRef(module, "Outermost", (PyObject *)outermost_type);
}
