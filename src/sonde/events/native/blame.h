/* What C does with a failure of its own code, which the program must never see. */
#ifndef SONDE_BLAME_H
#define SONDE_BLAME_H

#include "abi.h"

static int raise_later(void *value)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)value), (PyObject *)value);
    Py_DECREF((PyObject *)value);
    return -1;
}

/* The exception that is set, if there is one: `told`, in Python, counts it and gives something up. */
static void blame_on(PyObject *told)
{
    PyObject *kind, *value, *trace;
    if (!PyErr_Occurred())
        return;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (value && !PyErr_GivenExceptionMatches(value, PyExc_Exception)) { /* of a handler of a signal: the program's */
        if (Py_AddPendingCall(raise_later, Py_NewRef(value)) != 0)
            Py_DECREF(value);
    } else {
        Py_XDECREF(value ? PyObject_CallFunctionObjArgs(told, value, NULL) : NULL);
    }
    PyErr_Clear();
    Py_XDECREF(kind);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

#endif
