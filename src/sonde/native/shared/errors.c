#include "errors.h"

static int raise_later(void *value)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)value), (PyObject *)value);
    Py_DECREF((PyObject *)value);
    return -1;
}

/* Takes the exception that is set, with its traceback inside it; NULL: there is none. */
static PyObject *take_error(void)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (value && trace)
        PyException_SetTraceback(value, trace);
    Py_XDECREF(kind);
    Py_XDECREF(trace);
    return value;
}

void defer_error(void)
{
    PyObject *value = take_error();
    if (value && Py_AddPendingCall(raise_later, value) != 0)
        Py_DECREF(value);
}

/* Did a signal handler raise this? `guard.py` knows. Whatever another handler raises meanwhile comes later. */
static int from_handler(PyObject *error)
{
    PyObject *trace = PyException_GetTraceback(error), *answer = NULL;
    PyObject *name = trace ? PyUnicode_FromString("sonde.guard") : NULL; /* without a traceback it is C's own */
    PyObject *guard = name ? PyImport_GetModule(name) : NULL;
    for (int i = 0; guard && !answer && i < 3; i++) {
        answer = PyObject_CallMethod(guard, "from_handler", "O", error);
        if (!answer && PyErr_ExceptionMatches(PyExc_RecursionError))
            PyErr_Clear(); /* no room to ask */
        else if (!answer)
            defer_error();
    }
    int yes = answer == Py_True;
    Py_XDECREF(trace);
    Py_XDECREF(name);
    Py_XDECREF(guard);
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

int is_theirs(void)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return 1;
    PyObject *value = take_error();
    int yes = value && from_handler(value);
    if (yes)
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
    Py_XDECREF(value);
    return yes;
}

void blame_on(PyObject *report)
{
    PyObject *value = PyErr_Occurred() ? take_error() : NULL;
    if (!value)
        return;
    Py_XDECREF(PyObject_CallFunctionObjArgs(report, value, NULL));
    Py_DECREF(value);
    forget_error();
}
