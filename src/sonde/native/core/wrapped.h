/* Wrapped: a function whose calls are recorded, with no Python frame between the caller and it. */
#ifndef SONDE_WRAPPED_H
#define SONDE_WRAPPED_H

#include "../shared/callable.h"
#include "span.h"

typedef struct {
    CALLABLE_HEAD
    Span *span;
} Wrapped;

static PyTypeObject *wrapped_type;

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
    Wrapped *w = dict ? callable_new(wrapped_type, wrapped_call, OWNED(Wrapped, span), function) : NULL;
    if (!w) {
        Py_XDECREF(dict);
        return NULL;
    }
    w->span = (Span *)Py_NewRef(self);
    w->dict = dict;
    return (PyObject *)w;
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

static PyMethodDef wrapped_methods[] = {REDUCE, {NULL, NULL, 0, NULL}};
static const PyType_Slot wrapped_slots[] = {{Py_tp_repr, wrapped_repr}, {Py_tp_methods, wrapped_methods}, {0, NULL}};

#endif
