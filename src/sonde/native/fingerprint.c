/* A batch at a glance: the fast path of `blackbox/fingerprint.py`, for plain tensors of the host, texts and numbers in plain containers, as nearly
   all batches are. Whatever else there is, Python looks. `native/fingerprint.pyi` says what is what. */
#include "shared/callable.h"
#include "shared/errors.h"
#include "shared/ledger.h"
#include "shared/tensor.h"

#include <math.h>
#include <string.h>

#define WHOLE 16384 /* the limits of blackbox/fingerprint.py */
#define BLOCKS 16
#define MOST_PARTS 64
#define MOST_DEPTH 4
#define MOST_ROW 1024
#define FIRST 8
#define MOST_DIMS 16 /* of an array that lies in another order than its own: more are left to Python */
#define FEW 6 /* parts of a batch for which there is room in any case */

enum { TENSOR, EXCHANGE, COPIED_LATE, DIGEST, LOOK, PARTS };
static const char *const part_names[] = {"tensor", "exchange", "copied_late", "digest", "look", NULL};
static PyObject *parts[PARTS];
static PyObject *places[FIRST]; /* the ways to the first parts of a row: tuples of a number */
static newfunc tuple_new;
static PyObject *s_version;

/* ---- one look ---- */

typedef struct {
    PyObject *way, *part; /* owned */
    int64_t version;      /* torch's count of changes; UNCOUNTED: it is no tensor */
} Part;

typedef struct {
    Part few[FEW], *more; /* parts; those for which there is no room in `few` are in memory of its own */
    int found;            /* how many there are */
    PyObject *exclude;
    uint64_t digest;
    int64_t size;
    int count, whole;
} Glance;

#define UNCOUNTED (-1)

static Part *part_at(Glance *glance, int place)
{
    return place < FEW ? &glance->few[place] : &glance->more[place - FEW];
}

enum { OTHER, ARRAY, CONTAINER, SINGLE };

static int kind_of(PyObject *part)
{
    PyTypeObject *type = Py_TYPE(part);
    if ((PyObject *)type == parts[TENSOR])
        return ARRAY;
    if (type == &PyTuple_Type || type == &PyList_Type || type == &PyDict_Type)
        return CONTAINER;
    int single = type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBytes_Type ||
                 type == &PyBool_Type || part == Py_None;
    return single ? SINGLE : OTHER;
}

/* A digest of these bytes and of all before. -1 with an exception. */
static int digest_of(Glance *glance, const char *data, int64_t size)
{
    PyObject *args[2] = {PyMemoryView_FromMemory((char *)data, size, PyBUF_READ), PyLong_FromUnsignedLongLong(glance->digest)};
    PyObject *made = args[0] && args[1] ? PyObject_Vectorcall(parts[DIGEST], args, 2, NULL) : NULL;
    Py_XDECREF(args[0]);
    Py_XDECREF(args[1]);
    if (made)
        glance->digest = PyLong_AsUnsignedLongLongMask(made); /* it has 64 bits, and this asks less */
    Py_XDECREF(made);
    return PyErr_Occurred() ? -1 : 0;
}

/* Of a large array only blocks of it. */
RARE static int digest_of_sample(Glance *glance, const char *data, int64_t size)
{
    char sample[WHOLE];
    int64_t apart = size / BLOCKS;
    for (int i = 0; i < BLOCKS; i++)
        memcpy(sample + i * (WHOLE / BLOCKS), data + i * apart, WHOLE / BLOCKS);
    return digest_of(glance, sample, WHOLE);
}

static int add_digest(Glance *glance, const char *data, int64_t size)
{
    glance->whole &= size <= WHOLE;
    glance->count++;
    return (size > WHOLE ? digest_of_sample : digest_of)(glance, data, size) == 0;
}

/* One that lies in another order than its own is read as it lies, after its strides. 0: this batch is not plain. */
RARE static int look_at_turned(Glance *glance, const View *view, int64_t size)
{
    int64_t strides[MOST_DIMS];
    if (!is_filled(view->dims, view->shape, view->strides)) {
        glance->whole = 0;
        return 1;
    }
    if (view->dims > MOST_DIMS)
        return 0;
    for (int i = 0; i < view->dims; i++)
        strides[i] = view->shape[i] == 1 ? 0 : view->strides[i];
    return digest_of(glance, (const char *)strides, view->dims * (int64_t)sizeof *strides) == 0 &&
           add_digest(glance, (const char *)view->data + view->offset, size);
}

/* Those of which Python decides whether they have memory that may be read are left to it: all that are empty or hold one number. */
static int look_at(Glance *glance, PyObject *tensor)
{
    View view;
    int dense;
    if (view_of(tensor, &view) != READABLE || view.device != CPU || view.lanes != 1 || view.bits % 8 || !view.data)
        return 0;
    if (view.code != SIGNED && view.code != UNSIGNED && view.code != FLOATING && view.code != BRAIN && view.code != TRUTH)
        return 0;
    int64_t count = count_of(&view, &dense);
    if (!view.dims || count <= (view.code == FLOATING || view.code == BRAIN))
        return 0;
    int64_t version = number_at(tensor, s_version), size = count * (view.bits / 8);
    if (version < 0)
        return 0;
    part_at(glance, glance->found - 1)->version = version;
    glance->size += size;
    return dense ? add_digest(glance, (const char *)view.data + view.offset, size) : look_at_turned(glance, &view, size);
}

static int add_number(Glance *glance, PyObject *number)
{
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    glance->whole &= !overflow;
    return overflow || add_digest(glance, (const char *)&value, sizeof value);
}

static int add_text(Glance *glance, PyObject *text)
{
    Py_ssize_t size;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &size);
    return bytes && add_digest(glance, bytes, size); /* none: half a character, which is left to Python */
}

/* A text or a number. */
static int look_at_single(Glance *glance, PyObject *part)
{
    if (part == Py_None)
        return add_digest(glance, "", 0);
    if (PyUnicode_CheckExact(part))
        return add_text(glance, part);
    if (PyBytes_CheckExact(part))
        return add_digest(glance, PyBytes_AsString(part), PyBytes_Size(part));
    if (!PyFloat_CheckExact(part))
        return add_number(glance, part);
    double value = PyFloat_AsDouble(part);
    return add_digest(glance, (const char *)&value, sizeof value);
}

static int add_part(Glance *glance, PyObject *way, PyObject *part)
{
    if (glance->found == FEW && !(glance->more = PyMem_Calloc(MOST_PARTS - FEW, sizeof(Part))))
        return 0;
    *part_at(glance, glance->found++) = (Part){Py_NewRef(way), Py_NewRef(part), UNCOUNTED};
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *way);

static PyObject *longer(PyObject *way, PyObject *key)
{
    Py_ssize_t depth = PyTuple_Size(way);
    PyObject *made = PyTuple_New(depth + 1);
    for (Py_ssize_t i = 0; made && i < depth; i++)
        PyTuple_SetItem(made, i, Py_NewRef(PyTuple_GetItem(way, i)));
    if (made)
        PyTuple_SetItem(made, depth, Py_NewRef(key));
    return made;
}

/* 1: go on. 0: this batch is not plain. */
static int collect_under(Glance *glance, PyObject *way, PyObject *key, PyObject *part)
{
    Py_INCREF(part); /* a collection of garbage may run meanwhile, and with it any code */
    PyObject *further = longer(way, key);
    int plain = further && collect(glance, part, further);
    Py_XDECREF(further);
    Py_DECREF(part);
    return plain;
}

static int collect_dict(Glance *glance, PyObject *data, PyObject *way)
{
    PyObject *key, *part;
    Py_ssize_t place = 0;
    while (PyDict_Next(data, &place, &key, &part)) {
        int left_out = kind_of(key) == SINGLE ? PySet_Contains(glance->exclude, key) : -1; /* others may run any code */
        if (left_out < 0)
            return 0;
        if (left_out)
            continue;
        if (glance->found >= MOST_PARTS) {
            glance->whole = 0;
            return 1;
        }
        if (!collect_under(glance, way, key, part))
            return 0;
    }
    return 1;
}

/* As `collect_under`, of a row, whose places are never left out. */
static int collect_at(Glance *glance, PyObject *way, Py_ssize_t place, PyObject *part)
{
    if (place < FIRST && PyTuple_Size(way) == 0) {
        Py_INCREF(part);
        int plain = collect(glance, part, places[place]);
        Py_DECREF(part);
        return plain;
    }
    PyObject *key = PyLong_FromSsize_t(place);
    int plain = key && collect_under(glance, way, key, part);
    Py_XDECREF(key);
    return plain;
}

/* What lies in a container that is not taken apart: texts and numbers are read. */
static int look_inside(Glance *glance, PyObject *data)
{
    if (PyDict_CheckExact(data)) {
        glance->whole &= !PyDict_Size(data);
        return 1;
    }
    Py_ssize_t count = length_of(data);
    glance->whole &= count <= MOST_ROW;
    for (Py_ssize_t i = 0; i < count && i < MOST_ROW; i++) {
        PyObject *part = Py_XNewRef(item_of(data, i));
        int kind = part ? kind_of(part) : OTHER;
        if (kind != SINGLE)
            glance->whole &= kind == CONTAINER && !PyObject_Size(part);
        int plain = part && (kind != SINGLE || look_at_single(glance, part));
        Py_XDECREF(part);
        if (!plain)
            return 0;
    }
    return 1;
}

static int collect_row(Glance *glance, PyObject *data, PyObject *way)
{
    Py_ssize_t count = length_of(data);
    int nests = 0;
    for (Py_ssize_t i = 0; i < count && i < FIRST; i++) {
        int kind = kind_of(item_of(data, i));
        if (kind == OTHER)
            return 0;
        nests |= kind != SINGLE;
    }
    if (!nests)
        return add_part(glance, way, data) && look_inside(glance, data);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (glance->found >= MOST_PARTS) {
            glance->whole = 0;
            return 1;
        }
        PyObject *part = item_of(data, i);
        if (!part || !collect_at(glance, way, i, part))
            return 0;
    }
    return 1;
}

static int collect(Glance *glance, PyObject *data, PyObject *way)
{
    switch (kind_of(data)) {
    case ARRAY:
        return add_part(glance, way, data) && look_at(glance, data);
    case SINGLE:
        return add_part(glance, way, data) && (data == Py_None || look_at_single(glance, data));
    case CONTAINER:
        if (PyTuple_Size(way) >= MOST_DEPTH)
            return add_part(glance, way, data) && look_inside(glance, data);
        return PyDict_CheckExact(data) ? collect_dict(glance, data, way) : collect_row(glance, data, way);
    default:
        return 0;
    }
}

/* Its parts, as Python has them. */
static PyObject *found_made(Glance *glance)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < glance->found; i++) {
        PyObject *pair = PyTuple_Pack(2, part_at(glance, i)->way, part_at(glance, i)->part);
        if (!pair || PyList_Append(made, pair) != 0)
            Py_CLEAR(made);
        Py_XDECREF(pair);
    }
    return made;
}

static PyObject *versions_made(Glance *glance)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < glance->found; i++) {
        if (part_at(glance, i)->version == UNCOUNTED)
            continue;
        PyObject *version = PyLong_FromLongLong(part_at(glance, i)->version);
        if (!version || PyList_Append(made, version) != 0)
            Py_CLEAR(made);
        Py_XDECREF(version);
    }
    PyObject *row = made ? PyList_AsTuple(made) : NULL;
    Py_XDECREF(made);
    return row;
}

/* A `Fingerprint`, which is a tuple, without a Python frame. */
static PyObject *look_made(Glance *glance)
{
    PyObject *digest = glance->count ? PyLong_FromUnsignedLongLong(glance->digest) : Py_NewRef(Py_None);
    PyObject *versions = versions_made(glance), *size = PyLong_FromLongLong(glance->size);
    PyObject *values = digest && versions && size
                           ? PyTuple_Pack(5, digest, glance->whole ? Py_True : Py_False, versions, size, Py_False)
                           : NULL;
    PyObject *given = values ? PyTuple_Pack(1, values) : NULL;
    PyObject *made = given ? tuple_new((PyTypeObject *)parts[LOOK], given, NULL) : NULL;
    Py_XDECREF(digest);
    Py_XDECREF(versions);
    Py_XDECREF(size);
    Py_XDECREF(values);
    Py_XDECREF(given);
    return made;
}

/* 1: `glance` has all of it. 0, perhaps with an exception: this batch is not plain. To be cleared in any case. */
static int glance_at(Glance *glance, PyObject *data, PyObject *exclude)
{
    *glance = (Glance){.exclude = Py_NewRef(exclude), .whole = 1};
    PyObject *way = PyTuple_New(0);
    int plain = tensors_are_read() && way && collect(glance, data, way);
    Py_XDECREF(way);
    return plain;
}

static void glance_cleared(Glance *glance)
{
    Glance old = *glance; /* freeing may run any code */
    memset(glance, 0, sizeof *glance);
    for (int i = 0; i < old.found; i++) {
        Py_DECREF(part_at(&old, i)->way);
        Py_DECREF(part_at(&old, i)->part);
    }
    PyMem_Free(old.more);
    Py_XDECREF(old.exclude);
}

static PyObject *glanced(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *exclude, *result = NULL;
    Glance glance;
    if (!PyArg_ParseTuple(args, "OO", &data, &exclude))
        return NULL;
    if (!PyAnySet_Check(exclude))
        Py_RETURN_NONE;
    if (glance_at(&glance, data, exclude)) {
        PyObject *look = look_made(&glance), *found = look ? found_made(&glance) : NULL;
        result = found ? PyTuple_Pack(2, found, look) : NULL;
        Py_XDECREF(look);
        Py_XDECREF(found);
    }
    glance_cleared(&glance);
    if (!result && interrupted())
        return NULL;
    return result ? result : Py_NewRef(Py_None);
}

static PyObject *prepare(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    int taken = take_arguments(args, kwargs, part_names, parts);
    return taken < 0 || tensors_known(parts[EXCHANGE], parts[COPIED_LATE]) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- losses, and whose they are: as blackbox/losses.py ---- */

#define MOST_LOSSES 64
#define ITERATIONS 4
#define NUMBER_BITS 28
#define ROUND_BITS 16
#define NEW (-1)
#define LOST (-2)
#define NO_KEY (-1)

typedef struct {
    int64_t number, newest, moment;
    int64_t unused, ahead;
    int burst;
} Iteration;

typedef struct {
    CALLABLE_HEAD /* the function: what writes them */
    PyObject *told, *ask;
    double values[MOST_LOSSES]; /* the newest one is at `count - 1`, modulo */
    int64_t count, moment;
    Iteration known[ITERATIONS];
    Iteration *now; /* may be NULL */
} Latest;

/* Some of the newest values, and the key of the batch that the first of them is of: NO_KEY is the newest batch, whichever that is. */
typedef struct {
    int64_t first, from, until; /* places among the values */
    int lost;                   /* all batches of the iteration up to `first` have none */
} Owned;

static PyTypeObject *latest_type;

static void came(Latest *latest, int64_t key)
{
    Iteration *now = latest->known;
    latest->now = NULL;
    if (key < 0)
        return;
    int64_t number = key >> NUMBER_BITS;
    for (Iteration *one = latest->known; one < latest->known + ITERATIONS; one++)
        if (one->number == number || (now->number != number && one->moment < now->moment))
            now = one;
    if (now->number != number || key != now->newest + 1)
        *now = (Iteration){number, key, 0, 0, NEW, 0};
    now->newest = key;
    now->moment = ++latest->moment;
    now->unused += now->unused < MOST_LOSSES;
    latest->now = now;
}

/* Has another loader delivered batches that are used later? */
static int others_owe(const Latest *latest, const Iteration *now)
{
    for (const Iteration *one = latest->known; one < latest->known + ITERATIONS; one++)
        if (one->unused > 0 && (one->ahead > 0 || one->burst) && (one->number ^ now->number) >> ROUND_BITS)
            return 1;
    return 0;
}

/* The first loss since the iteration began. */
RARE static void begin(Latest *latest, Iteration *now)
{
    int owe = others_owe(latest, now);
    if (owe)
        now->ahead = LOST;
    if (owe || now->unused < 2)
        return;
    PyObject *back = PyObject_CallFunction(latest->ask, "LL", (long long)now->newest, (long long)now->unused);
    long long number = back && back != Py_None ? PyLong_AsLongLong(back) : -1;
    Py_XDECREF(back);
    if (number < 0 || number >= now->unused)
        now->ahead = LOST;
    else
        now->unused = number + 1;
}

static void note_value(Latest *latest, double value)
{
    Iteration *now = latest->now;
    if (now && !latest->count && now->ahead == NEW)
        begin(latest, now);
    latest->values[latest->count++ % MOST_LOSSES] = value;
}

static Owned matched(Latest *latest, int final)
{
    int64_t count = latest->count;
    Iteration copy, *now = latest->now;
    if (now && !final) {
        copy = *now;
        now = &copy;
    }
    if (final)
        latest->count = 0; /* the values stay for the caller */
    if (!count || (now && now->ahead == LOST))
        return (Owned){NO_KEY, 0, 0, 0};
    if (!now)
        return (Owned){NO_KEY, count - 1, count, 0};
    if (now->ahead == NEW) {
        now->burst = now->unused > 1 && count > 1;
        now->ahead = now->unused > count ? now->unused - count : 0;
    }
    if (!now->burst && now->ahead == 0) {
        now->unused = 0;
        return (Owned){now->newest, count - 1, count, 0};
    }
    int64_t most = count + now->ahead, waiting = now->burst ? (now->unused < most ? now->unused : most) : now->ahead + 1;
    if (count > waiting) {
        now->ahead = LOST;
        return (Owned){now->newest, 0, 0, 1};
    }
    now->unused = waiting - count;
    int64_t from = count > MOST_LOSSES ? count - MOST_LOSSES : 0;
    return (Owned){now->newest - waiting + 1 + from, from, count, 0};
}

static PyObject *latest_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Latest *latest = (Latest *)self;
    PyObject *result = PyObject_Vectorcall(latest->function, args, flags, names);
    if (!result || args_in(flags) < 2)
        return result;
    double value = PyFloat_AsDouble(args[1]);
    if (!PyErr_Occurred()) {
        note_value(latest, value);
        if (!isfinite(value) && !PyErr_Occurred())
            Py_XDECREF(PyObject_CallFunctionObjArgs(latest->told, args[1], NULL));
    }
    if (PyErr_Occurred())
        Py_CLEAR(result);
    return result;
}

static PyObject *latest_note(PyObject *self, PyObject *value)
{
    double number = PyFloat_AsDouble(value);
    if (!PyErr_Occurred())
        note_value((Latest *)self, number);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

static PyObject *latest_came(PyObject *self, PyObject *key)
{
    long long number = key == Py_None ? NO_KEY : PyLong_AsLongLong(key);
    if (PyErr_Occurred())
        return NULL;
    came((Latest *)self, number);
    Py_RETURN_NONE;
}

static int add_owned(PyObject *list, int64_t key, PyObject *loss)
{
    PyObject *pair = key == NO_KEY ? Py_BuildValue("(OO)", Py_None, loss) : Py_BuildValue("(LO)", (long long)key, loss);
    int added = pair ? PyList_Append(list, pair) : -1;
    Py_XDECREF(pair);
    return added;
}

static PyObject *latest_settled(PyObject *self, PyObject *final)
{
    Latest *latest = (Latest *)self;
    Owned owned = matched(latest, final == Py_True);
    PyObject *made = PyList_New(0);
    int added = made ? 0 : -1;
    for (int64_t i = owned.from; added == 0 && i < owned.until; i++) {
        PyObject *loss = PyFloat_FromDouble(latest->values[i % MOST_LOSSES]);
        added = loss ? add_owned(made, owned.first == NO_KEY ? NO_KEY : owned.first + i - owned.from, loss) : -1;
        Py_XDECREF(loss);
    }
    for (int i = 0; added == 0 && owned.lost && i < MOST_LOSSES && i <= owned.first; i++)
        added = add_owned(made, owned.first - i, Py_None);
    if (added < 0)
        Py_CLEAR(made);
    return made;
}

static PyMethodDef latest_methods[] = {
    {"note", latest_note, METH_O, "A loss goes into its backward pass."},
    {"came", latest_came, METH_O, "A batch was delivered."},
    {"settled", latest_settled, METH_O, "Whose the losses are that have come since the newest batch."},
    {NULL, NULL, 0, NULL},
};
static const PyType_Slot latest_slots[] = {{Py_tp_methods, latest_methods}, {0, NULL}};

static PyObject *latest(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *note, *told, *ask;
    if (!PyArg_ParseTuple(args, "OOO", &note, &told, &ask))
        return NULL;
    Latest *made = callable_new(latest_type, latest_call, OWNED(Latest, ask), note);
    if (!made)
        return NULL;
    made->told = Py_NewRef(told);
    made->ask = Py_NewRef(ask);
    for (int i = 0; i < ITERATIONS; i++)
        made->known[i] = (Iteration){-1, -1, 0, 0, NEW, 0};
    return (PyObject *)made;
}

/* ---- batches that are delivered ---- */

/* What of a black box is asked for each batch: the part of it that is C's. There is one for the life of a process. */
typedef struct {
    PyObject_HEAD
    long long due; /* when it is time to look around */
    char suspect;  /* a loss was not finite */
    PyObject *ring;
} State;

static PyTypeObject *state_type;
static PyMemberDef state_members[] = {
    {"due", T_LONGLONG, offsetof(State, due), 0, "When it is time to look around."},
    {"suspect", T_BOOL, offsetof(State, suspect), 0, "A loss was not finite."},
    {"ring", T_OBJECT, offsetof(State, ring), 0, "The batches that are kept."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot state_slots[] = {{Py_tp_members, state_members}, {0, NULL}};
static PyType_Spec state_spec = {"sonde.native.fingerprint.State", sizeof(State), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, state_slots};

#define MOST_KEPT 64

enum { BOX, CONTEXT, KEPT, LATEST, BOOK, SAMPLED, READ, NOTE, DELIVERY_PARTS };
static const char *const delivery_names[] = {"box", "context", "kept", "latest", "book", "sampled", "read", "note", NULL};
enum { BATCH, KEY, DATA, STEP, EPOCH, FOUND, SEEN, LOSS, ATTRIBUTES };

/* What becomes a `DeliveredBatch` when somebody asks for it. */
typedef struct {
    PyObject *batch, *key, *data, *context;
    double loss;
    int has_loss;
    int64_t number; /* the key; NO_KEY: there is none */
    Glance glance;
} Entry;

typedef struct {
    CALLABLE_HEAD
    PyObject *parts[DELIVERY_PARTS];
    PyObject *ring; /* whose attributes the following are; may be NULL */
    PyObject *held, *exclude;
    int64_t limit, most;
    Entry entries[MOST_KEPT]; /* newer than all that are held; the oldest is the one at `first` */
    int first, count;
} Delivery;

static PyTypeObject *delivery_type;
static PyObject *attributes[ATTRIBUTES]; /* their names in a DeliveredBatch */
static PyObject *s_held, *s_exclude, *s_limit, *s_reads, *s_maxlen, *s_popleft, *s_settings,
    *s_writer;

/* Is this attribute that object? */
static int is(PyObject *object, PyObject *name, PyObject *wanted)
{
    PyObject *value = PyObject_GetAttr(object, name);
    Py_XDECREF(value);
    return value == wanted;
}

static void entry_cleared(Entry *entry)
{
    Py_CLEAR(entry->batch);
    Py_CLEAR(entry->key);
    Py_CLEAR(entry->data);
    Py_CLEAR(entry->context);
    glance_cleared(&entry->glance);
}

/* The oldest entry, which is the caller's now. There has to be one. */
static Entry entry_taken(Delivery *delivery)
{
    Entry entry = delivery->entries[delivery->first];
    delivery->entries[delivery->first] = (Entry){0};
    delivery->first = (delivery->first + 1) % MOST_KEPT;
    delivery->count--;
    return entry;
}

/* What a ring is never changes. 0: it is none for us, as where nothing is read of batches. */
static int learn(Delivery *delivery, PyObject *ring)
{
    if (ring == delivery->ring)
        return 1;
    put_owned(&delivery->ring, NULL);
    put_owned(&delivery->held, PyObject_GetAttr(ring, s_held));
    put_owned(&delivery->exclude, PyObject_GetAttr(ring, s_exclude));
    delivery->limit = number_at(ring, s_limit);
    delivery->most = delivery->held ? number_at(delivery->held, s_maxlen) : -1;
    if (PyErr_Occurred() || !is(ring, s_reads, Py_True) || !PyAnySet_Check(delivery->exclude))
        return 0;
    if (delivery->most < 1 || delivery->most > MOST_KEPT || delivery->count > delivery->most)
        return 0;
    delivery->ring = Py_NewRef(ring);
    return 1;
}

/* Is there a ring, and nothing to be done but to put the batch there? */
static int is_usual(Delivery *delivery)
{
    State *box = (State *)delivery->parts[BOX];
    if (box->suspect || now_ns() >= box->due || !box->ring || box->ring == Py_None)
        return 0;
    PyObject *ring = Py_NewRef(box->ring);
    int known = learn(delivery, ring);
    Py_DECREF(ring);
    return known;
}

/* A `DeliveredBatch`, as `Ring.keep` makes it. */
static PyObject *kept_made(Delivery *delivery, Entry *entry)
{
    PyObject *made = PyObject_CallNoArgs(delivery->parts[KEPT]);
    PyObject *look = made ? look_made(&entry->glance) : NULL, *found = look ? found_made(&entry->glance) : NULL;
    PyObject *loss = found && entry->has_loss ? PyFloat_FromDouble(entry->loss) : NULL;
    PyObject *values[ATTRIBUTES] = {entry->batch, entry->key, entry->data, PyTuple_GetItem(entry->context, 0),
                                    PyTuple_GetItem(entry->context, 1), found, look, loss};
    int set = found && !PyErr_Occurred() ? 0 : -1;
    for (int i = 0; set == 0 && i < ATTRIBUTES; i++)
        set = values[i] ? PyObject_SetAttr(made, attributes[i], values[i]) : 0; /* without a loss it is that of the class */
    Py_XDECREF(look);
    Py_XDECREF(found);
    Py_XDECREF(loss);
    if (set < 0)
        Py_CLEAR(made);
    return made;
}

static PyObject *delivery_newer(PyObject *self, PyObject *Py_UNUSED(none))
{
    Delivery *delivery = (Delivery *)self;
    Entry taken[MOST_KEPT]; /* making objects may run any code: meanwhile they are nobody else's */
    int count = delivery->count;
    for (int i = 0; i < count; i++)
        taken[i] = entry_taken(delivery);
    PyObject *made = PyList_New(0);
    for (int i = 0; made && i < count; i++) {
        PyObject *kept = kept_made(delivery, &taken[i]);
        if (!kept || PyList_Append(made, kept) != 0)
            Py_CLEAR(made);
        Py_XDECREF(kept);
    }
    int back = !made && !delivery->count; /* there is no memory now */
    for (int i = 0; i < count; i++)
        if (back)
            delivery->entries[(delivery->first + delivery->count++) % MOST_KEPT] = taken[i];
        else
            entry_cleared(&taken[i]);
    return made;
}

/* The same of one that Python keeps. */
RARE static int set_loss_of_held(PyObject *holder, Py_ssize_t held, int64_t key, const double *loss)
{
    PyObject *value = loss ? PyFloat_FromDouble(*loss) : Py_NewRef(Py_None);
    for (Py_ssize_t i = held - 1; value && i >= 0; i--) {
        PyObject *kept = PySequence_GetItem(holder, i);
        int found = kept && (key == NO_KEY || number_at(kept, attributes[KEY]) == key);
        if (kept && !found)
            PyErr_Clear(); /* its key is None */
        if (found)
            PyObject_SetAttr(kept, attributes[LOSS], value);
        Py_XDECREF(kept);
        if (found || !kept)
            break;
    }
    Py_XDECREF(value);
    return !PyErr_Occurred();
}

/* The loss of the batch with this key, as far as it is still there; NO_KEY: of the newest. NULL: it has none. */
static int set_loss(Delivery *delivery, PyObject *holder, Py_ssize_t held, int64_t key, const double *loss)
{
    for (int i = delivery->count - 1; i >= 0; i--) {
        Entry *entry = &delivery->entries[(delivery->first + i) % MOST_KEPT];
        if (key == NO_KEY || entry->number == key) {
            entry->has_loss = loss != NULL;
            entry->loss = loss ? *loss : 0;
            return 1;
        }
    }
    return !held || set_loss_of_held(holder, held, key, loss);
}

/* Batches get to know the losses that came of them. */
static int settle(Delivery *delivery, PyObject *holder, Py_ssize_t held)
{
    Latest *latest = (Latest *)delivery->parts[LATEST];
    Owned owned = matched(latest, 1);
    int done = 1;
    for (int64_t i = owned.from; done && i < owned.until; i++) {
        double loss = latest->values[i % MOST_LOSSES];
        done = set_loss(delivery, holder, held, owned.first == NO_KEY ? NO_KEY : owned.first + i - owned.from, &loss);
    }
    for (int i = 0; done && owned.lost && i < MOST_LOSSES && i <= owned.first; i++)
        done = set_loss(delivery, holder, held, owned.first - i, NULL);
    return done;
}

/* Room for one more entry: the oldest goes, which may be one that is held. */
static int make_room(Delivery *delivery, PyObject *holder, Py_ssize_t held)
{
    if (held + delivery->count < delivery->most)
        return 1;
    if (held) {
        PyObject *oldest = PyObject_CallMethodObjArgs(holder, s_popleft, NULL);
        Py_XDECREF(oldest);
        return oldest != NULL;
    }
    if (delivery->count) {
        Entry oldest = entry_taken(delivery);
        entry_cleared(&oldest);
    }
    return 1;
}

/* 1: the batch is in the ring, and the glance at it too. 0, perhaps with an exception: it is not. */
static int keep(Delivery *delivery, PyObject *const *given, Glance *glance)
{
    Py_ssize_t held = PyObject_Size(delivery->held);
    int64_t after = held + delivery->count < delivery->most ? held + delivery->count + 1 : delivery->most;
    if (held < 0 || glance->size > delivery->limit / after) /* then older ones would have to go too */
        return 0;
    PyObject *context = PyObject_CallNoArgs(delivery->parts[CONTEXT]), *holder = Py_NewRef(delivery->held);
    long long number = given[1] == Py_None ? NO_KEY : PyLong_AsLongLong(given[1]);
    int ready = !PyErr_Occurred() && context && PyTuple_Check(context) && PyTuple_Size(context) == 2 && settle(delivery, holder, held) &&
                make_room(delivery, holder, held) && delivery->count < MOST_KEPT; /* freeing a batch may run any code */
    Py_DECREF(holder);
    if (!ready) {
        Py_XDECREF(context);
        return 0;
    }
    delivery->entries[(delivery->first + delivery->count++) % MOST_KEPT] =
        (Entry){Py_NewRef(given[0]), Py_NewRef(given[1]), Py_NewRef(given[2]), context, 0, 0, number, *glance};
    came((Latest *)delivery->parts[LATEST], number);
    return 1;
}

/* ---- the digest of a batch ---- */

enum { ENTRY_BYTES = 24 };

/* The entry of a digest in the ledger: how it begins, then key and digest. */
static int make_entry(char *entry, PyObject *beginning, PyObject *key, uint64_t digest)
{
    long long number = PyLong_CheckExact(key) ? PyLong_AsLongLong(key) : -1;
    if (number < 0 || PyBytes_Size(beginning) != 8)
        return 0;
    memcpy(entry, PyBytes_AsString(beginning), 8);
    put_number(put_number(entry + 8, (uint64_t)number, 8), digest, 8);
    return 1;
}

/* As `note_digest` of probes/loader/ledger.py, which does it where this cannot. */
static int note_digest(Delivery *delivery, PyObject *key, uint64_t digest, int whole)
{
    char entry[ENTRY_BYTES];
    PyObject *book = delivery->parts[BOOK], *writer = PyObject_GetAttr(book, s_writer), *done = NULL;
    int noted = writer && (writer == Py_None || is(book, s_settings, Py_None));
    if (writer && !noted)
        noted = make_entry(entry, delivery->parts[whole ? READ : SAMPLED], key, digest) &&
                put_quickly(writer, entry, ENTRY_BYTES, 0);
    Py_XDECREF(writer);
    if (!noted && !interrupted())
        done = PyObject_CallFunction(delivery->parts[NOTE], "OKO", key, (unsigned long long)digest, whole ? Py_True : Py_False);
    Py_XDECREF(done);
    return noted || done;
}

static PyObject *delivery_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Delivery *delivery = (Delivery *)self;
    Glance glance = {0};
    Py_INCREF(self); /* whoever runs meanwhile may switch the black box off */
    int plain = !names && args_in(flags) == 3 && is_usual(delivery);
    int kept = plain && glance_at(&glance, args[2], delivery->exclude) && keep(delivery, args, &glance);
    PyObject *result = NULL;
    if (kept) {
        if (args[1] == Py_None || !glance.count || note_digest(delivery, args[1], glance.digest, glance.whole))
            result = Py_NewRef(Py_None);
    } else {
        glance_cleared(&glance);
        if (!interrupted())
            result = PyObject_Vectorcall(delivery->function, args, flags, names);
    }
    if (!result && !interrupted())
        result = Py_NewRef(Py_None);
    Py_DECREF(self);
    return result;
}

static int delivery_clear(PyObject *self)
{
    Delivery *delivery = (Delivery *)self;
    while (delivery->count) {
        Entry entry = entry_taken(delivery);
        entry_cleared(&entry);
    }
    Py_CLEAR(delivery->ring);
    Py_CLEAR(delivery->held);
    Py_CLEAR(delivery->exclude);
    return 0;
}

static void delivery_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    delivery_clear(self);
    callable_dealloc(self);
}

static int delivery_traverse(PyObject *self, visitproc visit, void *arg)
{
    for (int i = 0; i < MOST_KEPT; i++) {
        Entry *entry = &((Delivery *)self)->entries[i];
        Py_VISIT(entry->batch);
        Py_VISIT(entry->data);
        for (int j = 0; j < entry->glance.found; j++)
            Py_VISIT(part_at(&entry->glance, j)->part);
    }
    return callable_traverse(self, visit, arg);
}

static PyMethodDef delivery_methods[] = {
    {"newer", delivery_newer, METH_NOARGS, "What was kept since this was asked before, oldest first."},
    {NULL, NULL, 0, NULL},
};
static const PyType_Slot delivery_slots[] = {{Py_tp_dealloc, delivery_dealloc}, {Py_tp_traverse, delivery_traverse},
                                             {Py_tp_clear, delivery_clear}, {Py_tp_methods, delivery_methods}, {0, NULL}};

static PyObject *delivery(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs)
{
    PyObject *slow, *none = PyTuple_New(0);
    Delivery *made = none && PyArg_ParseTuple(args, "O", &slow) ? callable_new(delivery_type, delivery_call, OWNED(Delivery, exclude), slow) : NULL;
    if (made && take_arguments(none, kwargs, delivery_names, made->parts) < 0)
        Py_CLEAR(made);
    Py_XDECREF(none);
    if (made && (!PyObject_TypeCheck(made->parts[BOX], state_type) || Py_TYPE(made->parts[LATEST]) != latest_type ||
                 !PyBytes_Check(made->parts[SAMPLED]) || !PyBytes_Check(made->parts[READ]))) {
        Py_CLEAR(made);
        PyErr_SetString(PyExc_TypeError, "delivery() takes a State as box, a Latest, and bytes as sampled and read");
    }
    return (PyObject *)made;
}

/* ---- the module ---- */

static PyMethodDef functions[] = {
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_VARARGS | METH_KEYWORDS, "Take what is needed of torch, the function of digests, and the class of a look."},
    {"glance", glanced, METH_VARARGS, "The parts of a batch and the look at them; None: it is not plain."},
    {"latest", latest, METH_VARARGS, "What writes losses, and knows whose they are."},
    {"delivery", (PyCFunction)(void (*)(void))delivery, METH_VARARGS | METH_KEYWORDS, "What is told of batches, and keeps the plain ones."},
    {NULL, NULL, 0, NULL},
};

int fill_fingerprint(PyObject *module)
{
    static const Name names[] = {
        {&s_version, "_version"}, {&s_held, "held"}, {&s_exclude, "exclude"}, {&s_limit, "limit"}, {&s_reads, "reads"}, {&s_maxlen, "maxlen"},
        {&s_popleft, "popleft"}, {&s_settings, "settings"}, {&s_writer, "writer"}, {&attributes[BATCH], "batch"}, {&attributes[KEY], "key"},
        {&attributes[DATA], "data"}, {&attributes[STEP], "step"}, {&attributes[EPOCH], "epoch"}, {&attributes[FOUND], "parts"},
        {&attributes[SEEN], "seen"}, {&attributes[LOSS], "loss"}, {NULL, NULL}};
    for (int i = 0; i < FIRST; i++)
        if (!(places[i] = Py_BuildValue("(i)", i)))
            return -1;
    tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    latest_type = callable_type("sonde.native.fingerprint.Latest", sizeof(Latest), PLAIN_CALL, NULL, latest_slots);
    delivery_type = callable_type("sonde.native.fingerprint.Delivery", sizeof(Delivery), PLAIN_CALL, NULL, delivery_slots);
    state_type = add_type(module, &state_spec);
    return !latest_type || !delivery_type || !state_type || make_names(names) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
