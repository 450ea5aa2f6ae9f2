/* Calls of layers, and the backward passes through them. `native/layers.pyi` says what is what, `probes/layers/backward.py` how it works.

   A model has hundreds of layers, and each runs a few microseconds: Python frames of ours in between, four or five for each
   way, would be a tenth of it. What is not plain (a result that is no tensor, a search in the graph) is asked of Python. */
#include "shared/callable.h"
#include "shared/errors.h"

#define MOST_HOPS 64

typedef struct {
    CALLABLE_HEAD
    PyObject *layer;
    PyObject *forward, *backward; /* spans; may be NULL */
    int measured, gradients, tentative, reported;
    int start, hops, offset; /* where the lowest node is, if hops >= 0 */
    uint8_t hop[MOST_HOPS];
} Call;

typedef struct Passage {
    CALLABLE_HEAD
    Call *call;
    struct Passage *above; /* the call of a layer that this one was made in */
    struct Passage *outer; /* the call that had begun before; owned by the chain of `top` */
    struct Passage *under; /* while a backward pass is in it: the one that was entered before */
    uint64_t first;        /* nodes of this call have this number, or a higher one */
    int64_t size;          /* bytes of gradients; -1: not known */
    int parted, cancelled, open, ended;
    int loose;             /* an operation in place may take the node of its result out of the graph */
} Passage;

enum { ENTER, LEAVE, CANCEL, NUMBER, TASK, QUEUE, PHASES, TENSOR, FOUND, SEARCH, DEMOTE, DESCRIBE, BLAME, ENDED, PARTS };
static const char *const part_names[] = {"enter", "leave", "cancel", "number", "task", "queue", "phases", "tensor", "found", "search",
                                         "demote", "describe", "blame", NULL};
static PyObject *parts[PARTS];

static PyTypeObject *call_type, *passage_type;
static PyObject *s_on, *s_nbytes, *s_base, *s_grad_fn, *s_sequence, *s_prehook, *s_hook, *s_next, *s_begins;

static _Thread_local int off;             /* what is called now is not recorded */
static _Thread_local Passage *top;        /* the call that began last of those that run; owned, and so is each `outer` */
static _Thread_local Passage *opened;     /* the innermost one that a backward pass is in; owned */
static _Thread_local long task;           /* which pass that is */
static _Thread_local uint64_t last_end;   /* how far autograd had counted when the last layer was done */
static _Thread_local void *last_result;   /* the address of what that gave */

/* Our failure, if there was one, never the program's: Python counts it, and switches the probe off. */
static void blame(void)
{
    blame_on(parts[BLAME]);
}

static int unsigned_of(PyObject *owned, uint64_t *number)
{
    *number = owned ? PyLong_AsUnsignedLongLong(owned) : 0;
    return done(owned) < 0 || PyErr_Occurred() ? -1 : 0;
}

static int leave(PyObject *span, int64_t size, PyObject *error)
{
    PyObject *key = size < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(size);
    if (!key)
        return -1;
    int result = done(PyObject_CallFunctionObjArgs(parts[LEAVE], span, key, or_none(error), NULL));
    Py_DECREF(key);
    return result;
}

/* Those that cannot say (nested and sparse ones) are not known: -1. */
static int64_t nbytes(PyObject *tensor)
{
    int64_t found = number_at(tensor, s_nbytes);
    forget_error();
    return found;
}

/* ---- backward passes ---- */

static int close_top(PyObject *error)
{
    Passage *passage = opened;
    opened = passage->under;
    passage->under = NULL;
    int result = leave(passage->call->backward, passage->size, error);
    passage->open = 0;
    passage->size = -1;
    Py_DECREF(passage);
    return result;
}

static int finish_pass(PyObject *error)
{
    while (opened)
        if (close_top(error) < 0)
            return -1;
    return 0;
}

/* What an earlier pass left open ended at an unknown time: it is dropped. */
static int begin_pass(long now)
{
    while (opened) {
        Passage *left = opened;
        opened = left->under;
        left->under = NULL;
        left->open = 0;
        left->size = -1;
        int result = done(PyObject_CallFunctionObjArgs(parts[CANCEL], left->call->backward, NULL));
        Py_DECREF(left);
        if (result < 0)
            return -1;
    }
    task = now;
    return done(PyObject_CallFunctionObjArgs(parts[QUEUE], parts[ENDED], NULL));
}

static int lies_in(Passage *passage, Passage *other)
{
    while (passage && passage != other)
        passage = passage->above;
    return passage != NULL;
}

static int enter_passage(Passage *passage)
{
    while (opened && !lies_in(passage->above, opened))
        if (close_top(NULL) < 0)
            return -1;
    if (passage->above && !passage->above->open && passage->above->call->backward && enter_passage(passage->above) < 0)
        return -1;
    if (done(PyObject_CallFunctionObjArgs(parts[ENTER], passage->call->backward, NULL)) < 0)
        return -1;
    passage->open = 1;
    passage->under = opened;
    opened = (Passage *)Py_NewRef((PyObject *)passage);
    return 0;
}

static int enters(Passage *passage, PyObject *gradients)
{
    if (!passage->open) {
        long now = (long)number_of(PyObject_CallNoArgs(parts[TASK]));
        if (PyErr_Occurred() || ((!opened || now != task) && begin_pass(now) < 0) || enter_passage(passage) < 0)
            return -1;
    }
    if (!passage->call->gradients || !PyTuple_Check(gradients))
        return 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(gradients); i++) {
        PyObject *gradient = PyTuple_GetItem(gradients, i);
        int64_t size = gradient == Py_None ? -1 : nbytes(gradient);
        if (size >= 0)
            passage->size = (passage->size < 0 ? 0 : passage->size) + size;
    }
    return 0;
}

static int leaves(Passage *passage)
{
    Passage *one = opened;
    while (one && one != passage)
        one = one->under;
    if (!one)
        return 0;
    uint64_t first = passage->first;
    while (opened && (passage->open || opened->first == first))
        if (close_top(NULL) < 0)
            return -1;
    return 0;
}

/* As a hook before a node it gets what comes in, as one after a node also what goes out. */
static PyObject *passage_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Py_ssize_t count = args_in(flags);
    (void)names;
    if ((count == 1 ? enters((Passage *)self, args[0]) : leaves((Passage *)self)) < 0)
        blame();
    Py_RETURN_NONE;
}

/* As a hook before a node behind the result: what comes in there was counted, or is not what came to the result. */
static PyObject *passage_begins(PyObject *self, PyObject *Py_UNUSED(gradients))
{
    if (enters((Passage *)self, Py_None) < 0)
        blame();
    Py_RETURN_NONE;
}

static Passage *passage_new(Call *call, uint64_t first)
{
    Passage *passage = callable_new(passage_type, passage_call, OWNED(Passage, above), NULL);
    if (passage) {
        passage->call = (Call *)Py_NewRef((PyObject *)call);
        passage->first = first;
        passage->size = -1;
    }
    return passage;
}

static PyMethodDef passage_methods[] = {
    {"begins", passage_begins, METH_O, "The backward pass has reached the node of the result."},
    {NULL, NULL, 0, NULL},
};
static const PyType_Slot passage_slots[] = {{Py_tp_methods, passage_methods}, {0, NULL}};

/* ---- the lowest node ---- */

static int sequence_of(PyObject *node, uint64_t *number)
{
    return unsigned_of(PyObject_CallMethodObjArgs(node, s_sequence, NULL), number);
}

/* A new reference: the node at the end of the way that the last call took, if that still is the one; NULL: no, or an error. */
static PyObject *by_hops(Call *call, PyObject *nodes, uint64_t first)
{
    if (call->hops < 0 || call->start >= PyList_Size(nodes))
        return NULL;
    PyObject *node = Py_NewRef(PyList_GetItem(nodes, call->start));
    for (int i = 0; i < call->hops; i++) {
        PyObject *following = PyObject_GetAttr(node, s_next);
        PyObject *pair = following && call->hop[i] < PyTuple_Size(following) ? PyTuple_GetItem(following, call->hop[i]) : NULL;
        PyObject *next = pair ? PyTuple_GetItem(pair, 0) : NULL;
        Py_DECREF(node);
        node = next && next != Py_None ? Py_NewRef(next) : NULL;
        Py_XDECREF(following);
        if (!node)
            return NULL;
    }
    uint64_t number;
    if (sequence_of(node, &number) == 0 && number == first + (uint64_t)call->offset)
        return node;
    Py_DECREF(node);
    return NULL;
}

/* Python searches; it gives the node and the way to it, or None. */
static PyObject *by_search(Call *call, PyObject *nodes, uint64_t first, PyObject *given)
{
    PyObject *number = PyLong_FromUnsignedLongLong(first);
    PyObject *found = number ? PyObject_CallFunctionObjArgs(parts[SEARCH], nodes, number, or_none(given), NULL) : NULL;
    Py_XDECREF(number);
    call->hops = -1;
    if (!found || !PyTuple_Check(found))
        return found;
    PyObject *hops = PyTuple_GetItem(found, 2);
    Py_ssize_t count = PyTuple_Size(hops);
    call->start = (int)PyLong_AsLong(PyTuple_GetItem(found, 1));
    call->offset = (int)PyLong_AsLong(PyTuple_GetItem(found, 3));
    int fits = count <= MOST_HOPS;
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        long hop = PyLong_AsLong(PyTuple_GetItem(hops, i));
        fits = hop >= 0 && hop < 256;
        call->hop[i] = (uint8_t)hop;
    }
    call->hops = fits ? (int)count : -1;
    PyObject *node = Py_NewRef(PyTuple_GetItem(found, 0));
    Py_DECREF(found);
    return node;
}

static int hook_lowest(Passage *passage, PyObject *nodes, PyObject *given)
{
    PyObject *node = by_hops(passage->call, nodes, passage->first);
    if (!node) {
        forget_error();
        node = by_search(passage->call, nodes, passage->first, given);
    }
    if (!node)
        return -1;
    int result = node == Py_None ? 0 : done(PyObject_CallMethodObjArgs(node, s_hook, (PyObject *)passage, NULL));
    Py_DECREF(node);
    return result;
}

/* ---- calls ---- */

/* Does this node belong to the call? 1, 0, or -1 for an error. */
static int is_ours(Passage *passage, PyObject *node)
{
    uint64_t number = 0;
    if (!node || (node != Py_None && sequence_of(node, &number) < 0))
        return -1;
    return node != Py_None && number >= passage->first;
}

static int hook_node(PyObject *node, PyObject *hook, PyObject *nodes)
{
    int known = PySequence_Contains(nodes, node);
    if (known != 0)
        return known < 0 ? -1 : 0;
    return done(PyObject_CallMethodObjArgs(node, s_prehook, hook, NULL)) < 0 ? -1 : PyList_Append(nodes, node);
}

/* If the result is a view: hooks the node of what it is a view of. 1 if that is all that needs a hook, 0 if not, -1 for an error. A view of only
   a part does work of its own on the way back, and so does one that the layer has changed in place. */
static int hook_behind(Passage *passage, PyObject *tensor, PyObject *base, PyObject *given, PyObject *nodes)
{
    PyObject *node = PyObject_GetAttr(base, s_grad_fn);
    int result = is_ours(passage, node);
    if (result == 0)
        passage->loose = 1;
    else if (result > 0) {
        int whole = tensor != given && nbytes(base) == nbytes(tensor);
        PyObject *hook = whole ? Py_NewRef((PyObject *)passage) : PyObject_GetAttr((PyObject *)passage, s_begins);
        result = !hook || hook_node(node, hook, nodes) < 0 ? -1 : whole;
        Py_XDECREF(hook);
    }
    Py_XDECREF(node);
    return result;
}

/* Hooks the nodes that made this tensor, if they belong to the call; adds them to the list. */
static int hook_first(Passage *passage, PyObject *tensor, PyObject *given, PyObject *nodes)
{
    PyObject *node = PyObject_GetAttr(tensor, s_grad_fn);
    int result = is_ours(passage, node);
    if (result > 0) {
        PyObject *base = PyObject_GetAttr(tensor, s_base);
        result = !base ? -1 : base == Py_None ? 0 : hook_behind(passage, tensor, base, given, nodes);
        Py_XDECREF(base);
        if (result == 0)
            result = hook_node(node, (PyObject *)passage, nodes);
    }
    Py_XDECREF(node);
    return result < 0 ? -1 : 0;
}

static int look_back(Passage *passage, PyObject *tensors, PyObject *given)
{
    PyObject *nodes = PyList_New(0);
    int result = nodes ? 0 : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PyTuple_Size(tensors); i++)
        result = hook_first(passage, PyTuple_GetItem(tensors, i), given, nodes);
    if (result == 0 && PyList_Size(nodes) > 0) {
        int next_to = given && passage->first == last_end && given == last_result;
        if (!next_to && !passage->parted)
            result = hook_lowest(passage, nodes, given);
        if (result == 0)
            result = unsigned_of(PyObject_CallNoArgs(parts[NUMBER]), &last_end);
        last_result = PyTuple_Size(tensors) == 1 && !passage->loose ? PyTuple_GetItem(tensors, 0) : NULL;
    }
    Py_XDECREF(nodes);
    return result;
}

/* Is this tensor the input, or a view of it? */
static int passed_on(PyObject *tensor, PyObject *given)
{
    if (tensor == given)
        return 1;
    PyObject *base = PyObject_GetAttr(tensor, s_base);
    int same = base && base != Py_None && given && base == given;
    if (base && base != Py_None && given && !same && PyObject_IsInstance(given, parts[TENSOR]) == 1) {
        PyObject *other = PyObject_GetAttr(given, s_base);
        same = other == base;
        Py_XDECREF(other);
    }
    Py_XDECREF(base);
    forget_error();
    return same;
}

static int64_t new_bytes(PyObject *tensors, PyObject *given)
{
    int64_t total = -1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(tensors); i++) {
        PyObject *tensor = PyTuple_GetItem(tensors, i);
        int64_t size = passed_on(tensor, given) ? 0 : nbytes(tensor);
        if (size >= 0)
            total = (total < 0 ? 0 : total) + size;
    }
    return total;
}

static int call_ended(Call *call, Passage *passage, PyObject *result, PyObject *given)
{
    PyObject *tensors = (PyObject *)Py_TYPE(result) == parts[TENSOR] ? PyTuple_Pack(1, result)
                                                                    : PyObject_CallFunctionObjArgs(parts[FOUND], result, NULL);
    int ok = tensors && PyTuple_Check(tensors) ? 0 : -1;
    if (call->forward) {
        int left = leave(call->forward, ok == 0 && call->measured ? new_bytes(tensors, given) : -1, NULL);
        ok = ok < 0 ? ok : left;
    }
    if (ok == 0 && call->tentative && !call->reported) {
        call->reported = 1;
        ok = done(PyObject_CallFunctionObjArgs(parts[DESCRIBE], call->layer, NULL));
    }
    if (ok == 0 && call->backward)
        ok = look_back(passage, tensors, given);
    Py_XDECREF(tensors);
    return ok;
}

/* A layer is called inside another one. */
static void enclose(Passage *passage, Passage *above)
{
    above->parted = 1;
    if (above->call->tentative && !above->cancelled) {
        above->cancelled = 1;
        if (done(PyObject_CallFunctionObjArgs(parts[DEMOTE], above->call->layer, NULL)) < 0)
            blame();
    }
    while (above && above->cancelled)
        above = above->above;
    if (passage)
        passage->above = (Passage *)Py_XNewRef((PyObject *)above);
}

static void call_failed(Call *call, Passage *passage)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    if (call->forward && !passage->cancelled && leave(call->forward, -1, kind) < 0)
        blame();
    PyErr_Restore(kind, value, trace);
}

static int wanted(void)
{
    PyObject *on = off ? NULL : PyObject_GetAttr(parts[PHASES], s_on);
    int result = on == Py_True;
    Py_XDECREF(on);
    forget_error();
    return result;
}

/* Greenlets end calls in any order: one that has ended stays in the chain until all that began after it have ended too. */
static void call_left(Passage *passage)
{
    passage->ended = 1;
    while (top && top->ended) {
        Passage *done = top;
        top = done->outer;
        done->outer = NULL;
        Py_DECREF((PyObject *)done);
    }
}

static PyObject *call_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Call *call = (Call *)self;
    Py_ssize_t count = args_in(flags);
    uint64_t first = 0;
    Passage *passage = NULL;
    if (wanted() && unsigned_of(PyObject_CallNoArgs(parts[NUMBER]), &first) == 0)
        passage = passage_new(call, first);
    if (!passage) {
        blame();
        return PyObject_Vectorcall(call->function, args, flags, names);
    }
    Passage *above = top;
    if (above)
        enclose(passage, above);
    if (call->forward && done(PyObject_CallFunctionObjArgs(parts[ENTER], call->forward, NULL)) < 0)
        blame();
    Py_INCREF(self);
    passage->outer = top;
    top = (Passage *)Py_NewRef((PyObject *)passage);
    PyObject *result = PyObject_Vectorcall(call->function, args, flags, names);
    call_left(passage);
    if (!result)
        call_failed(call, passage);
    else if (!passage->cancelled && call_ended(call, passage, result, count > 1 ? args[1] : NULL) < 0)
        blame();
    Py_DECREF(passage);
    Py_DECREF(self);
    return result;
}

static PyObject *shadow_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (top)
        enclose(NULL, top);
    return PyObject_Vectorcall(((Call *)self)->function, args, flags, names);
}

/* ---- for Python ---- */

static Call *call_new(vectorcallfunc vector, PyObject *original)
{
    Call *call = callable_new(call_type, vector, OWNED(Call, backward), original);
    if (call)
        call->hops = -1;
    return call;
}

static PyObject *recorded(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *layer, *original, *forward, *backward;
    int measured, gradients, tentative;
    if (!PyArg_ParseTuple(args, "OOOOppp", &layer, &original, &forward, &backward, &measured, &gradients, &tentative))
        return NULL;
    Call *call = call_new(call_call, original);
    if (!call)
        return NULL;
    call->layer = Py_NewRef(layer);
    call->forward = Py_XNewRef(unless_none(forward));
    call->backward = Py_XNewRef(unless_none(backward));
    call->measured = measured;
    call->gradients = gradients;
    call->tentative = tentative;
    return (PyObject *)call;
}

static PyObject *shadow(PyObject *Py_UNUSED(module), PyObject *original)
{
    return (PyObject *)call_new(shadow_call, original);
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    return take_arguments(args, kwargs, part_names, parts) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *mute(PyObject *Py_UNUSED(module), PyObject *on)
{
    off = on == Py_True;
    Py_RETURN_NONE;
}

static PyObject *finish(PyObject *Py_UNUSED(module), PyObject *error)
{
    if (finish_pass(unless_none(error)) < 0)
        blame();
    Py_RETURN_NONE;
}

static PyObject *ended(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (finish_pass(NULL) < 0)
        blame();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"recorded", recorded, METH_VARARGS, "The function called for a recorded layer."},
    {"shadow", shadow, METH_O, "The function called for a module that is not recorded."},
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Set the parts of torch and Sonde to use."},
    {"mute", mute, METH_O, "Set whether calls of this thread are ignored."},
    {"finish", finish, METH_O, "End the backward pass of this thread; the argument is the exception's type or None."},
    {"ended", ended, METH_NOARGS, "It has ended."},
    {NULL, NULL, 0, NULL},
};

int fill_layers(PyObject *module)
{
    static const Name names[] = {{&s_on, "on"}, {&s_nbytes, "nbytes"}, {&s_base, "_base"}, {&s_grad_fn, "grad_fn"},
                                 {&s_sequence, "_sequence_nr"}, {&s_prehook, "register_prehook"}, {&s_hook, "register_hook"},
                                 {&s_next, "next_functions"}, {&s_begins, "begins"}, {NULL, NULL}};
    call_type = callable_type("sonde.native.layers.Call", sizeof(Call), PLAIN_CALL, NULL, NULL);
    passage_type = callable_type("sonde.native.layers.Passage", sizeof(Passage), PLAIN_CALL, NULL, passage_slots);
    if (!call_type || !passage_type || make_names(names) < 0 || PyModule_AddFunctions(module, functions) != 0)
        return -1;
    return (parts[ENDED] = PyObject_GetAttrString(module, "ended")) ? 0 : -1;
}
