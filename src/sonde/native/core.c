/* The native event core: the module, counters and marks, and its controls. `native/core.pyi` says what each part is for. */
#define _GNU_SOURCE
#include "shared/abi.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/record.h"
#include "core/state.h"
#include "core/ring.h"
#include "core/frame.h"
#include "core/span.h"
#include "core/wrapped.h"
#include "core/piece.h"

/* ---- counters and marks ---- */

static uint32_t step_of(PyObject *value, uint32_t otherwise, uint64_t none)
{
    int overflow = 0;
    PyObject *number = value != Py_None && PyIndex_Check(value) ? PyNumber_Index(value) : NULL;
    long long step = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    int known = number != NULL;
    Py_XDECREF(number);
    forget_error();
    if (!known)
        return otherwise;
    return overflow || step < 0 || (uint64_t)step >= none ? (uint32_t)none : (uint32_t)step;
}

/* One record without duration, made through a Span so that names, keys and arguments are treated alike. `when`: 0 is now. */
static void emit_at(Span *span, uint8_t kind, double value, int64_t key, PyObject *step, PyObject *epoch, uint64_t when)
{
    if (!taken(span))
        return;
    uint32_t args = args_of(span);
    Thread *t = current_thread();
    if (!t) {
        lose_one(0);
        return;
    }
    Frame *top = get_top(t);
    uint32_t depth = top ? top->depth + 1 : 0;
    Record r = {
        .key = key, .name = span->id, .args = args, .seq = next_seq(), .parent = top ? top->record.seq : 0,
        .step = step_of(step, g.step, NO_STEP), .epoch = (uint16_t)step_of(epoch, g.epoch, NO_EPOCH),
        .kind = (uint8_t)(kind | (args && span->cut ? CUT : 0)), .depth = depth < DEEPEST ? (uint8_t)depth : DEEPEST,
    };
    frame_unref(top);
    if ((kind & KIND_MASK) == COUNTER)
        memcpy(&r.dur, &value, sizeof value);
    r.start = when ? when : clock_now();
    if (t->generation == g.generation)
        put(t, &r);
}

static void emit(Span *span, uint8_t kind, double value, PyObject *step, PyObject *epoch)
{
    emit_at(span, kind, value, span->key, step, epoch, 0);
}

static Span *make_span(PyObject *name, PyObject *cat, PyObject *key, PyObject *args, PyObject *level)
{
    PyObject *positional = cat ? PyTuple_Pack(2, name, cat) : PyTuple_Pack(1, name);
    PyObject *named = Py_BuildValue("{sOsOsO}", "key", key, "args", args, "level", level);
    PyObject *span = positional && named ? PyObject_Call((PyObject *)span_type, positional, named) : NULL;
    Py_XDECREF(positional);
    Py_XDECREF(named);
    return (Span *)span;
}

static PyObject *counter(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *named)
{
    static char *names[] = {"name", "value", "cat", "key", "args", "level", "step", "epoch", NULL};
    PyObject *name, *value, *cat = NULL, *key = Py_None, *args = Py_None, *step = Py_None, *epoch = Py_None, *level = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "OO|OOOOOO:counter", names, &name, &value, &cat, &key, &args, &level, &step, &epoch))
        return NULL;
    if (!g.recording)
        Py_RETURN_NONE;
    double number = PyFloat_AsDouble(value);
    uint8_t kind = COUNTER;
    PyObject *kept = NULL;
    if (PyErr_Occurred()) { /* no number: a mark that carries it */
        forget_error();
        kind = MARK;
        kept = args == Py_None ? PyDict_New() : dict_of(args);
        if (kept)
            PyDict_SetItemString(kept, "value", value);
    }
    Span *span = make_span(name, cat, key, kept ? kept : args, level);
    Py_XDECREF(kept);
    if (span)
        emit(span, kind, number, step, epoch);
    Py_XDECREF((PyObject *)span);
    forget_error();
    Py_RETURN_NONE;
}

static PyObject *mark(PyObject *Py_UNUSED(module), PyObject *arguments, PyObject *named)
{
    static char *names[] = {"name", "cat", "key", "args", "level", "step", "epoch", "metadata", NULL};
    PyObject *name, *cat = NULL, *key = Py_None, *args = Py_None, *step = Py_None, *epoch = Py_None, *level = Py_None;
    int metadata = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "O|OOOOOOp:mark", names, &name, &cat, &key, &args, &level, &step, &epoch, &metadata))
        return NULL;
    if (!g.recording)
        Py_RETURN_NONE;
    Span *span = make_span(name, cat, key, args, level);
    if (span)
        emit(span, (uint8_t)(MARK | (metadata ? META : 0)), 0.0, step, epoch);
    Py_XDECREF((PyObject *)span);
    forget_error();
    Py_RETURN_NONE;
}

/* A record without duration for a span that is there already: a mark, or a counter if there is a value. */
static PyObject *note(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!is_span(args, count, 3, "note"))
        return NULL;
    Span *span = (Span *)args[0];
    int valued = count > 1 && args[1] != Py_None;
    double value = valued ? PyFloat_AsDouble(args[1]) : 0.0;
    if (PyErr_Occurred())
        forget_error();
    else
        emit_at(span, valued ? COUNTER : MARK, value, count > 2 ? key_of(args[2], span->key) : span->key, Py_None, Py_None, 0);
    Py_RETURN_NONE;
}

/* ---- step and epoch ---- */

static int counted; /* the step was set by count_steps, and by nobody since */

static void publish_context(void)
{
    g.header->step = g.step;
    g.header->epoch = g.epoch == NO_EPOCH ? UINT32_MAX : g.epoch;
}

static PyObject *count_steps(PyObject *Py_UNUSED(module), PyObject *from)
{
    g.step = step_of(from, g.step, NO_STEP);
    counted = g.step != NO_STEP;
    publish_context();
    Py_RETURN_NONE;
}

static PyObject *advance(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!is_span(args, count, 2, "advance"))
        return NULL;
    uint64_t when = count > 1 && args[1] != Py_None ? PyLong_AsUnsignedLongLong(args[1]) : 0;
    if (PyErr_Occurred())
        return NULL;
    emit_at((Span *)args[0], MARK, 0.0, ((Span *)args[0])->key, Py_None, Py_None, when);
    if (!counted)
        Py_RETURN_FALSE;
    g.step = g.step + 1 < NO_STEP ? g.step + 1 : NO_STEP;
    counted = g.step != NO_STEP;
    publish_context();
    Py_RETURN_TRUE;
}

static PyObject *set_context(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "set_context() takes step and epoch");
        return NULL;
    }
    g.step = step_of(args[0], g.step, NO_STEP);
    g.epoch = (uint16_t)step_of(args[1], g.epoch, NO_EPOCH);
    counted = counted && args[0] == Py_None;
    g.steps_set += args[0] != Py_None;
    g.epochs_set += args[1] != Py_None;
    publish_context();
    Py_RETURN_NONE;
}

static PyObject *number_or_none(uint64_t value, uint64_t none)
{
    return value == none ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(value);
}

static PyObject *get_context(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue("(NN)", number_or_none(g.step, NO_STEP), number_or_none(g.epoch, NO_EPOCH));
}

/* ---- controls ---- */

static PyObject *flush(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (!g.open && g.seq > 1 && g.recording) { /* a last try, whenever the one before it was */
        g.retry_at = 0;
        open_process();
    }
    write_names();
    write_pending();
    for (Thread *t = g.all; t; t = t->next)
        spill_all(t);
    if (g.unreported && g.open)
        g.used = add_usage(USED_BYTES, g.unreported, g.used), g.unreported = 0;
    if (g.torn)
        stop_torn();
    Py_RETURN_NONE;
}

static PyObject *end(PyObject *module, PyObject *none)
{
    Py_XDECREF(flush(module, none));
    g.recording = 0;
    g.limit = -1;
    Py_XDECREF(flush(module, none)); /* while names were asked for, other threads ran */
    if (g.open && !g.torn && still_ours(&g.rings)) {
        g.header->rings = 0; /* all is in events.seg: the header page is what remains of the rings */
        if (ftruncate(g.rings.fd, HEADER_BYTES) != 0)
            errno = 0;
    }
    if (g.torn)
        report_torn(NULL);
    forget_process();
    unwatch_bus();
    file_close(&g.usage);
    g.asked_usage = 0;
    g.used = g.unreported = 0;
    Py_CLEAR(g.host);
    Py_CLEAR(g.pending);
    Py_RETURN_NONE;
}

static PyObject *begin(PyObject *module, PyObject *args)
{
    PyObject *host;
    unsigned long long cap;
    if (!PyArg_ParseTuple(args, "OK:begin", &host, &cap))
        return NULL;
    Py_XDECREF(end(module, NULL));
    if (counted) /* for another recording */
        g.step = NO_STEP, counted = 0;
    g.host = Py_NewRef(host);
    g.cap = cap;
    PyObject *longest = PyObject_GetAttrString(host, "longest");
    g.longest = longest ? PyLong_AsSsize_t(longest) : 0;
    Py_XDECREF(longest);
    forget_error();
    g.recording = 1;
    g.limit = DETAIL;
    Py_RETURN_NONE;
}

static int find_variable(void)
{
    PyObject *module = g.var_get ? NULL : PyImport_ImportModule("_contextvars");
    PyObject *variable = module ? PyObject_CallMethod(module, "ContextVar", "s", "sonde") : NULL;
    PyObject *get = variable ? PyObject_GetAttrString(variable, "get") : NULL;
    PyObject *none = get ? PyObject_GetAttrString(variable, "set") : NULL;
    Py_XDECREF(module);
    Py_XDECREF(variable);
    if (g.var_get)
        return 1;
    g.var_get = get;
    g.var_set = none;
    return none != NULL;
}

static PyObject *task_mode(PyObject *Py_UNUSED(module), PyObject *on)
{
    int tasks = PyObject_IsTrue(on);
    if (tasks < 0 || (tasks && !find_variable()))
        return NULL;
    Thread *t = self_thread ? self_thread : thread_new();
    if (t)
        t->tasks = (uint8_t)tasks;
    Py_RETURN_NONE;
}

static PyObject *set_clock(PyObject *Py_UNUSED(module), PyObject *clock)
{
    put_owned(&g.clock, Py_XNewRef(unless_none(clock)));
    Py_RETURN_NONE;
}

/* Is there a record that a kill would lose? */
static int is_waiting(void)
{
    for (Thread *t = g.all; t; t = t->next)
        if (t->ring && t->generation == g.generation && t->head > t->spilled && (t->plain || g.rings.fd < 0))
            return 1;
    return 0;
}

static PyObject *info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    const Header *h = g.header;
    return Py_BuildValue(
        "{sNsNsNsIsIsnsKsNsNsKsKsKsK}", "waiting", PyBool_FromLong(is_waiting()), "recording", PyBool_FromLong(g.recording), "mapped", PyBool_FromLong(g.open && g.rings.fd >= 0),
        "rings", h->rings, "threads", g.threads, "names", PyList_Size(g.names_list), "next_seq", h->next_seq,
        "step", number_or_none(g.step, NO_STEP), "epoch", number_or_none(g.epoch, NO_EPOCH), "lost_space", h->lost_space,
        "lost_cap", h->lost_cap, "lost_ring", h->lost_ring, "lost_args", h->lost_args);
}

/* What is static here belongs to the main interpreter: an object of another one would outlive it. */
static PyObject *is_main(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(PyInterpreterState_GetID(PyInterpreterState_Get()) == 0);
}

static PyObject *layout(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return Py_BuildValue(
        "{sisisisisnsnsKsLsIsisisisisisi}", "FORMAT_VERSION", FORMAT_VERSION, "RECORD_SIZE", (int)sizeof(Record), "HEADER_BYTES",
        HEADER_BYTES, "RING_BYTES", RING_BYTES, "RING_RECORDS", (Py_ssize_t)RING_RECORDS, "SPILL_RECORDS",
        (Py_ssize_t)SPILL_RECORDS, "BLOCK_MAGIC", BLOCK_MAGIC, "NO_KEY", NO_KEY, "NO_STEP", NO_STEP, "NO_EPOCH", NO_EPOCH,
        "OPEN", OPEN, "AGAIN", AGAIN, "MAX_NAMES", MAX_NAMES, "MAX_NAMES_CHARS", MAX_NAMES_CHARS, "MAX_NAME_CHARS", MAX_NAME_CHARS);
}

static PyMethodDef functions[] = {
    {"enter", (PyCFunction)(void (*)(void))enter_keyed, METH_FASTCALL, "Enter a span, with a key for this entry."},
    {"leave", (PyCFunction)(void (*)(void))leave_keyed, METH_FASTCALL, "Leave a span, optionally with a key or an exception type."},
    {"cancel", cancel_entry, METH_O, "Cancel a span: its record is dropped."},
    {"turn", (PyCFunction)(void (*)(void))turn_entry, METH_FASTCALL, "Leave a span under the name of another one."},
    {"iterate", iterate, METH_VARARGS, "Iterate and record waits and blocks."},
    {"iterate_on", iterate_on, METH_VARARGS, "Continue an iterator and record waits."},
    {"iterate_keyed", iterate_keyed, METH_VARARGS, "Iterate and record blocks with these keys."},
    {"counter", (PyCFunction)(void (*)(void))counter, METH_VARARGS | METH_KEYWORDS, "Record a value."},
    {"mark", (PyCFunction)(void (*)(void))mark, METH_VARARGS | METH_KEYWORDS, "Record a moment."},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL, "Record a moment or a value for a span."},
    {"count_steps", count_steps, METH_O, "Set the step and count steps from there."},
    {"advance", (PyCFunction)(void (*)(void))advance, METH_FASTCALL, "Record the end of a step; starts the next one if steps are counted."},
    {"set_context", (PyCFunction)(void (*)(void))set_context, METH_FASTCALL, "Set the step and epoch of this process."},
    {"get_context", get_context, METH_NOARGS, "Step and epoch of this process."},
    {"begin", begin, METH_VARARGS, "Start recording."},
    {"end", end, METH_NOARGS, "Stop recording and close the files."},
    {"flush", flush, METH_NOARGS, "Write out every ring."},
    {"task_mode", task_mode, METH_O, "Set whether an event loop runs in this thread."},
    {"set_clock", set_clock, METH_O, "Replace the monotonic clock, for tests."},
    {"is_main", is_main, METH_NOARGS, "Is this the main interpreter?"},
    {"info", info, METH_NOARGS, "Counters and state of the recorder."},
    {"_remake", span_remake, METH_VARARGS, "Make a copied or unpickled span."},
    {"layout", layout, METH_NOARGS, "The constants of the record format in this core."},
    {NULL, NULL, 0, NULL},
};

/* ---- the module ---- */

static int add_files_type(PyObject *module)
{
    PyObject *collections = PyImport_ImportModule("collections");
    PyObject *files = collections ? PyObject_CallMethod(collections, "namedtuple", "s(ssss)", "Files", "rings", "seg", "args", "names") : NULL;
    int failed = files ? PyModule_AddObjectRef(module, "Files", files) : -1;
    Py_XDECREF(collections);
    Py_XDECREF(files);
    return failed;
}

int fill_core(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) != 0)
        return -1;
    g.ids = PyDict_New();
    g.names_list = PyList_New(0);
    g.user = PyUnicode_InternFromString("user");
    reset_process();
    box_type = add_type(NULL, &box_spec);
    loop_type = add_type(NULL, &loop_spec);
    span_type = add_type(module, &span_spec);
    wrapped_type = callable_type("sonde.native.core.Wrapped", sizeof(Wrapped), FUNCTION, NULL, wrapped_slots);
    PyTypeObject *life_type = add_type(module, &life_spec);
    if (!g.user || !g.ids || !g.names_list || !box_type || !loop_type || !span_type || !wrapped_type || !life_type)
        return -1;
    remake = PyObject_GetAttrString(module, "_remake");
    if (!remake || PyModule_AddObjectRef(module, "Wrapped", (PyObject *)wrapped_type) != 0 || PyModule_AddStringConstant(module, "KIND", "c") != 0 || add_files_type(module) != 0)
        return -1;
    if (pthread_key_create(&g.key, thread_left) != 0 || pthread_atfork(NULL, NULL, forked_child) != 0) {
        PyErr_SetString(PyExc_OSError, "the native core could not register with the threads library");
        return -1;
    }
    return 0;
}
