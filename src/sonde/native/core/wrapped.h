/* Wrapped: a function whose calls are recorded, with no Python frame between the caller and it. */
#ifndef SONDE_WRAPPED_H
#define SONDE_WRAPPED_H

#include "span.h"

typedef struct {
    PyObject_HEAD
    PyObject *function;
    Span *span;
    PyObject *dict;
    PyObject *weak;
    vectorcallfunc call;
} Wrapped;

static PyTypeObject *wrapped_type;
static PyObject *method_type;

static PyObject *wrapped_call(PyObject *self, PyObject *const *args, size_t count, PyObject *names)
{
    Wrapped *w = (Wrapped *)self;
    Span *span = w->span;
    Frame *frame = taken(span) ? enter_span(span, span->key, NULL) : NULL;
    PyObject *result = PyObject_Vectorcall(w->function, args, count, names);
    if (frame) {
        if (likely(result != NULL)) /* a call returns in the thread that made it */
            leave_in(frame->thread, frame, clock_now(), (uint8_t)(frame->record.kind & ~OPEN));
        else
            leave_error(frame, span, NULL);
    }
    return result;
}

static int copy_attribute(PyObject *dict, PyObject *function, const char *name)
{
    PyObject *value = PyObject_GetAttrString(function, name);
    if (!value) {
        PyErr_Clear();
        return 0;
    }
    int failed = PyDict_SetItemString(dict, name, value);
    Py_DECREF(value);
    return failed;
}

/* A dict that makes the wrapper look like the function. */
static PyObject *dict_like(PyObject *function)
{
    static const char *names[] = {"__module__", "__name__", "__qualname__", "__doc__", NULL};
    PyObject *dict = PyDict_New();
    PyObject *theirs = PyObject_GetAttrString(function, "__dict__");
    if (!theirs)
        PyErr_Clear();
    if (dict && theirs && PyDict_Update(dict, theirs) != 0)
        PyErr_Clear();
    Py_XDECREF(theirs);
    for (int i = 0; dict && names[i]; i++)
        if (copy_attribute(dict, function, names[i]) != 0)
            Py_CLEAR(dict);
    if (dict && PyDict_SetItemString(dict, "__wrapped__", function) != 0)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *span_wrap(PyObject *self, PyObject *function)
{
    if (!PyCallable_Check(function))
        return PyErr_Format(PyExc_TypeError, "a span decorates a function, not %R", function);
    PyObject *dict = dict_like(function);
    Wrapped *w = dict ? PyObject_GC_New(Wrapped, wrapped_type) : NULL;
    if (!w) {
        Py_XDECREF(dict);
        return NULL;
    }
    w->function = Py_NewRef(function);
    w->span = (Span *)Py_NewRef(self);
    w->dict = dict;
    w->weak = NULL;
    w->call = wrapped_call;
    PyObject_GC_Track(w);
    return (PyObject *)w;
}

static int wrapped_traverse(PyObject *self, visitproc visit, void *arg)
{
    Wrapped *w = (Wrapped *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(w->function);
    Py_VISIT(w->span);
    Py_VISIT(w->dict);
    return 0;
}

static int wrapped_clear(PyObject *self)
{
    Wrapped *w = (Wrapped *)self;
    Py_CLEAR(w->dict);
    return 0;
}

static void wrapped_dealloc(PyObject *self)
{
    Wrapped *w = (Wrapped *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (w->weak)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(w->function);
    Py_XDECREF((PyObject *)w->span);
    Py_XDECREF(w->dict);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *wrapped_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

static PyObject *wrapped_getattr(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(((Wrapped *)self)->function, name);
}

static PyObject *wrapped_repr(PyObject *self)
{
    Wrapped *w = (Wrapped *)self;
    PyObject *cat = span_get_cat((PyObject *)w->span, NULL), *name = span_get_name((PyObject *)w->span, NULL);
    PyObject *text = cat && name ? PyUnicode_FromFormat("<%R recorded as %S.%S>", w->function, cat, name) : NULL;
    Py_XDECREF(cat);
    Py_XDECREF(name);
    return text;
}

/* Pickled, and so copied, by name, as functions are. */
static PyObject *wrapped_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef wrapped_methods[] = {
    {"__reduce__", wrapped_reduce, METH_NOARGS, "By name."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef wrapped_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapped, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Wrapped, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Wrapped, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef wrapped_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot wrapped_slots[] = {
    {Py_tp_dealloc, wrapped_dealloc},
    {Py_tp_traverse, wrapped_traverse},
    {Py_tp_clear, wrapped_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, wrapped_get},
    {Py_tp_getattro, wrapped_getattr},
    {Py_tp_repr, wrapped_repr},
    {Py_tp_methods, wrapped_methods},
    {Py_tp_members, wrapped_members},
    {Py_tp_getset, wrapped_getset},
    {0, NULL},
};
static PyType_Spec wrapped_spec = {
    "sonde.native.core.Wrapped", sizeof(Wrapped), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    wrapped_slots};

#endif
