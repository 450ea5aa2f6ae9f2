/* Writing into the ledger of a process, as `Writer.put` of store/ledger.py does where there is room and nobody is at it. */
#ifndef SONDE_LEDGER_H
#define SONDE_LEDGER_H

#include "abi.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static PyObject *s_lock, *s_locked, *s_used, *s_room, *s_buffer, *s_batches;

static int ledger_names(void)
{
    static const char *const texts[] = {"_lock", "locked", "_used", "_room", "_buffer", "_batches"};
    PyObject **const names[] = {&s_lock, &s_locked, &s_used, &s_room, &s_buffer, &s_batches};
    for (int i = 0; i < 6; i++)
        if (!(*names[i] = PyUnicode_InternFromString(texts[i])))
            return -1;
    return 0;
}

/* The number that this attribute is; -1, perhaps with an exception: it is none. */
static int64_t number_at(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int64_t number = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

static int set_number(PyObject *object, PyObject *name, int64_t number)
{
    PyObject *value = PyLong_FromLongLong(number);
    int set = value && PyObject_SetAttr(object, name, value) == 0;
    Py_XDECREF(value);
    return set;
}

static int write_at(PyObject *buffer, int64_t used, const char *entry, int64_t size)
{
    Py_buffer view;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE) != 0)
        return 0;
    int fits = used >= 0 && used + size <= view.len;
    if (fits) {
        volatile char *place = (char *)view.buf + used;
        memcpy((char *)place + 1, entry + 1, (size_t)size - 1);
        atomic_signal_fence(memory_order_release);
        *place = *entry; /* last: from now on it counts */
    }
    PyBuffer_Release(&view);
    return fits;
}

/* Adds an entry that stands for so many batches. No Python code runs in here. 0, perhaps with an exception: it is not written. */
static int put_quickly(PyObject *writer, const char *entry, int64_t size, int batches)
{
    PyObject *lock = PyObject_GetAttr(writer, s_lock), *buffer = lock ? PyObject_GetAttr(writer, s_buffer) : NULL;
    PyObject *locked = buffer ? PyObject_CallMethodObjArgs(lock, s_locked, NULL) : NULL;
    int64_t used = locked == Py_False ? number_at(writer, s_used) : -1;
    int64_t room = used >= 0 ? number_at(writer, s_room) : -1;
    int64_t before = batches && room - used >= size ? number_at(writer, s_batches) : 0;
    int put = room - used >= size && before >= 0 && write_at(buffer, used, entry, size) && set_number(writer, s_used, used + size);
    if (put && batches)
        put = set_number(writer, s_batches, before + batches);
    Py_XDECREF(lock);
    Py_XDECREF(buffer);
    Py_XDECREF(locked);
    return put;
}

static char *put_number(char *place, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        place[i] = (char)(number >> (8 * i));
    return place + bytes;
}

#endif
