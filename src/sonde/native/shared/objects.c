#include "objects.h"

#include <string.h>

PyObject *named_arguments(PyObject *args, PyObject *kwargs, const char *const *names)
{
    Py_ssize_t count = 0;
    while (names[count])
        count++;
    if (PyTuple_Size(args) || !kwargs || PyDict_Size(kwargs) != count)
        return PyErr_Format(PyExc_TypeError, "takes %zd keyword arguments", count);
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        PyObject *value = PyDict_GetItemString(kwargs, names[i]);
        if (value)
            PyTuple_SetItem(made, i, Py_NewRef(value));
        else {
            Py_CLEAR(made);
            PyErr_Format(PyExc_TypeError, "missing argument: %s", names[i]);
        }
    }
    return made;
}

int take_arguments(PyObject *args, PyObject *kwargs, const char *const *names, PyObject **places)
{
    PyObject *given = named_arguments(args, kwargs, names);
    for (Py_ssize_t i = 0; given && i < PyTuple_Size(given); i++)
        put_owned(&places[i], Py_NewRef(PyTuple_GetItem(given, i)));
    return done(given);
}

PyTypeObject *add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (type && module && PyModule_AddObjectRef(module, strrchr(spec->name, '.') + 1, type) != 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}
