/* Span: a named place in a program, its switch, its arguments, and the context manager. */
#ifndef SONDE_SPAN_H
#define SONDE_SPAN_H

#include "frame.h"
#include "plain.h"

typedef struct Span {
    PyObject_HEAD
    uint32_t id;
    uint8_t level;
    uint8_t on;
    const uint8_t *gate;   /* what decides at each entry: own `on`, that of `base`, or a constant */
    int64_t key;
    struct Span *base;     /* owned; NULL: itself */
    PyObject *args;        /* own arguments, a dict; NULL: none */
    PyObject *shared;      /* arguments of every event of this span and of those based on it */
    PyObject *encoded;     /* both together, as JSON; valid for `args_version` */
    uint64_t args_version;
    uint32_t args_generation;
    uint32_t args_id;
    uint8_t cut;
} Span;

static PyTypeObject *span_type;
static PyObject *remake; /* the function `_remake` of this module */
static const uint8_t always = 1, never = 0;

static inline int taken(const Span *span)
{
    if (unlikely((int)span->level > g.limit)) {
        if (g.recording && *span->gate)
            lose_one(1);
        return 0;
    }
    return *span->gate;
}

/* ---- names ---- */

static PyObject *text_of(PyObject *value)
{
    PyObject *text = PyUnicode_CheckExact(value) ? Py_NewRef(value) : PyObject_Str(value);
    if (text && !PyUnicode_CheckExact(text)) { /* a subclass of str may compare and hash as it likes */
        PyObject *plain = PyUnicode_FromObject(text);
        Py_DECREF(text);
        text = plain;
    }
    if (!text) {
        forget_error();
        PyObject *kind = PyType_GetName(Py_TYPE(value));
        text = PyUnicode_FromFormat("<unprintable %U>", kind);
        Py_XDECREF(kind);
    }
    if (text && PyUnicode_GetLength(text) > MAX_NAME_CHARS) {
        PyObject *start = PyUnicode_Substring(text, 0, MAX_NAME_CHARS);
        Py_DECREF(text);
        text = start;
    }
    return text;
}

static uint32_t new_name(PyObject *pair)
{
    Py_ssize_t id = PyList_Size(g.names_list) + 1;
    PyObject *number = PyLong_FromSsize_t(id);
    if (number && PyDict_SetItem(g.ids, pair, number) == 0 && PyList_Append(g.names_list, pair) == 0 && g.open)
        write_names();
    Py_XDECREF(number);
    return (uint32_t)id;
}

/* The id of (cat, name); 0 with an error set when memory is out. `full` tells that there are too many names. */
static uint32_t name_id(PyObject *cat, PyObject *name, int *full)
{
    uint32_t id = 0;
    PyObject *clean_cat = text_of(cat), *clean_name = text_of(name);
    PyObject *pair = clean_cat && clean_name ? PyTuple_Pack(2, clean_cat, clean_name) : NULL;
    PyObject *known = pair ? PyDict_GetItemWithError(g.ids, pair) : NULL;
    *full = 0;
    if (known)
        id = (uint32_t)PyLong_AsUnsignedLong(known);
    else if (pair && (PyList_Size(g.names_list) >= MAX_NAMES || g.names_chars >= MAX_NAMES_CHARS))
        *full = 1;
    else if (pair && (id = new_name(pair)))
        g.names_chars += PyUnicode_GetLength(clean_cat) + PyUnicode_GetLength(clean_name);
    Py_XDECREF(pair);
    Py_XDECREF(clean_cat);
    Py_XDECREF(clean_name);
    if (*full) {
        PyObject *other = Py_BuildValue("(ss)", "sonde", OVERFLOW_NAME);
        known = other ? PyDict_GetItemWithError(g.ids, other) : NULL;
        id = known ? (uint32_t)PyLong_AsUnsignedLong(known) : other ? new_name(other) : 0;
        Py_XDECREF(other);
    }
    return id;
}

/* ---- arguments ---- */

static PyObject *host_encode(PyObject *mapping, uint8_t *cut)
{
    PyObject *bytes = plain_encoded(mapping);
    int was_cut = 0;
    if (bytes)
        return bytes;
    PyObject *result = call_host("encode", PyTuple_Pack(1, mapping));
    if (result && PyArg_ParseTuple(result, "Sp", &bytes, &was_cut))
        Py_INCREF(bytes);
    else
        bytes = NULL;
    Py_XDECREF(result);
    *cut |= (uint8_t)was_cut;
    forget_error();
    return bytes;
}

static PyObject *host_merge(PyObject *outer, PyObject *inner)
{
    if (!outer || !inner)
        return Py_XNewRef(outer ? outer : inner);
    PyObject *both = call_host("merge", PyTuple_Pack(2, outer, inner));
    if (both && !PyBytes_Check(both))
        Py_CLEAR(both);
    forget_error();
    return both ? both : Py_NewRef(inner);
}

/* Remember a blob until there is a file for it. */
static int keep_early(const struct iovec *parts, int count, uint64_t whole)
{
    char *longer = g.early_len + whole <= MOST_EARLY ? realloc(g.early, g.early_len + whole) : NULL;
    if (!longer)
        return 0;
    g.early = longer;
    for (int i = 0; i < count; i++) {
        memcpy(g.early + g.early_len, parts[i].iov_base, parts[i].iov_len);
        g.early_len += parts[i].iov_len;
    }
    g.early_count++;
    return 1;
}

/* Write a blob; its id, or 0 when it could not be written. */
static uint32_t write_args(PyObject *bytes)
{
    static const char padding[ARGS_ALIGN];
    char *text;
    Py_ssize_t size;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &text, &size) != 0)
        return 0;
    if (!g.open)
        open_process();
    uint32_t length = (uint32_t)size;
    uint64_t offset = g.args_len, whole = (sizeof length + (uint64_t)size + ARGS_ALIGN - 1) / ARGS_ALIGN * ARGS_ALIGN;
    struct iovec parts[3] = {{&length, sizeof length}, {text, (size_t)size}, {(void *)padding, whole - sizeof length - (size_t)size}};
    if (offset / ARGS_ALIGN > UINT32_MAX || !(g.open ? write_at(&g.args, parts, 3, offset) : keep_early(parts, 3, whole))) {
        g.header->lost_args++;
        return 0;
    }
    g.args_len = offset + whole;
    publish(&g.header->args_len, g.args_len);
    if (g.open)
        use_bytes(whole);
    return (uint32_t)(offset / ARGS_ALIGN);
}

static uint32_t encode_args(Span *span)
{
    Span *owner = span->base ? span->base : span;
    if (!span->encoded || span->args_version != g.args_version) {
        uint64_t version = g.args_version;
        span->cut = 0;
        PyObject *outer = owner->shared ? host_encode(owner->shared, &span->cut) : NULL;
        PyObject *inner = span->args ? host_encode(span->args, &span->cut) : NULL;
        PyObject *both = host_merge(outer, inner), *old = span->encoded;
        Py_XDECREF(outer);
        Py_XDECREF(inner);
        span->encoded = both;
        span->args_version = version;
        span->args_generation = 0;
        Py_XDECREF(old);
    }
    if (span->args_generation != g.generation) {
        span->args_id = write_args(span->encoded);
        span->args_generation = span->args_id ? g.generation : 0;
    }
    return span->args_id;
}

static inline uint32_t args_of(Span *span)
{
    const Span *owner = span->base ? span->base : span;
    return likely(!span->args && !owner->shared) ? 0 : encode_args(span);
}

static inline Frame *enter_span(Span *span, int64_t key, PyObject *identity)
{
    uint32_t args = args_of(span);
    return enter(span->id, key, args, args ? span->cut : 0, identity);
}

/* Leave by an exception: marked, with the exception's type among the arguments. The current error stays set. */
static void leave_error(Frame *frame, Span *span, PyObject *type)
{
    uint64_t now = clock_now();
    uint8_t cut = 0;
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject *what = type ? type : kind;
    if (alive(frame) && !passed_over(frame) && what && PyType_Check(what)) {
        PyObject *name = PyType_GetName((PyTypeObject *)what);
        PyObject *mapping = name ? Py_BuildValue("{sO}", "error", name) : NULL;
        PyObject *error = mapping ? host_encode(mapping, &cut) : NULL;
        PyObject *both = host_merge(frame->record.args && span ? span->encoded : NULL, error);
        uint32_t args = alive(frame) ? write_args(both) : 0;
        if (args)
            frame->record.args = args;
        Py_XDECREF(name);
        Py_XDECREF(mapping);
        Py_XDECREF(error);
        Py_XDECREF(both);
        forget_error();
    }
    leave_as(frame, now, (uint8_t)((frame->record.kind & ~OPEN) | ERROR)); /* it may ask a ContextVar: no error may be set */
    PyErr_Restore(kind, value, trace);
}

/* ---- the type ---- */

/* A key that is no 64-bit integer goes among the arguments. */
static int set_key(Span *span, PyObject *key)
{
    int overflow = 0;
    span->key = NO_KEY;
    if (key == Py_None)
        return 0;
    PyObject *number = PyIndex_Check(key) ? PyNumber_Index(key) : NULL;
    long long value = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : 0;
    Py_XDECREF(number);
    if (number && !overflow && !PyErr_Occurred() && value != NO_KEY) {
        span->key = value;
        return 0;
    }
    forget_error();
    if (!span->args)
        span->args = PyDict_New();
    return span->args ? PyDict_SetItemString(span->args, "key", key) : -1;
}

static uint8_t level_of(PyObject *value)
{
    long level = value && value != Py_None ? PyLong_AsLong(value) : NORMAL;
    if (level == -1 && PyErr_Occurred()) {
        forget_error();
        level = NORMAL;
    }
    return (uint8_t)(level < ESSENTIAL ? ESSENTIAL : level > DETAIL ? DETAIL : level);
}

static PyObject *dict_of(PyObject *mapping)
{
    PyObject *dict = PyDict_New();
    if (dict && PyDict_Update(dict, mapping) != 0) {
        forget_error(); /* no mapping at all: keep what it is, as one argument */
        if (PyDict_SetItemString(dict, "args", mapping) != 0)
            Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *span_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    /* object's own `new` gives subclasses attributes inside the object, which are found three times as fast. */
    newfunc make = (newfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_new);
    PyObject *empty = PyTuple_New(0);
    Span *self = empty ? (Span *)make(type, empty, NULL) : NULL;
    Py_XDECREF(empty);
    if (self) {
        self->on = 1;
        self->gate = &self->on;
        self->key = NO_KEY;
        self->level = NORMAL;
    }
    return (PyObject *)self;
}

static int add_name_argument(Span *self, PyObject *name)
{
    if (!self->args)
        self->args = PyDict_New();
    return self->args ? PyDict_SetItemString(self->args, "name", name) : -1;
}

static int set_name(Span *self, PyObject *name, PyObject *cat)
{
    int full;
    PyObject *known = cat ? Py_NewRef(cat) : Py_NewRef(g.user);
    self->id = name_id(known, name, &full);
    Py_DECREF(known);
    if (!self->id)
        return -1;
    return full ? add_name_argument(self, name) : 0;
}

static int set_base(Span *self, PyObject *base, PyObject *enable)
{
    if (base != Py_None && !PyObject_TypeCheck(base, span_type)) {
        PyErr_Format(PyExc_TypeError, "base must be a Span, not %R", base);
        return -1;
    }
    if (base != Py_None)
        put_owned((PyObject **)&self->base, Py_NewRef(base));
    int forced = enable == Py_None ? -1 : PyObject_IsTrue(enable);
    if (forced < 0)
        forget_error();
    self->gate = forced >= 0 ? (forced ? &always : &never) : self->base ? self->base->gate : &self->on;
    return 0;
}

static int span_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", "cat", "key", "args", "level", "base", "enable", NULL};
    Span *self = (Span *)object;
    PyObject *name, *cat = NULL, *key = Py_None, *own = Py_None, *level = NULL, *base = Py_None, *enable = Py_None;
    if (!kwargs && PyTuple_Size(args) == 1) /* the usual `span("name")`, without the slow parser */
        return set_name(self, PyTuple_GetItem(args, 0), NULL);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O$OOOOO:Span", names, &name, &cat, &key, &own, &level, &base, &enable))
        return -1;
    if (own != Py_None)
        put_owned(&self->args, dict_of(own));
    self->level = level_of(level);
    return set_base(self, base, enable) || set_name(self, name, cat) || set_key(self, key) ? -1 : 0;
}

static void span_dealloc(PyObject *object)
{
    Span *self = (Span *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF((PyObject *)self->base);
    Py_XDECREF(self->args);
    Py_XDECREF(self->shared);
    Py_XDECREF(self->encoded);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static inline void enter_object(Span *self)
{
    if (taken(self))
        frame_unref(enter_span(self, self->key, (PyObject *)self));
    else if (unlikely(g.recording))
        pass_over((PyObject *)self);
}

static PyObject *span_enter(PyObject *object, PyObject *Py_UNUSED(none))
{
    enter_object((Span *)object);
    return Py_NewRef(object);
}

static void leave_span(PyObject *object, PyObject *type)
{
    Thread *t = self_thread;
    Frame *frame = t ? t->top : NULL;
    int plain = type == Py_None || type == PyExc_GeneratorExit;
    if (likely(frame && frame->span == object && alive(frame) && !t->tasks)) {
        frame->refs++;
        if (likely(plain)) {
            leave_in(t, frame, clock_now(), (uint8_t)(frame->record.kind & ~OPEN));
            return;
        }
    } else {
        frame = find_frame(object);
    }
    if (frame && plain)
        leave(frame);
    else if (frame)
        leave_error(frame, (Span *)object, type);
}

static PyObject *span_exit(PyObject *object, PyObject *const *args, Py_ssize_t count)
{
    leave_span(object, count > 0 ? args[0] : Py_None);
    Py_RETURN_NONE;
}

/* start() and stop(): `which` is called with the word instead when metadata is true. */
static int wants_metadata(PyObject *const *args, Py_ssize_t count, PyObject *names, int *metadata)
{
    *metadata = 0;
    if (likely(count == 0 && !names))
        return 0;
    Py_ssize_t keywords = names ? PyTuple_Size(names) : 0;
    if (count + keywords != 1 || (keywords && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "metadata") != 0)) {
        PyErr_SetString(PyExc_TypeError, "start() and stop() take only the argument metadata");
        return -1;
    }
    *metadata = PyObject_IsTrue(args[0]);
    return *metadata < 0 ? -1 : 0;
}

static PyObject *stamp(PyObject *object, const char *which)
{
    PyObject *result = ((Span *)object)->id ? PyObject_CallMethod(object, "stamp", "s", which) : NULL;
    Py_XDECREF(result);
    forget_error();
    Py_RETURN_NONE;
}

static PyObject *span_start(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    int metadata;
    if (wants_metadata(args, count, names, &metadata) != 0)
        return NULL;
    if (metadata)
        return stamp(object, "start");
    enter_object((Span *)object);
    Py_RETURN_NONE;
}

static PyObject *span_stop(PyObject *object, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    int metadata;
    if (wants_metadata(args, count, names, &metadata) != 0)
        return NULL;
    if (metadata)
        return stamp(object, "end");
    leave_span(object, Py_None);
    Py_RETURN_NONE;
}

static PyObject *span_pair(Span *self, Py_ssize_t which)
{
    PyObject *pair = self->id ? PyList_GetItem(g.names_list, (Py_ssize_t)self->id - 1) : NULL;
    if (!pair) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    return Py_XNewRef(PyTuple_GetItem(pair, which));
}

static PyObject *span_get_cat(PyObject *self, void *Py_UNUSED(none))
{
    return span_pair((Span *)self, 0);
}

static PyObject *span_get_name(PyObject *self, void *Py_UNUSED(none))
{
    return span_pair((Span *)self, 1);
}

static PyObject *span_get_on(PyObject *self, void *Py_UNUSED(none))
{
    return PyBool_FromLong(*((Span *)self)->gate);
}

static int span_set_on(PyObject *self, PyObject *value, void *Py_UNUSED(none))
{
    int on = value ? PyObject_IsTrue(value) : -1;
    if (on < 0) {
        PyErr_SetString(PyExc_TypeError, "on must be true or false");
        return -1;
    }
    ((Span *)self)->on = (uint8_t)on;
    return 0;
}

static PyObject *span_get_shared(PyObject *self, void *Py_UNUSED(none))
{
    PyObject *shared = ((Span *)self)->shared;
    return Py_NewRef(shared ? shared : Py_None);
}

static int span_set_shared(PyObject *self, PyObject *value, void *Py_UNUSED(none))
{
    PyObject *dict = value && value != Py_None ? dict_of(value) : NULL;
    if (value && value != Py_None && !dict)
        return -1;
    put_owned(&((Span *)self)->shared, dict);
    g.args_version++;
    return 0;
}

static PyObject *span_repr(PyObject *self)
{
    PyObject *cat = span_get_cat(self, NULL), *name = span_get_name(self, NULL), *kind = PyType_GetName(Py_TYPE(self));
    PyObject *text = cat && name && kind ? PyUnicode_FromFormat("<%U %S.%S>", kind, cat, name) : NULL;
    Py_XDECREF(cat);
    Py_XDECREF(name);
    Py_XDECREF(kind);
    return text;
}

/* By what it was made of: the ids of names are those of this process. */
static PyObject *span_reduce(PyObject *object, PyObject *Py_UNUSED(none))
{
    Span *self = (Span *)object;
    PyObject *key = self->key == NO_KEY ? Py_NewRef(Py_None) : PyLong_FromLongLong(self->key);
    PyObject *enable = self->gate == &always ? Py_True : self->gate == &never ? Py_False : Py_None;
    return Py_BuildValue(
        "O(ONNNOiOOiO)", remake, Py_TYPE(object), span_get_name(object, NULL), span_get_cat(object, NULL), key, or_none(self->args),
        (int)self->level, or_none((PyObject *)self->base), enable, (int)self->on, or_none(self->shared));
}

static PyObject *span_remake(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *kind, *name, *cat, *key, *args, *level, *base, *enable, *on, *shared;
    if (!PyArg_ParseTuple(arguments, "OOOOOOOOOO", &kind, &name, &cat, &key, &args, &level, &base, &enable, &on, &shared))
        return NULL;
    PyObject *places = PyTuple_Pack(2, name, cat);
    PyObject *named = Py_BuildValue("{sOsOsOsOsO}", "key", key, "args", args, "level", level, "base", base, "enable", enable);
    PyObject *span = places && named ? PyObject_Call(kind, places, named) : NULL;
    Py_XDECREF(places);
    Py_XDECREF(named);
    if (span && (PyObject_SetAttrString(span, "on", on) != 0 || PyObject_SetAttrString(span, "shared", shared) != 0))
        Py_CLEAR(span);
    return span;
}

static PyObject *span_wrap(PyObject *self, PyObject *function);

static PyMethodDef span_methods[] = {
    {"__enter__", span_enter, METH_NOARGS, "Enter the span."},
    {"__exit__", (PyCFunction)(void (*)(void))span_exit, METH_FASTCALL, "Leave the innermost entry of this span."},
    {"start", (PyCFunction)(void (*)(void))span_start, METH_FASTCALL | METH_KEYWORDS, "Enter the span; metadata=True also writes a mark."},
    {"stop", (PyCFunction)(void (*)(void))span_stop, METH_FASTCALL | METH_KEYWORDS, "Leave the span; metadata=True also writes a mark."},
    {"__reduce__", span_reduce, METH_NOARGS, "Its constructor arguments, for pickle."},
    {"wrap", span_wrap, METH_O, "Record each call of a plain function."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef span_getset[] = {
    {"name", span_get_name, NULL, "Name of its events.", NULL},
    {"cat", span_get_cat, NULL, "Category of its events.", NULL},
    {"on", span_get_on, span_set_on, "Whether it records; checked at each entry.", NULL},
    {"shared", span_get_shared, span_set_shared, "Arguments of all its events and of spans derived from it.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot span_slots[] = {
    {Py_tp_doc, "A named span of time."},
    {Py_tp_new, span_new},
    {Py_tp_init, span_init},
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_repr, span_repr},
    {Py_tp_methods, span_methods},
    {Py_tp_getset, span_getset},
    {0, NULL},
};
static PyType_Spec span_spec = {"sonde.native.core.Span", sizeof(Span), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, span_slots};

/* ---- entries with keys of their own ---- */

static int is_span(PyObject *const *args, Py_ssize_t count, Py_ssize_t most, const char *what)
{
    if (likely(count >= 1 && count <= most && PyObject_TypeCheck(args[0], span_type)))
        return 1;
    PyErr_Format(PyExc_TypeError, "%s() takes a Span first, and at most %zd arguments", what, most);
    return 0;
}

/* The number in an object; `otherwise` if it is none that a record can hold. */
static int64_t key_of(PyObject *key, int64_t otherwise)
{
    int overflow = 0;
    PyObject *number = PyLong_CheckExact(key) ? Py_NewRef(key) : key != Py_None && PyIndex_Check(key) ? PyNumber_Index(key) : NULL;
    long long value = number ? PyLong_AsLongLongAndOverflow(number, &overflow) : otherwise;
    Py_XDECREF(number);
    forget_error();
    return overflow || value == NO_KEY ? otherwise : value;
}

static PyObject *enter_keyed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!is_span(args, count, 2, "enter"))
        return NULL;
    Span *span = (Span *)args[0];
    if (taken(span))
        frame_unref(enter_span(span, count > 1 ? key_of(args[1], span->key) : span->key, args[0]));
    else if (unlikely(g.recording))
        pass_over(args[0]);
    Py_RETURN_NONE;
}

static PyObject *leave_keyed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!is_span(args, count, 3, "leave"))
        return NULL;
    Frame *frame = find_frame(args[0]);
    if (!frame)
        Py_RETURN_NONE;
    if (count > 1)
        frame->record.key = key_of(args[1], frame->record.key);
    if (likely(count < 3 || args[2] == Py_None || args[2] == PyExc_GeneratorExit))
        leave(frame);
    else
        leave_error(frame, (Span *)args[0], args[2]);
    Py_RETURN_NONE;
}

static PyObject *cancel_entry(PyObject *Py_UNUSED(module), PyObject *span)
{
    if (!is_span(&span, 1, 1, "cancel"))
        return NULL;
    Frame *frame = find_frame(span);
    if (frame)
        cancel(frame);
    Py_RETURN_NONE;
}

static PyObject *turn_entry(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (!is_span(args, count, 3, "turn"))
        return NULL;
    if (count < 2 || !PyObject_TypeCheck(args[1], span_type))
        return PyErr_Format(PyExc_TypeError, "turn() takes two Spans, and perhaps a key");
    Span *into = (Span *)args[1];
    Frame *frame = find_frame(args[0]);
    if (!frame)
        Py_RETURN_NONE;
    frame->record.key = count > 2 ? key_of(args[2], into->key) : into->key;
    rename_frame(frame, into->id);
    leave(frame);
    Py_RETURN_NONE;
}

#endif
