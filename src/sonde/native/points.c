/* What stands in the way of torch's own calls, and must cost next to nothing. `native/points.pyi` says what each part is for.

   Gate: a function of torch of which only outermost calls matter. A call inside another one, or while torch itself is at work,
   is a call of the function, after a test of a bit and without a Python frame in between.

   Lane: the quick way of a probe past its own Python function, for the plain case. A Python frame that runs once in a step is
   never in a cache, and costs a microsecond or more; this does not. Whatever is not plain goes to the Python function.

   Block: the same for the block around a step of training. `native/loader.h` has such ways for the batches of loaders. */
#include "blame.h"
#include "ledger.h"
#include "tensor.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *told;  /* called for outermost calls */
    PyObject *quick; /* called instead, if there is one; may be NULL */
    PyObject *inner; /* called in the place of the function for calls inside another one, if there is one; may be NULL */
    PyObject *compiler; /* the dict of torch.compiler, which has a flag that says whether it reads this code */
    PyObject *flag;
    PyObject *task;
    PyObject *dict;
    PyObject *weak;
    vectorcallfunc call;
    uint64_t bit;
} Gate;

static PyTypeObject *gate_type;
static PyObject *method_type;
static _Thread_local uint64_t inside; /* the bits of the gates that this thread is inside of */

static int in_backward(PyObject *task)
{
    PyObject *number = PyObject_CallNoArgs(task);
    int inside = !number || PyLong_AsLong(number) != -1 || PyErr_Occurred();
    Py_XDECREF(number);
    return inside;
}

/* Is torch compiling this code, or in the middle of a backward pass? What cannot be told counts as yes. `compiler`: its dict. */
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

static PyObject *gate_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Gate *gate = (Gate *)self;
    if (inside & gate->bit) {
        if (!gate->inner)
            return PyObject_Vectorcall(gate->function, args, flags, names);
        PyObject *inner = Py_NewRef(gate->inner);
        PyObject *result = PyObject_Vectorcall(inner, args, flags, names);
        Py_DECREF(inner);
        return result;
    }
    if (torch_at_work(gate->compiler, gate->flag, gate->task))
        return PyObject_Vectorcall(gate->function, args, flags, names);
    PyObject *target = Py_NewRef(gate->quick ? gate->quick : gate->told);
    inside |= gate->bit;
    PyObject *result = PyObject_Vectorcall(target, args, flags, names);
    inside &= ~gate->bit;
    Py_DECREF(target);
    return result;
}

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "compiler", "flag", "task", "number", NULL};
    PyObject *function, *compiler, *flag, *task;
    unsigned int number;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO!OOI:Gate", names, &function, &PyDict_Type, &compiler, &flag, &task, &number))
        return NULL;
    if (number > 63)
        return PyErr_Format(PyExc_ValueError, "there can be 64 kinds of gates, and %u is no number of one", number);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Gate *gate = (Gate *)allocate(type, 0);
    if (!gate)
        return NULL;
    gate->function = Py_NewRef(function);
    gate->told = Py_NewRef(function);
    gate->compiler = Py_NewRef(compiler);
    gate->flag = Py_NewRef(flag);
    gate->task = Py_NewRef(task);
    gate->call = gate_call;
    gate->bit = (uint64_t)1 << number;
    gate->dict = PyDict_New();
    if (!gate->dict)
        Py_CLEAR(gate);
    return (PyObject *)gate;
}

static int gate_traverse(PyObject *self, visitproc visit, void *arg)
{
    Gate *gate = (Gate *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(gate->function);
    Py_VISIT(gate->told);
    Py_VISIT(gate->quick);
    Py_VISIT(gate->inner);
    Py_VISIT(gate->compiler);
    Py_VISIT(gate->flag);
    Py_VISIT(gate->task);
    Py_VISIT(gate->dict);
    return 0;
}

/* The functions stay: a gate may still be called while a circle that it is part of is taken apart. */
static int gate_clear(PyObject *self)
{
    Py_CLEAR(((Gate *)self)->dict);
    Py_CLEAR(((Gate *)self)->quick);
    Py_CLEAR(((Gate *)self)->inner);
    return 0;
}

static void gate_dealloc(PyObject *self)
{
    Gate *gate = (Gate *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (gate->weak)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(gate->function);
    Py_XDECREF(gate->told);
    Py_XDECREF(gate->quick);
    Py_XDECREF(gate->inner);
    Py_XDECREF(gate->compiler);
    Py_XDECREF(gate->flag);
    Py_XDECREF(gate->task);
    Py_XDECREF(gate->dict);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *gate_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

static PyObject *gate_getattr(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(((Gate *)self)->function, name);
}

static PyObject *gate_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%R, followed>", ((Gate *)self)->function);
}

/* Pickled, and so copied, by name, as functions are. */
static PyObject *gate_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyObject *gate_tell(PyObject *self, PyObject *told)
{
    Gate *gate = (Gate *)self;
    PyObject *old = gate->told;
    gate->told = Py_NewRef(told);
    Py_DECREF(old);
    Py_RETURN_NONE;
}

static PyObject *gate_route(PyObject *self, PyObject *quick)
{
    Gate *gate = (Gate *)self;
    PyObject *old = gate->quick;
    gate->quick = quick == Py_None ? NULL : Py_NewRef(quick);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *gate_reach(PyObject *self, PyObject *inner)
{
    Gate *gate = (Gate *)self;
    PyObject *old = gate->inner;
    gate->inner = inner == Py_None ? NULL : Py_NewRef(inner);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyMethodDef gate_methods[] = {
    {"__reduce__", gate_reduce, METH_NOARGS, "By name."},
    {"tell", gate_tell, METH_O, "Say which function is called for outermost calls."},
    {"route", gate_route, METH_O, "Say which function is called instead; None: none."},
    {"reach", gate_reach, METH_O, "Say which function is called for calls inside others; None: the function itself."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef gate_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Gate, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Gate, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Gate, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef gate_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_new, gate_new},
    {Py_tp_dealloc, gate_dealloc},
    {Py_tp_traverse, gate_traverse},
    {Py_tp_clear, gate_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, gate_get},
    {Py_tp_getattro, gate_getattr},
    {Py_tp_repr, gate_repr},
    {Py_tp_methods, gate_methods},
    {Py_tp_members, gate_members},
    {Py_tp_getset, gate_getset},
    {0, NULL},
};
static PyType_Spec gate_spec = {
    "sonde.native.points.Gate", sizeof(Gate), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, gate_slots};

/* ---- lanes ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *slow;  /* the Python function that does the same, and all the rest */
    PyObject *parts; /* a tuple; what it holds depends on the kind */
    PyObject *kinds[2]; /* the types seen last: no loss, and a loss; of operations: one that does not scale, and one that does; may be NULL */
    struct Route *routes; /* of modules that are followed: those that were called last; may be NULL */
    int64_t last;         /* the time of the last call; of forwards, the address of the module that learned last */
} Lane;

/* What is called for a module, as long as nothing is changed. */
typedef struct Route {
    PyObject *module; /* only compared */
    PyObject *found;  /* owned; NULL: none */
} Route;
#define ROUTES 32
static uint64_t rerouted = 1; /* how often something was changed */

static PyTypeObject *lane_type;
static int passes;                       /* so it is with forward and backward passes: Python need not see each */
static int ready;                        /* the plain case is at hand: training goes on, and nothing unusual was seen */
static PyObject *leader;                 /* a weak reference to the optimizer whose steps are plain; NULL: none */
static _Thread_local PyObject *stepping; /* the leader, while its step runs here; owned */
static _Thread_local int muted;          /* modules that are called here go the slow way */

static inline PyObject *part(PyObject *lane, Py_ssize_t index)
{
    return PyTuple_GetItem(((Lane *)lane)->parts, index);
}

static PyObject *go_slow(PyObject *lane, PyObject *const *args, size_t flags, PyObject *names)
{
    if (interrupted())
        return NULL;
    return PyObject_Vectorcall(((Lane *)lane)->slow, args, flags, names);
}

static int leads(PyObject *optimizer)
{
    return leader && PyWeakref_GetObject(leader) == optimizer;
}

static int truth_of(PyObject *owned)
{
    int truth = owned ? PyObject_IsTrue(owned) : -1;
    Py_XDECREF(owned);
    return truth;
}

static void routes_cleared(Lane *lane)
{
    for (int i = 0; lane->routes && i < ROUTES; i++)
        Py_CLEAR(lane->routes[i].found);
}

/* What is called for this module; borrowed. NULL, perhaps with an exception: nothing is known of it. */
static PyObject *route_of(Lane *lane, PyObject *module)
{
    if (lane->last != (int64_t)rerouted)
        routes_cleared(lane);
    lane->last = (int64_t)rerouted;
    uintptr_t place = (uintptr_t)module;
    Route *route = lane->routes ? &lane->routes[(place >> 4 ^ place >> 9) % ROUTES] : NULL;
    if (route && route->found && route->module == module)
        return route->found;
    PyObject *address = PyLong_FromVoidPtr(module);
    PyObject *found = address ? PyDict_GetItemWithError(part((PyObject *)lane, 0), address) : NULL;
    Py_XDECREF(address);
    if (found && route) {
        PyObject *old = route->found;
        *route = (Route){module, Py_NewRef(found)};
        Py_XDECREF(old);
    }
    return found;
}

/* parts: a dict of functions by the address of what they are called for, the dict of torch.compiler, the name of its flag */
static PyObject *followed_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    PyObject *found = (flags & ~OFFSET_BIT) < 1 ? NULL : route_of((Lane *)self, args[0]);
    if (!found)
        return go_slow(self, args, flags, names);
    Py_INCREF(found);
    int compiling = torch_at_work(part(self, 1), part(self, 2), Py_None);
    PyObject *result = compiling == 0 ? PyObject_Vectorcall(found, args, flags, names) : go_slow(self, args, flags, names);
    Py_DECREF(found);
    return result;
}

/* Is this module a loss? Asking costs more than all the rest, and a program has a model and a loss: the answers are kept. */
static int is_loss(PyObject *self, PyObject *module)
{
    Lane *lane = (Lane *)self;
    PyObject *kind = (PyObject *)Py_TYPE(module);
    for (int i = 0; i < 2; i++)
        if (lane->kinds[i] == kind)
            return i;
    int loss = PyObject_IsInstance(module, part(self, 2));
    if (loss < 0)
        return loss;
    PyObject *old = lane->kinds[loss];
    lane->kinds[loss] = Py_NewRef(kind);
    Py_XDECREF(old);
    return loss;
}

#define TRAINING 1
#define GRADIENTS 2
#define LEARNED 8

/* What a call without gradients has in its bits: LEARNED too, if the module went forward in training and with gradients before. */
static int learned(PyObject *self, PyObject *module, int bits)
{
    Lane *lane = (Lane *)self;
    int without = (bits & ~TRAINING) == 0;
    if (!without && (bits != (TRAINING | GRADIENTS) || lane->last == (intptr_t)module))
        return bits;
    PyObject *address = PyLong_FromVoidPtr(module);
    if (address && without && PyDict_GetItemWithError(part(self, 4), address))
        bits |= LEARNED;
    else if (address && !without && PyDict_SetItem(part(self, 4), address, Py_None) == 0)
        lane->last = (intptr_t)module;
    Py_XDECREF(address);
    PyErr_Clear();
    return bits;
}

/* parts: ten functions by their bits, the test of gradients, the class of losses, "training", a dict with the addresses of modules */
static PyObject *forward_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (!ready || !passes || muted || stepping || (flags & ~OFFSET_BIT) < 1)
        return go_slow(self, args, flags, names);
    int training = truth_of(PyObject_GetAttr(args[0], part(self, 3)));
    int gradients = training < 0 ? -1 : truth_of(PyObject_CallNoArgs(part(self, 1)));
    int loss = gradients < 0 ? -1 : is_loss(self, args[0]);
    if (loss < 0)
        return go_slow(self, args, flags, names);
    int bits = learned(self, args[0], training | gradients << 1 | loss << 2);
    return PyObject_Vectorcall(PyTuple_GetItem(part(self, 0), bits), args, flags, names);
}

static PyObject *s_cpu, *s_item, *s_made_by;

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

/* Was this loss scaled last, so that Python has to look at it? Asked once for each type of operation, as in `is_loss`. */
static int is_scaled(PyObject *self, PyObject *tensor)
{
    Lane *lane = (Lane *)self;
    PyObject *made_by = PyObject_GetAttr(tensor, s_made_by);
    PyObject *kind = made_by ? (PyObject *)Py_TYPE(made_by) : NULL;
    for (int i = 0; kind && i < 2; i++)
        if (lane->kinds[i] == kind) {
            Py_DECREF(made_by);
            return i;
        }
    PyObject *name = kind ? PyObject_GetAttrString(kind, "__name__") : NULL;
    int scaled = name ? PySequence_Contains(part(self, 5), name) : -1;
    Py_XDECREF(name);
    if (scaled >= 0) {
        PyObject *old = lane->kinds[scaled];
        lane->kinds[scaled] = Py_NewRef(kind);
        Py_XDECREF(old);
    }
    Py_XDECREF(made_by);
    return scaled;
}

/* parts: the function, the class of tensors, what writes the loss, its span, what comes after an unusual pass,
   the names of operations that scale */
static PyObject *backward_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (!ready || !passes || (flags & ~OFFSET_BIT) < 1 || (PyObject *)Py_TYPE(args[0]) != part(self, 1) || is_scaled(self, args[0]))
        return go_slow(self, args, flags, names);
    int elsewhere;
    PyObject *value = loss_of(args[0], &elsewhere);
    if (elsewhere)
        return go_slow(self, args, flags, names);
    PyObject *given[] = {NULL, part(self, 3), value};
    if (value)
        Py_XDECREF(PyObject_Vectorcall(part(self, 2), given + 1, 2 | OFFSET_BIT, NULL));
    Py_XDECREF(value);
    forget_error(); /* more than one number */
    PyObject *result = PyObject_Vectorcall(part(self, 0), args, flags, names);
    if (!ready) {
        PyObject *kind, *error, *trace; /* of a pass that was left by an exception */
        PyErr_Fetch(&kind, &error, &trace);
        Py_XDECREF(PyObject_CallFunctionObjArgs(part(self, 4), result ? Py_True : Py_False, NULL));
        forget_error();
        PyErr_Restore(kind, error, trace);
    }
    return result;
}

/* parts of both: the backward pass that is under way, the dict of torch.compiler, the name of its flag, the list of start, stop, ended */
static PyObject *begins_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (stepping || (flags & ~OFFSET_BIT) < 1 || !leads(args[0]) ||
        torch_at_work(part(self, 1), part(self, 2), part(self, 0)))
        return go_slow(self, args, flags, names);
    PyObject *started = PyObject_CallNoArgs(PyList_GetItem(part(self, 3), 0));
    if (!started)
        return go_slow(self, args, flags, names);
    Py_DECREF(started);
    stepping = Py_NewRef(args[0]);
    Py_RETURN_NONE;
}

static PyObject *ends_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if ((flags & ~OFFSET_BIT) < 1 || stepping != args[0] || !leads(args[0]))
        return go_slow(self, args, flags, names);
    Py_CLEAR(stepping);
    for (int i = 1; i < 3; i++) {
        PyObject *told = PyList_GetItem(part(self, 3), i);
        if (told != Py_None)
            Py_XDECREF(PyObject_CallNoArgs(told));
        if (interrupted())
            return NULL;
    }
    Py_RETURN_NONE;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* parts: what writes the end of a step, its span. The slow function is called too, but not more often than every `pause`. */
static PyObject *ended_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Lane *lane = (Lane *)self;
    PyObject *given[] = {NULL, part(self, 1)};
    Py_XDECREF(PyObject_Vectorcall(part(self, 0), given + 1, 1 | OFFSET_BIT, NULL));
    if (interrupted())
        return NULL;
    int64_t now = now_ns();
    if (now - lane->last < PyLong_AsLongLong(part(self, 2)))
        Py_RETURN_NONE;
    lane->last = now;
    return PyObject_Vectorcall(lane->slow, args, flags, names);
}

static Lane *lane_new(vectorcallfunc call, PyObject *slow, PyObject *parts)
{
    Lane *lane = PyObject_GC_New(Lane, lane_type);
    if (!lane)
        return NULL;
    lane->call = call;
    lane->slow = Py_NewRef(slow);
    lane->parts = Py_NewRef(parts);
    lane->kinds[0] = lane->kinds[1] = NULL;
    lane->routes = NULL;
    lane->last = 0;
    PyObject_GC_Track(lane);
    return lane;
}

static PyObject *lane_made(vectorcallfunc call, Py_ssize_t size, PyObject *args)
{
    PyObject *slow, *parts;
    if (!PyArg_ParseTuple(args, "OO!", &slow, &PyTuple_Type, &parts))
        return NULL;
    if (PyTuple_Size(parts) != size)
        return PyErr_Format(PyExc_ValueError, "this lane has %zd parts", size);
    return (PyObject *)lane_new(call, slow, parts);
}

static int lane_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Lane *)self)->slow);
    Py_VISIT(((Lane *)self)->parts);
    Py_VISIT(((Lane *)self)->kinds[0]);
    Py_VISIT(((Lane *)self)->kinds[1]);
    for (int i = 0; ((Lane *)self)->routes && i < ROUTES; i++)
        Py_VISIT(((Lane *)self)->routes[i].found);
    return 0;
}

static int lane_clear(PyObject *self)
{
    routes_cleared((Lane *)self);
    return 0;
}

static void lane_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(((Lane *)self)->slow);
    Py_XDECREF(((Lane *)self)->parts);
    Py_XDECREF(((Lane *)self)->kinds[0]);
    Py_XDECREF(((Lane *)self)->kinds[1]);
    routes_cleared((Lane *)self);
    PyMem_Free(((Lane *)self)->routes);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef lane_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Lane, call), READONLY, NULL},
    {"__wrapped__", T_OBJECT_EX, offsetof(Lane, slow), READONLY, "The Python function that does the same."},
    {"__python_implementation__", T_OBJECT_EX, offsetof(Lane, slow), READONLY, "The same, where torch.compile looks for it."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot lane_slots[] = {
    {Py_tp_dealloc, lane_dealloc},
    {Py_tp_traverse, lane_traverse},
    {Py_tp_clear, lane_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_members, lane_members},
    {0, NULL},
};
static PyType_Spec lane_spec = {
    "sonde.native.points.Lane", sizeof(Lane), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION, lane_slots};

/* ---- blocks ---- */

typedef struct {
    PyObject_HEAD
    PyObject *step; /* the number that was given; NULL: none */
    uint64_t begun; /* a bit for each entry, the newest is the lowest: is it a step, or a part of one? */
} Block;

enum { STATE, ENTER, LEAVE, SPAN, ENDED, ABORTED, SLOW_ENTER, SLOW_EXIT, BLOCK_PARTS };

static PyTypeObject *block_type;
static PyObject *block_parts; /* a tuple; NULL: every block goes the slow way */

static inline PyObject *block_part(Py_ssize_t index)
{
    return PyTuple_GetItem(block_parts, index);
}

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
    PyObject *state = block_part(STATE);
    if (PyList_GetItem(state, 0) == from && PyList_SetItem(state, 0, Py_NewRef(to)) == 0)
        return 1;
    PyErr_Clear();
    return 0;
}

static void block_leaves(PyObject *kind)
{
    PyObject *given[] = {NULL, block_part(SPAN), Py_None, kind};
    Py_XDECREF(PyObject_Vectorcall(block_part(LEAVE), given + 1, 3 | OFFSET_BIT, NULL));
}

/* A block without a number, and not the first one, where all steps are recorded whole.
   1: begun; 0: the slow way; -1: what a handler of a signal has raised is set, and nothing is begun. */
static int block_enters(void)
{
    if (!block_changes(Py_False, Py_True))
        return 0;
    PyObject *given[] = {NULL, block_part(SPAN)};
    Py_XDECREF(PyObject_Vectorcall(block_part(ENTER), given + 1, 1 | OFFSET_BIT, NULL));
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
    int begun = ready && block_parts && !block->step ? block_enters() : 0;
    if (begun < 0)
        return NULL;
    if (!begun && block_parts) {
        begun = truth_of(PyObject_CallFunctionObjArgs(block_part(SLOW_ENTER), block->step ? block->step : Py_None, NULL));
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
    if (!begun || !block_parts)
        Py_RETURN_NONE;
    if (!ready || !block_changes(Py_True, Py_False))
        return PyObject_CallFunctionObjArgs(block_part(SLOW_EXIT), kind, NULL);
    block_leaves(kind);
    if (interrupted())
        return NULL;
    return PyObject_CallNoArgs(block_part(kind == Py_None ? ENDED : ABORTED));
}

static PyMethodDef block_methods[] = {
    {"__enter__", block_enter, METH_NOARGS, "The step begins."},
    {"__exit__", (PyCFunction)(void (*)(void))block_exit, METH_FASTCALL, "The step has ended."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef block_members[] = {
    {"_step", T_OBJECT, offsetof(Block, step), READONLY, "The number that was given."},
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

static PyObject *set_blocks(PyObject *Py_UNUSED(module), PyObject *parts)
{
    if (!PyTuple_Check(parts) || PyTuple_Size(parts) != BLOCK_PARTS || !PyList_Check(PyTuple_GetItem(parts, STATE)))
        return PyErr_Format(PyExc_ValueError, "blocks have %d parts", BLOCK_PARTS);
    Py_XDECREF(block_parts);
    block_parts = Py_NewRef(parts);
    Py_RETURN_NONE;
}

#include "loader.h"

/* ---- the module ---- */

static PyObject *forward(PyObject *Py_UNUSED(module), PyObject *args) { return lane_made(forward_call, 5, args); }
static PyObject *backward(PyObject *Py_UNUSED(module), PyObject *args) { return lane_made(backward_call, 6, args); }
static PyObject *begins(PyObject *Py_UNUSED(module), PyObject *args) { return lane_made(begins_call, 4, args); }
static PyObject *ends(PyObject *Py_UNUSED(module), PyObject *args) { return lane_made(ends_call, 4, args); }
static PyObject *ended(PyObject *Py_UNUSED(module), PyObject *args) { return lane_made(ended_call, 3, args); }

static PyObject *followed(PyObject *Py_UNUSED(module), PyObject *args)
{
    Lane *lane = (Lane *)lane_made(followed_call, 3, args);
    if (lane && !PyDict_CheckExact(part((PyObject *)lane, 0))) /* one that tells of its changes; without memory there is no memory of it */
        lane->routes = PyMem_Calloc(ROUTES, sizeof(Route));
    return (PyObject *)lane;
}

static PyObject *reroute(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    rerouted++;
    Py_RETURN_NONE;
}

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
    PyObject *old = leader, *made = optimizer == Py_None ? NULL : PyWeakref_NewRef(optimizer, NULL);
    if (optimizer != Py_None && !made)
        return NULL;
    leader = made;
    Py_XDECREF(old);
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
    static PyMethodDef made = {"collects", collects, METH_VARARGS, "Record a collection of garbage."};
    return PyTuple_Check(spans) ? PyCFunction_New(&made, spans) : PyErr_Format(PyExc_TypeError, "spans are given as a tuple");
}

static PyMethodDef functions[] = {
    {"collecting", collecting, METH_O, "What records collections of garbage, with a span for each generation."},
    {"forward", forward, METH_VARARGS, "A lane for calls of modules."},
    {"backward", backward, METH_VARARGS, "A lane for backward passes."},
    {"begins", begins, METH_VARARGS, "A lane for the begin of an optimizer's step."},
    {"ends", ends, METH_VARARGS, "A lane for its end."},
    {"ended", ended, METH_VARARGS, "A lane for the end of a step of training."},
    {"followed", followed, METH_VARARGS, "A lane that calls other functions for some modules."},
    {"reroute", reroute, METH_VARARGS, "Say that what is called for some module has changed."},
    {"way", way, METH_VARARGS, "What stands in the place of a function of a loader: its name, the function, the slow way."},
    {"batches", set_batches, METH_O, "Say what happens where batches are made and come; None: the slow ways are taken."},
    {"forget", forget, METH_NOARGS, "Judge every iterator anew: a loop over data has begun."},
    {"waiting", get_waiting, METH_NOARGS, "Is a plain batch waited for in this thread?"},
    {"coming", get_coming, METH_NOARGS, "The plain batch that is waited for in this thread; None: none, or it is not known yet."},
    {"fetching", get_fetching, METH_NOARGS, "Who makes a plain batch in this thread, and what it was asked for; None: nobody."},
    {"blocks", set_blocks, METH_O, "Say what blocks do."},
    {"exchange", set_exchange, METH_VARARGS, "Say how numbers of tensors are read; None: by asking."},
    {"ready", set_ready, METH_O, "Say whether the plain case is at hand."},
    {"passes", set_passes, METH_O, "Say whether forward and backward passes may go the quick way."},
    {"mute", set_muted, METH_O, "Say whether modules that are called in this thread go the slow way."},
    {"lead", lead, METH_O, "Say which optimizer's steps are plain; None: no one's."},
    {"take", take, METH_NOARGS, "The optimizer whose plain step runs in this thread, which is a plain one no more."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "sonde.native.points", "Quick ways through functions of torch.", -1, functions,
    NULL, NULL, NULL, NULL};

static int make_names(void)
{
    s_cpu = PyUnicode_InternFromString("is_cpu");
    s_item = s_cpu ? PyUnicode_InternFromString("item") : NULL;
    s_made_by = s_item ? PyUnicode_InternFromString("grad_fn") : NULL;
    return s_made_by && ledger_names() == 0 && loader_names() == 0 ? 0 : -1;
}

PyMODINIT_FUNC PyInit_points(void)
{
    if (make_names() < 0)
        return NULL;
    PyObject *types = PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    gate_type = method_type ? (PyTypeObject *)PyType_FromSpec(&gate_spec) : NULL;
    lane_type = gate_type ? (PyTypeObject *)PyType_FromSpec(&lane_spec) : NULL;
    block_type = lane_type ? (PyTypeObject *)PyType_FromSpec(&block_spec) : NULL;
    PyObject *module = block_type && make_items_type() == 0 ? PyModule_Create(&module_def) : NULL;
    if (module && PyModule_AddObjectRef(module, "Gate", (PyObject *)gate_type) != 0)
        Py_CLEAR(module);
    if (module && PyModule_AddObjectRef(module, "Block", (PyObject *)block_type) != 0)
        Py_CLEAR(module);
    return module;
}
