/* Traceable: a function that can be captured. While no trace runs, a call of it is a call of the function, after one test of a
   flag and without a Python frame in between. `native/traceable.pyi` says what each part is for; `capture/traceable.py` has the same in Python. */
#include "shared/callable.h"

typedef struct {
    CALLABLE_HEAD
    PyObject *handler; /* called as handler(args, kwargs) while a trace runs */
} Traceable;

static int watching; /* changed and read with the GIL held */

static PyObject *tuple_of(PyObject *const *args, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple && i < count; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(args[i]));
    return tuple;
}

static PyObject *dict_of(PyObject *const *values, PyObject *names)
{
    PyObject *dict = PyDict_New();
    for (Py_ssize_t i = 0; dict && names && i < PyTuple_Size(names); i++)
        if (PyDict_SetItem(dict, PyTuple_GetItem(names, i), values[i]) != 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *traceable_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Traceable *wrapper = (Traceable *)self;
    if (!watching)
        return PyObject_Vectorcall(wrapper->function, args, flags, names);
    PyObject *given = tuple_of(args, args_in(flags));
    PyObject *named = given ? dict_of(args + args_in(flags), names) : NULL;
    PyObject *result = named ? PyObject_CallFunctionObjArgs(wrapper->handler, given, named, NULL) : NULL;
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

static PyObject *traceable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "handler", NULL};
    PyObject *function, *handler;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Traceable", names, &function, &handler))
        return NULL;
    Traceable *wrapper = function_new(type, traceable_call, OWNED(Traceable, handler), function);
    if (wrapper)
        wrapper->handler = Py_NewRef(handler);
    return (PyObject *)wrapper;
}

static PyObject *traceable_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%R, traced>", ((Traceable *)self)->function);
}

static PyObject *watch(PyObject *Py_UNUSED(module), PyObject *on)
{
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    watching = truth;
    Py_RETURN_NONE;
}

int fill_traceable(PyObject *module)
{
    static PyMethodDef functions[] = {
        {"watch", watch, METH_O, "Set whether calls go to their handlers."},
        {NULL, NULL, 0, NULL},
    };
    static PyMethodDef methods[] = {REDUCE, {NULL, NULL, 0, NULL}};
    static const PyType_Slot slots[] = {{Py_tp_new, traceable_new}, {Py_tp_repr, traceable_repr}, {Py_tp_methods, methods}, {0, NULL}};
    PyTypeObject *type = callable_type("sonde.native.traceable.Traceable", sizeof(Traceable), FUNCTION, NULL, slots);
    return type && PyModule_AddFunctions(module, functions) == 0 ? PyModule_AddObjectRef(module, "Traceable", (PyObject *)type) : -1;
}
