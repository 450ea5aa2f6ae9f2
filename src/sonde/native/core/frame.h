/* Entering and leaving: the frames of open spans, per thread or per task, and the records they write. */
#ifndef SONDE_FRAME_H
#define SONDE_FRAME_H

#include "ring.h"

/* A frame as a Python object, so that a ContextVar can hold it. */
typedef struct {
    PyObject_HEAD
    Frame *frame;
} Box;

static PyTypeObject *box_type;

static void box_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    frame_unref(((Box *)self)->frame);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot box_slots[] = {{Py_tp_dealloc, box_dealloc}, {0, NULL}};
static PyType_Spec box_spec = {"sonde.native.core.Box", sizeof(Box), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, box_slots};

/* ---- the innermost frame of a task ---- */

static Frame *task_top(void)
{
    PyObject *value = PyObject_CallNoArgs(g.var_get);
    Frame *frame = value && Py_TYPE(value) == box_type ? ((Box *)value)->frame : NULL; /* a program may set any variable */
    if (frame)
        frame->refs++; /* keep it over the decref below; given to the caller */
    Py_XDECREF(value);
    forget_error();
    return frame;
}

static void set_task_top(Frame *frame)
{
    PyObject *value = Py_None;
    if (frame) {
        Box *box = PyObject_New(Box, box_type);
        if (!box) {
            forget_error();
            return;
        }
        box->frame = frame;
        frame->refs++;
        value = (PyObject *)box;
    }
    PyObject *token = PyObject_CallFunctionObjArgs(g.var_set, value, NULL);
    Py_XDECREF(token);
    if (value != Py_None)
        Py_DECREF(value);
    forget_error();
}

/* ---- the innermost frame, wherever it is kept; the caller owns what it gets and gives what it sets ---- */

static Frame *first_alive(Frame *frame)
{
    while (frame && !alive(frame))
        frame = frame->prev;
    return frame;
}

static Frame *get_top(Thread *t)
{
    Frame *kept = t->tasks ? task_top() : NULL;
    Frame *top = first_alive(kept ? kept : t->top);
    if (top)
        top->refs++;
    frame_unref(kept);
    return top;
}

static void set_top(Thread *t, Frame *top)
{
    if (t->tasks) {
        set_task_top(top);
        frame_unref(top);
    } else {
        Frame *old = t->top;
        t->top = top;
        frame_unref(old);
    }
}

/* Drop frames that have been left from the thread's chain. */
static inline void pop_dead(Thread *t)
{
    while (unlikely(t->top && !alive(t->top))) {
        Frame *dead = t->top;
        t->top = dead->prev;
        if (t->top)
            t->top->refs++;
        frame_unref(dead);
    }
}

/* ---- entering ---- */

static void link_task_frame(Thread *t, Frame *frame)
{
    while (t->task_frames && !alive(t->task_frames)) /* of a recording that has ended */
        unlink_task_frame(t->task_frames);
    frame->in_task = 1;
    frame->newer = NULL;
    frame->older = t->task_frames;
    if (frame->older)
        frame->older->newer = frame;
    t->task_frames = frame;
}

/* Open a span. The caller gets a reference; the thread (or task) keeps another. NULL: not recorded, and counted. */
static Frame *enter(uint32_t name, int64_t key, uint32_t args, int cut, PyObject *span)
{
    Thread *t = current_thread();
    Frame *frame = t ? frame_new() : NULL;
    if (unlikely(!frame)) {
        lose_one(0);
        return NULL;
    }
    Frame *top;
    if (likely(!t->tasks)) {
        pop_dead(t);
        top = t->top; /* its reference moves from the thread to the new frame */
        t->top = frame;
        frame->in_task = 0;
    } else {
        top = get_top(t);
    }
    frame->prev = top;
    frame->span = Py_XNewRef(span);
    frame->thread = t;
    frame->ordinal = t->ordinal;
    frame->generation = g.generation;
    frame->refs = 2;
    frame->depth = top ? top->depth + 1 : 0;
    Record *r = &frame->record;
    r->dur = 0;
    r->key = key;
    r->name = name;
    r->args = args;
    r->seq = next_seq();
    r->parent = top ? top->record.seq : 0;
    r->step = g.step;
    r->epoch = g.epoch;
    r->kind = (uint8_t)(SPAN | OPEN | (cut ? CUT : 0));
    r->depth = frame->depth < DEEPEST ? (uint8_t)frame->depth : DEEPEST;
    if (unlikely(t->tasks)) {
        frame->refs = 2; /* the caller's and that of the list of task frames; the ContextVar takes a third */
        link_task_frame(t, frame);
        set_task_top(frame);
        if (!alive(frame)) { /* Python ran meanwhile, and recording ended */
            unlink_task_frame(frame);
            frame_unref(frame);
            return NULL;
        }
    }
    r->start = clock_now();
    frame->index = t->head;
    frame->slot = put(t, r);
    return frame;
}

/* ---- leaving ---- */

/* Complete the record: in the ring if it is still there, else by writing it again. */
static inline void complete(Thread *t, Frame *frame, uint64_t dur, uint8_t kind)
{
    Record *r = &frame->record;
    r->dur = (int64_t)dur;
    if (likely(t->ordinal == frame->ordinal && frame->index >= t->spilled)) {
        Record *slot = &t->ring->records[frame->slot];
        slot->args = r->args;
        slot->key = r->key;
        slot->step = r->step;
        slot->epoch = r->epoch;
        slot->dur = r->dur;
        __atomic_store_n(&slot->kind, kind, __ATOMIC_RELEASE);
        return;
    }
    r->kind = (uint8_t)(kind | AGAIN);
    put(t, r);
}

/* Complete nothing: the entry was passed over, see `pass_over`. */
static inline int passed_over(const Frame *frame)
{
    return frame->index == UINT64_MAX;
}

/* Take a frame that was left out of the chain it is in, if it is innermost there. */
static void unlink_frame(Thread *t, Frame *frame)
{
    if (unlikely(frame->in_task))
        unlink_task_frame(frame);
    if (unlikely(t->tasks)) {
        Frame *kept = task_top();
        if (kept && !alive(kept))
            set_task_top(first_alive(kept->prev));
        frame_unref(kept);
    }
    pop_dead(t);
}

/* Leave a span in this thread, and drop the caller's reference. */
static inline void leave_in(Thread *t, Frame *frame, uint64_t now, uint8_t kind)
{
    if (unlikely(!alive(frame))) {
        frame_unref(frame);
        return;
    }
    if (likely(!passed_over(frame)))
        complete(t, frame, now > frame->record.start ? now - frame->record.start : 0, kind);
    frame->generation = 0;
    if (likely(t->top == frame && !t->tasks && frame->refs == 2)) {
        t->top = frame->prev; /* its reference goes back to the thread */
        PyObject *span = frame->span;
        frame->prev = g.spare;
        g.spare = frame;
        g.spares++;
        Py_XDECREF(span);
        return;
    }
    unlink_frame(t, frame);
    frame_unref(frame);
}

static void leave_as(Frame *frame, uint64_t now, uint8_t kind)
{
    Thread *t = !alive(frame) ? NULL : passed_over(frame) ? self_thread : current_thread();
    if (t)
        leave_in(t, frame, now, kind);
    else
        frame_unref(frame); /* recording ended, or there is no ring: it stays open in the file */
}

static inline void leave(Frame *frame)
{
    uint64_t now = clock_now();
    leave_as(frame, now, (uint8_t)(frame->record.kind & ~OPEN));
}

static void cancel(Frame *frame)
{
    leave_as(frame, frame->record.start, VOID);
}

/* Give the record of a frame that was left the step and epoch that the frame has. */
static void stamp_again(Frame *frame)
{
    Thread *t = current_thread();
    Record *r = &frame->record;
    if (t && t->ordinal == frame->ordinal && frame->index >= t->spilled) {
        t->ring->records[frame->slot].step = r->step;
        t->ring->records[frame->slot].epoch = r->epoch;
    } else if (t) {
        r->kind = (uint8_t)((r->kind & ~OPEN) | AGAIN);
        put(t, r);
    }
}

/* Give an open frame another name, also where its record stands already. */
static void rename_frame(Frame *frame, uint32_t name)
{
    Thread *t = current_thread();
    frame->record.name = name;
    if (t && t->ordinal == frame->ordinal && frame->index >= t->spilled && !passed_over(frame))
        t->ring->records[frame->slot].name = name;
}

/* The innermost open frame of this very span object: in this task or thread, else the newest in this thread. */
static Frame *find_frame(PyObject *span)
{
    Thread *t = self_thread;
    if (!t)
        return NULL;
    Frame *kept = t->tasks ? task_top() : NULL;
    Frame *frame = kept ? kept : t->top;
    while (frame && !(frame->span == span && alive(frame)))
        frame = frame->prev;
    if (!frame)
        for (frame = t->task_frames; frame && !(frame->span == span && alive(frame)); frame = frame->older)
            ;
    if (!frame && kept)
        for (frame = t->top; frame && !(frame->span == span && alive(frame)); frame = frame->prev)
            ;
    if (frame)
        frame->refs++;
    frame_unref(kept);
    return frame;
}

/* A span that is not recorded is entered: leaving it must close neither an outer entry of its own nor that of another task. */
static void pass_over(PyObject *span)
{
    Thread *t = self_thread;
    Frame *outer = t && !t->tasks ? find_frame(span) : NULL;
    Frame *frame = outer || (t && t->tasks) ? frame_new() : NULL;
    frame_unref(outer);
    if (!frame)
        return;
    Frame *top = get_top(t);
    if (top)
        *frame = *top; /* what is inside has the same parent as it would have without this entry */
    else
        *frame = (Frame){.thread = t, .generation = g.generation, .depth = UINT32_MAX};
    frame->prev = top;
    frame->span = Py_NewRef(span);
    frame->index = UINT64_MAX;
    frame->in_task = 0;
    frame->refs = 1;
    set_top(t, frame);
}

#endif
