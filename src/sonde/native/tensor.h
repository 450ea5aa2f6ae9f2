/* Tensors of torch whose memory C reads: through DLPack's exchange, and only where torch's own functions say that the memory is there and that
   a look does not change it. `tensors_known` has to be called first. */
#ifndef SONDE_TENSOR_H
#define SONDE_TENSOR_H

#include "blame.h"
#include "dlpack.h"

static const Exchange *exchange;    /* NULL: nothing is read here */
static PyObject *is_copied_late;    /* tells whether a tensor is copied on write: DLPack would copy it */
static PyObject *s_storage, *s_nbytes, *s_offset;

enum { READABLE, OPAQUE, FREED };

/* `capsule`: the exchange, or None; `copied_late`: see above. -1 with an exception. */
static int tensors_known(PyObject *capsule, PyObject *copied_late)
{
    if (!s_offset && (!(s_storage = PyUnicode_InternFromString("untyped_storage")) || !(s_nbytes = PyUnicode_InternFromString("nbytes")) ||
                      !(s_offset = PyUnicode_InternFromString("storage_offset"))))
        return -1;
    PyObject *old = is_copied_late;
    is_copied_late = Py_NewRef(copied_late);
    Py_XDECREF(old);
    exchange = exchange_of(capsule);
    return PyErr_Occurred() ? -1 : 0;
}

static int64_t asked(PyObject *object, PyObject *method)
{
    PyObject *number = object ? PyObject_CallMethodObjArgs(object, method, NULL) : NULL;
    int64_t found = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return found;
}

/* Does the storage hold all of the tensor? The program may have freed or shrunk it. -1 with an exception. */
static int is_there(PyObject *tensor, const View *view)
{
    int64_t end = 1;
    for (int i = 0; i < view->dims; i++) {
        if (!view->shape[i])
            return 1;
        end += (view->shape[i] - 1) * view->strides[i];
    }
    PyObject *storage = PyObject_CallMethodObjArgs(tensor, s_storage, NULL);
    int64_t bytes = asked(storage, s_nbytes), offset = bytes < 0 ? -1 : asked(tensor, s_offset);
    Py_XDECREF(storage);
    return offset < 0 ? -1 : (offset + end) * ((view->bits + 7) / 8) <= bytes;
}

/* READABLE: `view` is filled, and lasts as long as nobody else runs. FREED: its memory was freed. OPAQUE: Python has to look. Never an exception. */
static int view_of(PyObject *tensor, View *view)
{
    PyObject *late = exchange ? PyObject_Vectorcall(is_copied_late, &tensor, 1, NULL) : NULL;
    int seen = late == Py_False && exchange->view(tensor, view) == 0 ? READABLE : OPAQUE;
    Py_XDECREF(late);
    if (seen == READABLE && view->device == CPU) {
        int there = is_there(tensor, view);
        seen = there < 0 ? OPAQUE : there ? READABLE : FREED;
    }
    forget_error();
    return seen;
}

#endif
