/* Small things that every part does with objects of Python. */
#ifndef SONDE_OBJECTS_H
#define SONDE_OBJECTS_H

#include "abi.h"

#include <stdint.h>
#include <time.h>

/* What is seldom run lies elsewhere: between two layers of a model the cache of instructions has none of ours. */
#if defined(__GNUC__)
#define RARE __attribute__((cold, noinline))
#else
#define RARE
#endif

static inline Py_ssize_t args_in(size_t flags)
{
    return (Py_ssize_t)(flags & ~OFFSET_BIT);
}

static inline PyObject *or_none(PyObject *borrowed)
{
    return borrowed ? borrowed : Py_None;
}

/* NULL for None. */
static inline PyObject *unless_none(PyObject *borrowed)
{
    return borrowed == Py_None ? NULL : borrowed;
}

/* Puts an owned object, or NULL, where another one is. Freeing that may run any code. */
static inline void put_owned(PyObject **place, PyObject *owned)
{
    PyObject *old = *place;
    *place = owned;
    Py_XDECREF(old);
}

/* 1, 0, or -1 with an exception, which may be the one of the call that gave it. */
static inline int truth_of(PyObject *owned)
{
    int truth = owned ? PyObject_IsTrue(owned) : -1;
    Py_XDECREF(owned);
    return truth;
}

/* -1, perhaps with an exception: it is no number. */
static inline int64_t number_of(PyObject *owned)
{
    int64_t number = owned ? PyLong_AsLongLong(owned) : -1;
    Py_XDECREF(owned);
    return number;
}

static inline int64_t number_at(PyObject *object, PyObject *name)
{
    return number_of(PyObject_GetAttr(object, name));
}

/* 0, or -1 with the exception of the call that gave it. */
static inline int done(PyObject *owned)
{
    Py_XDECREF(owned);
    return owned ? 0 : -1;
}

static inline PyObject *item_of(PyObject *row, Py_ssize_t place)
{
    return PyTuple_CheckExact(row) ? PyTuple_GetItem(row, place) : PyList_GetItem(row, place);
}

static inline Py_ssize_t length_of(PyObject *row)
{
    return PyTuple_CheckExact(row) ? PyTuple_Size(row) : PyList_Size(row);
}

static inline int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Names of attributes, made once. */
typedef struct {
    PyObject **place;
    const char *text;
} Name;

static inline int make_names(const Name *names)
{
    for (; names->place; names++)
        if (!*names->place && !(*names->place = PyUnicode_InternFromString(names->text)))
            return -1;
    return 0;
}

/* Arguments that are given by name only, each once, in the order of `names`, which ends with NULL: a new tuple. */
PyObject *named_arguments(PyObject *args, PyObject *kwargs, const char *const *names);
/* The same into an array of owned references. 0, or -1 with an exception. */
int take_arguments(PyObject *args, PyObject *kwargs, const char *const *names, PyObject **places);
/* A type for a part, added to its module if that is given. */
PyTypeObject *add_type(PyObject *module, PyType_Spec *spec);

#endif
