/* Spans that run in pieces: Life, for generators and coroutines, and Loop, for `iterate`. */
#ifndef SONDE_PIECE_H
#define SONDE_PIECE_H

#include "span.h"

/* ---- Life ---- */

typedef struct {
    PyObject_HEAD
    Span *span;
    Frame *frame;   /* of the span itself; NULL before the first resume, or when not recorded */
    Frame *top;     /* innermost frame inside the generator while it is suspended */
    Frame *outside; /* innermost frame of the consumer while it runs */
    uint8_t started, running;
} Life;

static PyObject *life_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *span;
    if (!PyArg_ParseTuple(args, "O!", span_type, &span))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Life *self = (Life *)alloc(type, 0);
    if (self)
        self->span = (Span *)Py_NewRef(span);
    return (PyObject *)self;
}

static PyObject *life_resume(PyObject *object, PyObject *Py_UNUSED(none))
{
    Life *self = (Life *)object;
    Thread *t;
    if (self->running)
        Py_RETURN_NONE;
    if (!self->started) {
        self->started = 1;
        if (taken(self->span)) {
            t = current_thread();
            Frame *outside = t ? get_top(t) : NULL;
            self->frame = enter_span(self->span, self->span->key, NULL);
            self->running = self->frame != NULL;
            self->outside = self->running ? outside : NULL;
            if (!self->running)
                frame_unref(outside);
        }
        Py_RETURN_NONE;
    }
    if (self->frame && alive(self->frame) && (t = current_thread())) {
        self->outside = get_top(t);
        set_top(t, self->top);
        self->top = NULL;
        self->running = 1;
    }
    Py_RETURN_NONE;
}

static PyObject *life_suspend(PyObject *object, PyObject *Py_UNUSED(none))
{
    Life *self = (Life *)object;
    Thread *t = self_thread;
    if (!self->running)
        Py_RETURN_NONE;
    self->running = 0;
    if (t) {
        frame_unref(self->top);
        self->top = get_top(t);
        set_top(t, self->outside);
    } else {
        frame_unref(self->outside);
    }
    self->outside = NULL;
    Py_RETURN_NONE;
}

static void life_end(Life *self, PyObject *error)
{
    Frame *frame = self->frame;
    self->frame = NULL;
    frame_unref(self->top);
    self->top = NULL;
    if (frame && error)
        leave_error(frame, self->span, error);
    else if (frame)
        leave(frame);
}

static PyObject *life_close(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    Life *self = (Life *)object;
    PyObject *error = count > 0 && args[0] != Py_None && args[0] != PyExc_GeneratorExit ? args[0] : NULL;
    life_suspend(object, NULL);
    Py_DECREF(Py_None);
    life_end(self, error);
    Py_RETURN_NONE;
}

static void life_dealloc(PyObject *object)
{
    Life *self = (Life *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    life_end(self, NULL);
    frame_unref(self->outside);
    PyErr_Restore(kind, value, trace);
    Py_XDECREF((PyObject *)self->span);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef life_methods[] = {
    {"resume", life_resume, METH_NOARGS, "Continue: open the record and become the parent of new records."},
    {"suspend", life_suspend, METH_NOARGS, "Pause: no longer the parent of new records."},
    {"close", (PyCFunction)(void (*)(void))life_close, METH_FASTCALL, "End it; the argument is the exception's type or None."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot life_slots[] = {
    {Py_tp_doc, "One entry of a span that is paused and resumed."},
    {Py_tp_new, life_new},
    {Py_tp_dealloc, life_dealloc},
    {Py_tp_methods, life_methods},
    {0, NULL},
};
static PyType_Spec life_spec = {"sonde.native.core.Life", sizeof(Life), 0, Py_TPFLAGS_DEFAULT, life_slots};

/* ---- Loop ---- */

typedef struct {
    PyObject_HEAD
    PyObject *iterator;
    Span *wait, *block; /* either may be NULL */
    PyObject *keys;     /* of `iterate_keyed`: an iterator over the keys of the blocks; else NULL */
    Frame *waited;      /* the wait of this round, which is over */
    uint32_t generation; /* in which it ended */
    uint32_t steps_set, epochs_set; /* when this round began */
    Frame *held;        /* the block that is open */
    Span *holder;       /* its span */
    long long count;    /* items handed out */
    long long before;   /* the number of an item is its count and this */
} Loop;

static PyTypeObject *loop_type;

/* A round knows its step and epoch when it ends, if the program has set them in it. */
static int loop_stamp(const Loop *self, Frame *frame)
{
    uint32_t step = self->steps_set == g.steps_set ? frame->record.step : g.step;
    uint16_t epoch = self->epochs_set == g.epochs_set ? frame->record.epoch : g.epoch;
    int changed = step != frame->record.step || epoch != frame->record.epoch;
    frame->record.step = step;
    frame->record.epoch = epoch;
    return changed;
}

/* End the block that is open, if any; by an exception of this type, or by the current one. */
static void loop_release(Loop *self, PyObject *error, int failed)
{
    Frame *held = self->held;
    Span *holder = self->holder;
    Frame *waited = self->waited;
    self->held = self->waited = NULL;
    self->holder = NULL;
    if (waited && self->generation == g.generation && loop_stamp(self, waited)) {
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        stamp_again(waited);
        PyErr_Restore(kind, value, trace);
    }
    frame_unref(waited);
    if (held)
        loop_stamp(self, held);
    if (held && failed)
        leave_error(held, holder, error);
    else if (held)
        leave(held);
    Py_XDECREF((PyObject *)holder);
}

static void loop_hold(Loop *self, Span *span, int64_t key)
{
    if (!taken(span))
        return;
    self->held = enter_span(span, key, NULL);
    self->holder = self->held ? (Span *)Py_NewRef((PyObject *)span) : NULL;
}

/* A key is a number, or a span that is entered instead. An item beyond the last key has no block. */
static void loop_hold_keyed(Loop *self)
{
    PyObject *key = PyIter_Next(self->keys);
    if (key && !PyLong_CheckExact(key) && PyObject_TypeCheck(key, span_type))
        loop_hold(self, (Span *)key, ((Span *)key)->key);
    else if (key)
        loop_hold(self, self->block, key_of(key, NO_KEY));
    Py_XDECREF(key);
    forget_error();
}

static PyObject *loop_next(PyObject *object)
{
    Loop *self = (Loop *)object;
    loop_release(self, NULL, 0);
    if (!self->iterator)
        return NULL;
    int64_t number = self->before + self->count + 1;
    self->steps_set = g.steps_set;
    self->epochs_set = g.epochs_set;
    Frame *frame = self->wait && taken(self->wait) ? enter_span(self->wait, number, NULL) : NULL;
    PyObject *item = PyIter_Next(self->iterator);
    if (frame) {
        if (item) {
            frame->refs++;
            leave(frame);
            self->waited = frame;
            self->generation = g.generation;
        } else if (PyErr_Occurred())
            leave_error(frame, self->wait, NULL);
        else
            cancel(frame);
    }
    if (!item)
        return NULL;
    self->count++;
    if (self->keys)
        loop_hold_keyed(self);
    else if (self->block)
        loop_hold(self, self->block, number);
    return item;
}

static PyObject *loop_close(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    PyObject *error = count > 0 && args[0] != Py_None && args[0] != PyExc_GeneratorExit ? args[0] : NULL;
    loop_release((Loop *)object, error, error != NULL);
    Py_RETURN_NONE;
}

/* `break` and exceptions in the body end here, when the loop lets go of its iterator. */
static void loop_dealloc(PyObject *object)
{
    Loop *self = (Loop *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    loop_release(self, NULL, self->held && PyErr_Occurred());
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    Py_XDECREF(self->iterator);
    Py_XDECREF(self->keys);
    Py_XDECREF((PyObject *)self->wait);
    Py_XDECREF((PyObject *)self->block);
    PyErr_Restore(kind, value, trace);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static int loop_traverse(PyObject *object, visitproc visit, void *arg)
{
    Loop *self = (Loop *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->iterator);
    Py_VISIT(self->wait);
    Py_VISIT(self->block);
    Py_VISIT(self->keys);
    return 0;
}

static int loop_clear(PyObject *object)
{
    Py_CLEAR(((Loop *)object)->iterator);
    Py_CLEAR(((Loop *)object)->keys);
    return 0;
}

static PyObject *loop_hint(PyObject *object, PyObject *Py_UNUSED(none))
{
    PyObject *iterator = ((Loop *)object)->iterator;
    PyObject *hint = iterator ? PyObject_CallMethod(iterator, "__length_hint__", NULL) : NULL;
    if (hint)
        return hint;
    forget_error();
    Py_RETURN_NOTIMPLEMENTED;
}

static Span *span_or_null(PyObject *span)
{
    return span == Py_None ? NULL : (Span *)Py_NewRef(span);
}

/* `iterator` is taken over; it may be NULL, with an exception. */
static Loop *new_loop(PyObject *iterator, PyObject *wait, PyObject *block)
{
    Loop *self = iterator ? PyObject_GC_New(Loop, loop_type) : NULL;
    if (!self) {
        Py_XDECREF(iterator);
        return NULL;
    }
    self->iterator = iterator;
    self->wait = span_or_null(wait);
    self->block = span_or_null(block);
    self->keys = NULL;
    self->waited = NULL;
    self->held = NULL;
    self->holder = NULL;
    self->count = self->before = 0;
    PyObject_GC_Track(self);
    return self;
}

static PyObject *iterate(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *iterable, *wait, *block;
    long long first = 1;
    if (!PyArg_ParseTuple(args, "OOO|L:iterate", &iterable, &wait, &block, &first))
        return NULL;
    if ((wait != Py_None && !PyObject_TypeCheck(wait, span_type)) || (block != Py_None && !PyObject_TypeCheck(block, span_type))) {
        PyErr_SetString(PyExc_TypeError, "iterate() takes an iterable and two spans (or None)");
        return NULL;
    }
    Loop *self = new_loop(PyObject_GetIter(iterable), wait, block);
    if (self)
        self->before = first - 1;
    return (PyObject *)self;
}

static PyObject *iterate_on(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *iterator, *wait;
    long long first;
    if (!PyArg_ParseTuple(args, "OO!L:iterate_on", &iterator, span_type, &wait, &first))
        return NULL;
    if (!PyIter_Check(iterator)) {
        PyErr_SetString(PyExc_TypeError, "iterate_on() takes an iterator, a span and a number");
        return NULL;
    }
    Loop *self = new_loop(Py_NewRef(iterator), wait, Py_None);
    if (self)
        self->before = first - 1;
    return (PyObject *)self;
}

static PyObject *iterate_keyed(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *iterable, *keys, *block;
    if (!PyArg_ParseTuple(args, "OOO!:iterate_keyed", &iterable, &keys, span_type, &block))
        return NULL;
    keys = PyObject_GetIter(keys);
    Loop *self = keys ? new_loop(PyObject_GetIter(iterable), Py_None, block) : NULL;
    if (self)
        self->keys = keys;
    else
        Py_XDECREF(keys);
    return (PyObject *)self;
}

static PyMethodDef loop_methods[] = {
    {"__length_hint__", loop_hint, METH_NOARGS, "The length hint of the inner iterator."},
    {"close", (PyCFunction)(void (*)(void))loop_close, METH_FASTCALL, "End the open block; the argument is the exception's type or None."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef loop_members[] = {
    {"count", T_LONGLONG, offsetof(Loop, count), READONLY, "Number of items returned so far."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot loop_slots[] = {
    {Py_tp_dealloc, loop_dealloc},
    {Py_tp_traverse, loop_traverse},
    {Py_tp_clear, loop_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, loop_next},
    {Py_tp_methods, loop_methods},
    {Py_tp_members, loop_members},
    {0, NULL},
};
static PyType_Spec loop_spec = {
    "sonde.native.core.Loop", sizeof(Loop), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, loop_slots};

#endif
