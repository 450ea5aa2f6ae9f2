/* The last batches that came, as `_Recent` of nonfinite/batches.py knows them: of a plain one nothing is made but weak references to its tensors. */
#ifndef SONDE_ARRIVALS_H
#define SONDE_ARRIVALS_H

#define RECENT 4          /* as in nonfinite/batches.py */
#define MOST_REFERENCES 4 /* to tensors of a batch: as there */

typedef struct {
    PyObject *row;              /* as Python made it; NULL: the following tell all of it */
    PyObject *batch, *key, *ids;
    PyObject *held[MOST_REFERENCES]; /* weak references to the first tensors, by which it is known again; NULL from the first that is not used */
} Arrival;

typedef struct {
    PyObject_HEAD
    long long count; /* batches that came */
    long long told;  /* batches that were not finite */
    Arrival last[RECENT];
} Recent;

static PyTypeObject *recent_type;

static void arrival_cleared(Arrival *arrival)
{
    Arrival old = *arrival; /* freeing may run any code */
    memset(arrival, 0, sizeof *arrival);
    Py_XDECREF(old.row);
    Py_XDECREF(old.batch);
    Py_XDECREF(old.key);
    Py_XDECREF(old.ids);
    for (int i = 0; i < MOST_REFERENCES; i++)
        Py_XDECREF(old.held[i]);
}

static Arrival arrival_held(const Arrival *arrival)
{
    Py_XINCREF(arrival->row);
    Py_XINCREF(arrival->batch);
    Py_XINCREF(arrival->key);
    Py_XINCREF(arrival->ids);
    for (int i = 0; i < MOST_REFERENCES; i++)
        Py_XINCREF(arrival->held[i]);
    return *arrival;
}

/* Takes over what is owned by `arrival`. */
static void arrival_added(Recent *recent, Arrival arrival)
{
    Arrival *place = &recent->last[recent->count++ % RECENT], old = *place;
    *place = arrival;
    arrival_cleared(&old);
}

/* The ids of the items of a batch: under the first of these names that it has; NULL: it is not plain. Borrowed. */
static PyObject *ids_in(PyObject *data, PyObject *fields)
{
    if (PyTuple_CheckExact(data) || PyList_CheckExact(data) || (parts[TENSOR] && is_tensor(data)))
        return Py_None;
    PyObject *found = NULL;
    if (!PyDict_CheckExact(data))
        return NULL;
    for (Py_ssize_t i = 0; !found && i < PyTuple_Size(fields); i++) {
        found = PyDict_GetItemWithError(data, PyTuple_GetItem(fields, i));
        if (PyErr_Occurred())
            return NULL;
    }
    return or_none(found);
}

/* A reference to a value, if that is a tensor; `count`: how many there are. 0 with an exception. */
static int referred(Arrival *arrival, PyObject *value, int *count)
{
    if (!is_tensor(value))
        return 1;
    arrival->held[*count] = PyWeakref_NewRef(value, NULL);
    return arrival->held[(*count)++] != NULL;
}

/* References to the first tensors that lie in plain data. 0 with an exception. */
static int held_of(Arrival *arrival, PyObject *data)
{
    int count = 0;
    if (is_tensor(data))
        return referred(arrival, data, &count);
    if (PyDict_CheckExact(data)) {
        PyObject *values = PyDict_Values(data); /* making a reference may collect garbage, and with it run any code */
        for (Py_ssize_t i = 0; values && i < PyList_Size(values) && count < MOST_REFERENCES; i++)
            if (!referred(arrival, PyList_GetItem(values, i), &count))
                break;
        Py_XDECREF(values);
        return !PyErr_Occurred();
    }
    for (Py_ssize_t i = 0; i < length_of(data) && count < MOST_REFERENCES; i++)
        if (!referred(arrival, item_of(data, i), &count))
            return 0;
    return 1;
}

/* 1: the batch is known. 0, perhaps with an exception: it is not plain. `given`: batch, key, data. */
static int noted_arrival(Recent *recent, PyObject *fields, PyObject *const *given)
{
    PyObject *ids = given[1] == Py_None ? NULL : ids_in(given[2], fields);
    if (!ids)
        return 0;
    Arrival arrival = {NULL, Py_NewRef(given[0]), Py_NewRef(given[1]), Py_NewRef(ids), {NULL}};
    if (!held_of(&arrival, given[2])) {
        arrival_cleared(&arrival);
        return 0;
    }
    arrival_added(recent, arrival);
    return 1;
}

/* What Python would have made of it. */
static PyObject *row_of(const Arrival *arrival)
{
    if (arrival->row || !arrival->batch) /* taken apart as garbage */
        return Py_NewRef(or_none(arrival->row));
    Py_ssize_t count = 0;
    while (count < MOST_REFERENCES && arrival->held[count])
        count++;
    PyObject *none = PyTuple_New(0), *held = PyTuple_New(count), *row = NULL;
    for (Py_ssize_t i = 0; held && i < count; i++)
        PyTuple_SetItem(held, i, Py_NewRef(arrival->held[i]));
    if (none && held)
        row = PyTuple_Pack(5, arrival->batch, arrival->key, arrival->ids, none, held);
    Py_XDECREF(none);
    Py_XDECREF(held);
    return row;
}

static PyObject *recent_rows(PyObject *self, PyObject *Py_UNUSED(none))
{
    Recent *recent = (Recent *)self;
    PyObject *made = PyList_New(0);
    for (long long i = recent->count < RECENT ? 0 : recent->count - RECENT, end = recent->count; made && i < end; i++) {
        Arrival arrival = arrival_held(&recent->last[i % RECENT]); /* another one may come meanwhile */
        PyObject *row = row_of(&arrival);
        if (!row || PyList_Append(made, row) != 0)
            Py_CLEAR(made);
        Py_XDECREF(row);
        arrival_cleared(&arrival);
    }
    return made;
}

static PyObject *recent_add(PyObject *self, PyObject *row)
{
    arrival_added((Recent *)self, (Arrival){.row = Py_NewRef(row)});
    Py_RETURN_NONE;
}

static int recent_clear(PyObject *self)
{
    for (int i = 0; i < RECENT; i++)
        arrival_cleared(&((Recent *)self)->last[i]);
    return 0;
}

static int recent_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < RECENT; i++) {
        Arrival *arrival = &((Recent *)self)->last[i];
        Py_VISIT(arrival->row);
        Py_VISIT(arrival->batch);
        Py_VISIT(arrival->ids);
    }
    return 0;
}

static void recent_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    recent_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMemberDef recent_members[] = {
    {"count", T_LONGLONG, offsetof(Recent, count), READONLY, "Batches that came."},
    {"told", T_LONGLONG, offsetof(Recent, told), 0, "Batches that were not finite."},
    {NULL, 0, 0, 0, NULL},
};
static PyMethodDef recent_methods[] = {
    {"add", recent_add, METH_O, "A batch that Python has looked at."},
    {"rows", recent_rows, METH_NOARGS, "The last ones, oldest first."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot recent_slots[] = {
    {Py_tp_dealloc, recent_dealloc}, {Py_tp_traverse, recent_traverse}, {Py_tp_clear, recent_clear},
    {Py_tp_members, recent_members}, {Py_tp_methods, recent_methods},   {0, NULL}};
static PyType_Spec recent_spec = {"sonde.native.finite.Recent", sizeof(Recent), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, recent_slots};

static PyObject *recent_made(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return ((allocfunc)PyType_GetSlot(recent_type, Py_tp_alloc))(recent_type, 0);
}

#endif
