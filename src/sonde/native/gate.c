/* Gate: a function that can be captured. While no trace runs, a call of it is a call of the function, after one test of a
   flag and without a Python frame in between. `native/gate.pyi` says what each part is for; `gate.py` has the same in Python. */
#include "abi.h"

typedef struct {
    PyObject_HEAD
    PyObject *function;
    PyObject *handler; /* called as handler(args, kwargs) while a trace runs */
    PyObject *dict;
    PyObject *weak;
    vectorcallfunc call;
} Gate;

static PyTypeObject *gate_type;
static PyObject *method_type;
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

static PyObject *gate_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Gate *gate = (Gate *)self;
    if (!watching)
        return PyObject_Vectorcall(gate->function, args, flags, names);
    Py_ssize_t count = (Py_ssize_t)(flags & ~OFFSET_BIT);
    PyObject *given = tuple_of(args, count);
    PyObject *named = given ? dict_of(args + count, names) : NULL;
    PyObject *result = named ? PyObject_CallFunctionObjArgs(gate->handler, given, named, NULL) : NULL;
    Py_XDECREF(given);
    Py_XDECREF(named);
    return result;
}

static PyObject *gate_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "handler", NULL};
    PyObject *function, *handler;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Gate", names, &function, &handler))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Gate *gate = (Gate *)allocate(type, 0);
    if (!gate)
        return NULL;
    gate->function = Py_NewRef(function);
    gate->handler = Py_NewRef(handler);
    gate->dict = PyDict_New();
    gate->weak = NULL;
    gate->call = gate_call;
    if (!gate->dict)
        Py_CLEAR(gate);
    return (PyObject *)gate;
}

static int gate_traverse(PyObject *self, visitproc visit, void *arg)
{
    Gate *gate = (Gate *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(gate->function);
    Py_VISIT(gate->handler);
    Py_VISIT(gate->dict);
    return 0;
}

/* The function stays: a gate may still be called while a circle that it is part of is taken apart. */
static int gate_clear(PyObject *self)
{
    Gate *gate = (Gate *)self;
    Py_CLEAR(gate->dict);
    return 0;
}

static void gate_dealloc(PyObject *self)
{
    Gate *gate = (Gate *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (gate->weak)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(gate->function);
    Py_XDECREF(gate->handler);
    Py_XDECREF(gate->dict);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *gate_get(PyObject *self, PyObject *instance, PyObject *Py_UNUSED(owner))
{
    if (!instance || instance == Py_None)
        return Py_NewRef(self);
    return PyObject_CallFunctionObjArgs(method_type, self, instance, NULL);
}

static PyObject *gate_getattr(PyObject *self, PyObject *name)
{
    PyObject *value = PyObject_GenericGetAttr(self, name);
    if (value || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return value;
    PyErr_Clear();
    return PyObject_GetAttr(((Gate *)self)->function, name);
}

static PyObject *gate_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<%R, traced>", ((Gate *)self)->function);
}

/* Pickled, and so copied, by name, as functions are. */
static PyObject *gate_reduce(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef gate_methods[] = {
    {"__reduce__", gate_reduce, METH_NOARGS, "By name."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef gate_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Gate, call), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(Gate, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Gate, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef gate_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gate_slots[] = {
    {Py_tp_new, gate_new},
    {Py_tp_dealloc, gate_dealloc},
    {Py_tp_traverse, gate_traverse},
    {Py_tp_clear, gate_clear},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_descr_get, gate_get},
    {Py_tp_getattro, gate_getattr},
    {Py_tp_repr, gate_repr},
    {Py_tp_methods, gate_methods},
    {Py_tp_members, gate_members},
    {Py_tp_getset, gate_getset},
    {0, NULL},
};
static PyType_Spec gate_spec = {
    "sonde.native.gate.Gate", sizeof(Gate), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR, gate_slots};

static PyObject *watch(PyObject *Py_UNUSED(module), PyObject *on)
{
    int truth = PyObject_IsTrue(on);
    if (truth < 0)
        return NULL;
    watching = truth;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"watch", watch, METH_O, "Say whether calls go to their handlers."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "sonde.native.gate", "Functions that can be captured, at no cost while no trace runs.", -1, functions,
    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_gate(void)
{
    PyObject *types = PyImport_ImportModule("types");
    method_type = types ? PyObject_GetAttrString(types, "MethodType") : NULL;
    Py_XDECREF(types);
    gate_type = method_type ? (PyTypeObject *)PyType_FromSpec(&gate_spec) : NULL;
    PyObject *module = gate_type ? PyModule_Create(&module_def) : NULL;
    if (module && PyModule_AddObjectRef(module, "Gate", (PyObject *)gate_type) != 0)
        Py_CLEAR(module);
    return module;
}
