#include "callable.h"

#define MOST_SLOTS 24
#define MOST_MEMBERS 8

static PyObject *method_type;

static PyObject **owned_by(PyObject *self)
{
    return (PyObject **)((char *)self + offsetof(Callable, function));
}

int callable_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < ((Callable *)self)->owned; i++)
        Py_VISIT(owned_by(self)[i]);
    return 0;
}

/* The function stays: one may still be called while a circle that it is part of is taken apart. */
static int function_clear(PyObject *self)
{
    Py_CLEAR(((Callable *)self)->dict);
    return 0;
}

void callable_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Callable *)self)->weak)
        PyObject_ClearWeakRefs(self);
    for (Py_ssize_t i = 0; i < ((Callable *)self)->owned; i++)
        Py_XDECREF(owned_by(self)[i]);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *function_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

static PyObject *function_getattr(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(((Callable *)self)->function, name);
}

PyObject *function_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyGetSetDef function_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static int find_method_type(void)
{
    PyObject *types = method_type ? NULL : PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : method_type;
    Py_XDECREF(types);
    return method_type ? 0 : -1;
}

PyTypeObject *callable_type(const char *name, size_t size, int kind, const PyMemberDef *members, const PyType_Slot *more)
{
    static const PyMemberDef plain_members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vector), READONLY, NULL},
        {"__wrapped__", T_OBJECT_EX, offsetof(Callable, function), READONLY, "The wrapped function."},
    };
    static const PyMemberDef function_members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable, vector), READONLY, NULL},
        {"__dictoffset__", T_PYSSIZET, offsetof(Callable, dict), READONLY, NULL},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Callable, weak), READONLY, NULL},
    };
    PyMemberDef all[MOST_MEMBERS] = {{NULL, 0, 0, 0, NULL}}; /* Python copies them */
    PyType_Slot slots[MOST_SLOTS] = {
        {Py_tp_dealloc, callable_dealloc}, {Py_tp_traverse, callable_traverse}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, all}};
    int count = 4, given = kind == FUNCTION ? 3 : 2, instantiable = 0;
    for (int i = 0; i < given; i++)
        all[i] = kind == FUNCTION ? function_members[i] : plain_members[i];
    for (; members && members->name && given < MOST_MEMBERS - 1; members++)
        all[given++] = *members;
    if (kind == FUNCTION) {
        slots[count++] = (PyType_Slot){Py_tp_clear, function_clear};
        slots[count++] = (PyType_Slot){Py_tp_descr_get, function_get};
        slots[count++] = (PyType_Slot){Py_tp_getattro, function_getattr};
        slots[count++] = (PyType_Slot){Py_tp_getset, function_getset};
    }
    for (; more && more->slot; more++) {
        int place = 0;
        while (place < count && slots[place].slot != more->slot)
            place++;
        slots[place] = *more;
        count += place == count;
        instantiable |= more->slot == Py_tp_new;
    }
    PyType_Spec spec = {name, (int)size, 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                            (kind == FUNCTION ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0) | (instantiable ? 0 : Py_TPFLAGS_DISALLOW_INSTANTIATION),
                        slots};
    return find_method_type() < 0 ? NULL : (PyTypeObject *)PyType_FromSpec(&spec);
}

void *callable_new(PyTypeObject *type, vectorcallfunc vector, Py_ssize_t owned, PyObject *function)
{
    Callable *made = (Callable *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made) {
        made->vector = vector;
        made->owned = owned;
        made->function = Py_XNewRef(function);
    }
    return made;
}

void *function_new(PyTypeObject *type, vectorcallfunc vector, Py_ssize_t owned, PyObject *function)
{
    PyObject *dict = PyDict_New();
    Callable *made = dict ? callable_new(type, vector, owned, function) : NULL;
    if (made)
        made->dict = dict;
    else
        Py_XDECREF(dict);
    return made;
}
