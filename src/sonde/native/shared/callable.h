/* Objects that are called in the place of a function, without a Python frame in between. Each begins with CALLABLE_HEAD; the references
   that it owns stand in a row, `function` first, so that all of them are visited and freed alike. */
#ifndef SONDE_CALLABLE_H
#define SONDE_CALLABLE_H

#include "objects.h"

#define CALLABLE_HEAD \
    PyObject_HEAD \
    vectorcallfunc vector; \
    PyObject *weak; \
    Py_ssize_t owned;   /* how many references of ours stand here */ \
    PyObject *function; /* what is called otherwise, or in the end; may be NULL */ \
    PyObject *dict;     /* NULL: it has no attributes */

typedef struct {
    CALLABLE_HEAD
} Callable;

/* How many references a struct owns, of which this member is the last. */
#define OWNED(STRUCT, LAST) ((Py_ssize_t)((offsetof(STRUCT, LAST) - offsetof(STRUCT, function)) / sizeof(PyObject *)) + 1)

/* FUNCTION: it binds as a method, pickles by name, and has the attributes of the function beside its own. */
enum { PLAIN_CALL, FUNCTION };

/* A type of such objects. `members`: more of them, or NULL. `more`: other slots, up to one of 0. */
PyTypeObject *callable_type(const char *name, size_t size, int kind, const PyMemberDef *members, const PyType_Slot *more);

/* An object of it, with zeros behind the head. FUNCTION needs a `dict`. */
void *callable_new(PyTypeObject *type, vectorcallfunc vector, Py_ssize_t owned, PyObject *function);
void *function_new(PyTypeObject *type, vectorcallfunc vector, Py_ssize_t owned, PyObject *function);

void callable_dealloc(PyObject *self);
int callable_traverse(PyObject *self, visitproc visit, void *arg);
PyObject *function_reduce(PyObject *self, PyObject *none);

/* Each type of kind FUNCTION has it among its methods. */
#define REDUCE {"__reduce__", function_reduce, METH_NOARGS, "Pickle by name, like a function."}

#endif
