#include "tensor.h"
#include "errors.h"

/* The exchange in this capsule; NULL: torch has none, or another than this one, or, with an exception, it is no capsule. */
static const Exchange *exchange_of(PyObject *capsule)
{
    const Exchange *found = capsule == Py_None ? NULL : PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    return found && found->major == 1 && found->view ? found : NULL;
}

static const Exchange *exchange;    /* NULL: nothing is read here */
static PyObject *is_copied_late;    /* tells whether a tensor is copied on write: DLPack would copy it */
static PyObject *s_storage, *s_nbytes, *s_offset;

int tensors_known(PyObject *capsule, PyObject *copied_late)
{
    static const Name names[] = {{&s_storage, "untyped_storage"}, {&s_nbytes, "nbytes"}, {&s_offset, "storage_offset"}, {NULL, NULL}};
    if (make_names(names) < 0)
        return -1;
    put_owned(&is_copied_late, Py_NewRef(copied_late));
    exchange = exchange_of(capsule);
    return PyErr_Occurred() ? -1 : 0;
}

int tensors_are_read(void)
{
    return exchange != NULL;
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
    int64_t bytes = storage ? number_of(PyObject_CallMethodObjArgs(storage, s_nbytes, NULL)) : -1;
    int64_t offset = bytes < 0 ? -1 : number_of(PyObject_CallMethodObjArgs(tensor, s_offset, NULL));
    Py_XDECREF(storage);
    return offset < 0 ? -1 : (offset + end) * ((view->bits + 7) / 8) <= bytes;
}

int view_of(PyObject *tensor, View *view)
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
