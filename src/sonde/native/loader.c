/* Batches of loaders: the fast paths of `hooks/torch/loader.py` and `probes/loader/`, for plain batches. `native/loader.pyi` says what
   is plain.

   A batch goes through four functions of torch, of which each has a place here: asking the sampler, sending that to a worker, making
   the batch, and waiting for it, which surrounds the others. In Python these are fifty frames, a tenth of a short step.
   Whatever is not plain goes to what stood there before. */
#include "shared/points.h"
#include "shared/ledger.h"

#include <string.h>

/* The arguments of `batches`: native/loader.pyi says what each is. */
enum {
    MOST, MAIN, BATCH, ACCOUNT, PLAIN,
    HERE, LEDGER,
    ENTERS, LEAVES, NOTES, STREAMS, /* functions of the event core */
    WAIT, SAMPLES, FETCH, ITEM,               /* spans */
    ITEMS, TOGETHER, ORIGINAL, ENTERED, DELIVER, UNSEEN, OVER, UNMADE, TICK, PAUSE,
    WORKER, FETCHER, INSPECT_FETCHER,
};
static const char *const batch_names[] = {
    "most", "main", "batch", "account", "plain", "here", "ledger", "enter", "leave", "note", "iterate_on", "wait", "samples",
    "fetch", "item", "items", "together", "original", "enter_late", "deliver_late", "fail_late", "end_late", "unmade", "tick", "pause", "worker",
    "fetcher", "inspect_fetcher", NULL};
#define MOST_ACCOUNTS 4       /* iterators that take turns */
#define MOST_ENTRY 2048    /* bytes of an entry in the ledger; a larger one is written by Python */
#define ENTRY_HEAD 16      /* as in store/ledger.py */
enum { RANGE = 1, U16, U32, I64 };
enum { STREAM = 1, ALONE };
#define MOST_SEARCH 8      /* values of a batch that are looked at, and how deep, for its size: as in probes/loader/wait.py */
enum { NO_ROWS = -1, UNTOLD = -2 };

/* How a loader makes its batches: item by item; all at once, by the dataset; one item that is no batch; from an iterable dataset. */
enum { ONE_BY_ONE, AT_ONCE, SINGLY, FLOWING };

/* What is known of an iterator. It is not kept alive. */
typedef struct {
    PyObject *iterator;       /* only compared */
    PyObject *reference;      /* a weak one to it; NULL: no account */
    PyObject *loader, *round; /* their numbers */
    PyObject *filed;          /* what workers were asked for, by number: (indices, worker); None: there are no workers */
    PyObject *ordinals;       /* of an iterable dataset: how many items were asked for, by worker; else None */
    void *fetcher;            /* which makes its batches here, if they are plain; only compared */
    long long first_key;      /* that of its first batch; -1: its batches are not plain */
    int subset;               /* numbers are places in a subset */
    int batched;              /* what it asks for is a batch, not one item */
    int making;               /* how it makes them */
} Account;

static PyObject *batch_parts; /* a tuple; NULL: there is no fast path */
static Account accounts[MOST_ACCOUNTS];
static int next_account;
static int64_t ticked;             /* when TICK was called last */
static PyObject *known_fetcher;    /* of a worker: the one that was inspected last; owned */
static long long known_key = -1;   /* and the key of its first batch; -1: its batches are not plain */
static PyObject *tensor_class; /* torch's */
static PyObject *s_iter, *s_shape, *s_number, *s_around, *s_close, *s_collate, *s_listeners, *s_yielded, *s_sent, *s_tasks, *s_dataset,
    *s_settings, *s_writer, *s_keys, *s_loop;

/* What runs in this thread. */
static _Thread_local int waits;                /* calls of `__next__`, in each other */
static _Thread_local PyObject *fetching[2];    /* the fetcher that is at work on a plain batch, and what it was asked for */
static _Thread_local struct {
    PyObject *iterator; /* whose plain batch is waited for; NULL: none */
    Account account;    /* what is known of it; owned */
    PyObject *asked;    /* what its sampler gave last; owned, may be NULL */
    PyObject *indices;  /* the numbers of the batch that is made here; owned, may be NULL */
    long long number;   /* of that batch */
    long long first;    /* of an iterable dataset: the ordinal of its first item */
} under;

static inline PyObject *of(PyObject *parts, int which)
{
    return PyTuple_GetItem(parts, which);
}

static int call_one(PyObject *function, PyObject *one, PyObject *two, PyObject *three)
{
    PyObject *given[] = {NULL, one, two, three};
    PyObject *done = PyObject_Vectorcall(function, given + 1, (size_t)(1 + (two != NULL) + (three != NULL)) | OFFSET_BIT, NULL);
    Py_XDECREF(done);
    forget_error();
    return done != NULL;
}

/* What `tick` does less often; the rest is done by whoever calls this. */
static void come_by(PyObject *parts)
{
    int64_t now = now_ns();
    if (now - ticked < PyLong_AsLongLong(of(parts, PAUSE)))
        return;
    ticked = now;
    Py_XDECREF(PyObject_CallNoArgs(of(parts, TICK)));
    forget_error();
}

static int all_numbers(PyObject *asked)
{
    Py_ssize_t size = PyList_CheckExact(asked) ? PyList_Size(asked) : 0;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!PyLong_CheckExact(PyList_GetItem(asked, i)))
            return 0;
    return size > 0;
}

/* ---- accounts ---- */

static void account_closed(Account *account)
{
    Account old = *account;
    memset(account, 0, sizeof *account);
    Py_XDECREF(old.reference);
    Py_XDECREF(old.loader);
    Py_XDECREF(old.round);
    Py_XDECREF(old.filed);
    Py_XDECREF(old.ordinals);
}

static Account account_held(const Account *account)
{
    Py_XINCREF(account->reference);
    Py_XINCREF(account->loader);
    Py_XINCREF(account->round);
    Py_XINCREF(account->filed);
    Py_XINCREF(account->ordinals);
    return *account;
}

static PyObject *forget(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    for (int i = 0; i < MOST_ACCOUNTS; i++)
        account_closed(&accounts[i]);
    Py_CLEAR(known_fetcher);
    known_key = -1;
    Py_RETURN_NONE;
}

/* Takes what ACCOUNT says of an iterator, a dict; 0, perhaps with an exception: it says nothing yet. */
static int account_opened(Account *account, PyObject *iterator, PyObject *facts)
{
    static char *names[] = {"reference", "key", "loader", "round", "filed", "ordinals", "fetcher", "subset", "batched", "making", "tensor", NULL};
    PyObject *reference, *loader, *round, *filed, *ordinals, *fetcher, *tensor, *none = PyTuple_New(0);
    long long key;
    int subset, batched, making;
    int known = none && PyDict_Check(facts) &&
                PyArg_ParseTupleAndKeywords(none, facts, "OLOOOOOppiO", names, &reference, &key, &loader, &round, &filed, &ordinals, &fetcher,
                                            &subset, &batched, &making, &tensor);
    Py_XDECREF(none);
    if (!known)
        return 0;
    account_closed(account);
    Account made = {iterator, reference, loader, round, filed, ordinals, fetcher == Py_None ? NULL : (void *)fetcher, key, subset, batched,
                    making};
    *account = account_held(&made);
    put_owned(&tensor_class, Py_NewRef(tensor));
    return 1;
}

/* The account of an iterator; NULL, perhaps with an exception: there is none. */
static Account *account_of(PyObject *parts, PyObject *iterator)
{
    for (int i = 0; i < MOST_ACCOUNTS; i++) {
        if (accounts[i].iterator == iterator && accounts[i].reference && PyWeakref_GetObject(accounts[i].reference) == iterator)
            return &accounts[i];
    }
    PyObject *facts = PyObject_CallFunctionObjArgs(of(parts, ACCOUNT), iterator, NULL);
    Account *account = &accounts[next_account];
    int opened = facts && account_opened(account, iterator, facts);
    Py_XDECREF(facts);
    if (!opened)
        return NULL;
    next_account = (next_account + 1) % MOST_ACCOUNTS;
    return account;
}

/* ---- the numbers of a batch ---- */

/* Numbers in the innermost dataset; NULL with an exception: they cannot be had. */
static PyObject *originals(PyObject *parts, PyObject *numbers)
{
    PyObject *dataset = PyObject_GetAttr(under.iterator, s_dataset);
    PyObject *found = dataset ? PyObject_CallFunctionObjArgs(of(parts, ORIGINAL), numbers, dataset, NULL) : NULL;
    Py_XDECREF(dataset);
    return found;
}

/* What a sampler gave, as a tuple; None: it is not known. NULL with an exception. */
static PyObject *indices_of(PyObject *parts, PyObject *asked)
{
    if (!under.account.batched && PyLong_CheckExact(asked))
        return PyTuple_Pack(1, asked);
    if (under.account.batched && all_numbers(asked))
        return PyList_AsTuple(asked);
    return PyObject_CallFunctionObjArgs(of(parts, PLAIN), asked, under.account.batched ? Py_True : Py_False, NULL);
}

/* How many items of an iterable dataset are asked for; -1: not known. */
static Py_ssize_t items_asked(PyObject *asked)
{
    if (!under.account.batched)
        return 1;
    return PyList_CheckExact(asked) ? PyList_Size(asked) : -1;
}

/* The ordinal of the first of the items that are asked of this worker now, as `_indices` of hooks/torch/loader.py counts them. -1, perhaps with an
   exception: it is not known. */
static long long ordinal_taken(PyObject *worker, PyObject *asked)
{
    PyObject *before = PyDict_GetItemWithError(under.account.ordinals, worker);
    Py_ssize_t count = items_asked(asked);
    long long first = before ? PyLong_AsLongLong(before) : 0;
    if (PyErr_Occurred() || count < 0)
        return -1;
    PyObject *after = PyLong_FromLongLong(first + count);
    int set = after ? PyDict_SetItem(under.account.ordinals, worker, after) : -1;
    Py_XDECREF(after);
    return set == 0 ? first : -1;
}

/* Ordinals in a row, as a tuple; None: they are not known. */
static PyObject *ordinals_from(long long first, PyObject *asked)
{
    Py_ssize_t count = items_asked(asked);
    if (first < 0 || count < 0)
        return Py_NewRef(Py_None);
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t i = 0; made && i < count; i++) {
        PyObject *one = PyLong_FromLongLong(first + i);
        if (!one || PyTuple_SetItem(made, i, one) != 0)
            Py_CLEAR(made);
    }
    return made;
}

static PyObject *batch_made(PyObject *parts, PyObject *number, PyObject *indices, PyObject *worker)
{
    PyObject *fields[] = {under.account.loader, number, indices, worker, under.account.round};
    PyTypeObject *type = (PyTypeObject *)of(parts, BATCH);
    PyObject *made = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 5);
    for (Py_ssize_t i = 0; made && i < 5; i++)
        PyTuple_SetItem(made, i, Py_NewRef(fields[i]));
    return made;
}

static int fits_in(int64_t value, int code)
{
    return code == I64 || (value >= 0 && value <= (code == U16 ? 0xffff : 0xffffffffll));
}

/* The entry of a batch, as `EntryMaker.batch` makes it; 0, perhaps with an exception: Python has to. */
static int64_t entry_made(char *entry, PyObject *indices, PyObject *worker, long long key, int flags)
{
    static const int widths[] = {0, 8, 2, 4, 8};
    Py_ssize_t count = PyTuple_Size(indices);
    long place = worker == Py_None ? -1 : PyLong_AsLong(worker);
    int code = U16, ranged = 1;
    if (count > (MOST_ENTRY - ENTRY_HEAD) / 8 || place > 0x7fff || PyErr_Occurred())
        return 0;
    int64_t first = count ? PyLong_AsLongLong(PyTuple_GetItem(indices, 0)) : 0, last = first - 1;
    char *at = entry + ENTRY_HEAD;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t value = PyLong_AsLongLong(PyTuple_GetItem(indices, i));
        if (value == -1 && PyErr_Occurred())
            return 0;
        ranged &= value - 1 == last;
        last = value;
        while (!fits_in(value, code))
            code++;
    }
    code = ranged ? RANGE : code;
    for (Py_ssize_t i = 0; i < (ranged ? 1 : count); i++)
        at = put_number(at, (uint64_t)(ranged ? first : PyLong_AsLongLong(PyTuple_GetItem(indices, i))), widths[code]);
    entry[0] = (char)code;
    entry[1] = (char)flags;
    put_number(put_number(put_number(entry + 2, (uint64_t)place, 2), (uint64_t)count, 4), (uint64_t)key, 8);
    return at - entry;
}

/* 1: which items the batch has is in the ledger. 0, perhaps with an exception: Python has to write it. */
static int ledgered(PyObject *parts, long long key, PyObject *indices, PyObject *worker, int flags)
{
    char entry[MOST_ENTRY];
    PyObject *ledger = of(parts, LEDGER), *settings = PyObject_GetAttr(ledger, s_settings);
    PyObject *writer = settings ? PyObject_GetAttr(ledger, s_writer) : NULL;
    int kept = settings == Py_None; /* there is no ledger */
    if (!kept && writer && writer != Py_None && PyTuple_CheckExact(indices)) {
        int64_t size = entry_made(entry, indices, worker, key, flags);
        kept = size > 0 && put_quickly(writer, entry, size, 1);
    }
    Py_XDECREF(settings);
    Py_XDECREF(writer);
    return kept;
}

/* ---- waiting for a batch ---- */

/* Which batch has come, of those that workers were asked for: the highest number that is outstanding no more. */
static PyObject *come_from_worker(PyObject **indices, PyObject **worker)
{
    PyObject *tasks = PyObject_GetAttr(under.iterator, s_tasks), *filed = under.account.filed, *found = NULL, *highest = NULL;
    PyObject *numbers = tasks && PyDict_Check(tasks) ? PyDict_Keys(filed) : NULL;
    long long most = -1;
    for (Py_ssize_t i = 0; numbers && i < PyList_Size(numbers); i++) {
        PyObject *number = PyList_GetItem(numbers, i);
        if (PyDict_GetItemWithError(tasks, number) || PyErr_Occurred())
            continue;
        PyObject *one = PyDict_GetItemWithError(filed, number);
        if (one && PyLong_AsLongLong(number) > most) {
            most = PyLong_AsLongLong(number);
            Py_XDECREF(found);
            found = Py_NewRef(one);
            highest = number;
        }
        PyDict_DelItem(filed, number);
    }
    Py_XINCREF(highest);
    if (found && !PyErr_Occurred() && PyTuple_CheckExact(found) && PyTuple_Size(found) == 2) {
        *indices = Py_NewRef(PyTuple_GetItem(found, 0));
        *worker = Py_NewRef(PyTuple_GetItem(found, 1));
    } else
        Py_CLEAR(highest);
    Py_XDECREF(tasks);
    Py_XDECREF(numbers);
    Py_XDECREF(found);
    return highest;
}

/* The numbers of the batch that is made here. */
static PyObject *indices_here(PyObject *parts)
{
    return under.account.ordinals == Py_None ? indices_of(parts, under.asked) : ordinals_from(under.first, under.asked);
}

/* Its number, its indices (or None) and its worker (or None); NULL, perhaps with an exception: it is not known which it was. */
static PyObject *come(PyObject *parts, PyObject **indices, PyObject **worker)
{
    if (under.account.filed != Py_None)
        return come_from_worker(indices, worker);
    if (!under.asked)
        return NULL;
    *indices = under.indices ? Py_NewRef(under.indices) : indices_here(parts);
    *worker = Py_NewRef(Py_None);
    return *indices ? PyLong_FromLongLong(under.number) : NULL;
}

static void notify_listeners(PyObject *listeners, PyObject *batch, PyObject *key, PyObject *data)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(listeners); i++)
        call_one(PyTuple_GetItem(listeners, i), batch, key, data);
}

static int64_t rows_in(PyObject *data, int deeper);

static int64_t rows_in_row(PyObject *data, int deeper)
{
    int64_t found = NO_ROWS;
    for (Py_ssize_t i = 0; found == NO_ROWS && i < MOST_SEARCH && i < length_of(data); i++)
        found = rows_in(item_of(data, i), deeper);
    return found;
}

static int64_t rows_in_dict(PyObject *data, int deeper)
{
    int64_t found = NO_ROWS;
    PyObject *key, *value;
    Py_ssize_t place = 0;
    for (int i = 0; found == NO_ROWS && i < MOST_SEARCH && PyDict_Next(data, &place, &key, &value); i++)
        found = rows_in(value, deeper);
    return found;
}

static int64_t rows_of(PyObject *tensor)
{
    Py_INCREF(tensor); /* a mode of the program's may run any code */
    PyObject *shape = PyObject_GetAttr(tensor, s_shape);
    int64_t rows = shape && PyTuple_Check(shape) ? NO_ROWS : UNTOLD;
    if (rows == NO_ROWS && PyTuple_Size(shape))
        rows = PyLong_AsLongLong(PyTuple_GetItem(shape, 0));
    Py_XDECREF(shape);
    Py_DECREF(tensor);
    PyErr_Clear();
    return rows;
}

/* The first dimension of the first tensor in plain data, as `_rows` of probes/loader/wait.py finds it; NO_ROWS: there is none; UNTOLD: Python has
   to look. */
static int64_t rows_in(PyObject *data, int deeper)
{
    PyTypeObject *type = Py_TYPE(data);
    if ((PyObject *)type == tensor_class)
        return rows_of(data);
    if (type == &PyTuple_Type || type == &PyList_Type)
        return deeper ? rows_in_row(data, deeper - 1) : NO_ROWS;
    if (type == &PyDict_Type)
        return deeper ? rows_in_dict(data, deeper - 1) : NO_ROWS;
    return type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || data == Py_None ? NO_ROWS
                                                                                                                               : UNTOLD;
}

/* How many samples this batch has; UNTOLD: Python has to say, and which of its items came, if its stream ended in it. */
static int64_t samples_in(PyObject *data, PyObject *indices)
{
    if (under.account.batched && under.account.ordinals == Py_None)
        return PyTuple_Size(indices);
    int64_t rows = rows_in(data, MOST_SEARCH);
    return rows >= 0 && under.account.ordinals != Py_None && rows < PyTuple_Size(indices) ? UNTOLD : rows;
}

static int sized(PyObject *parts, int64_t samples, PyObject *key)
{
    PyObject *count = samples < 0 ? NULL : PyLong_FromLongLong(samples);
    int done = samples < 0 || (count && call_one(of(parts, NOTES), of(parts, SAMPLES), count, key));
    Py_XDECREF(count);
    return done;
}

static void entered_late(PyObject *parts, PyObject *batch, PyObject *key, int flags)
{
    PyObject *number = PyLong_FromLong(flags);
    if (number)
        call_one(of(parts, ENTERED), batch, key, number);
    Py_XDECREF(number);
}

/* A batch of which all is known: its size, its items, and whoever wants to know of it. A `Batch` is made only for one who does. */
static void delivered(PyObject *parts, PyObject *number, PyObject *key, PyObject *indices, PyObject *worker, PyObject *data, int64_t samples)
{
    int flags = (under.account.ordinals != Py_None ? STREAM : 0) | (under.account.batched ? 0 : ALONE);
    PyObject *own = under.account.subset && indices != under.indices ? originals(parts, indices) : Py_NewRef(indices);
    PyObject *numbers = own && !PyTuple_CheckExact(own) ? PySequence_Tuple(own) : Py_XNewRef(own);
    PyObject *listeners = numbers ? PyObject_GetAttr(of(parts, HERE), s_listeners) : NULL;
    if (listeners && sized(parts, samples, key)) {
        int written = ledgered(parts, PyLong_AsLongLong(key), numbers, worker, flags);
        forget_error();
        PyObject *batch = !written || PyTuple_Size(listeners) ? batch_made(parts, number, numbers, worker) : NULL;
        if (batch && !written)
            entered_late(parts, batch, key, flags);
        if (batch)
            notify_listeners(listeners, batch, key, data);
        Py_XDECREF(batch);
    }
    Py_XDECREF(listeners);
    Py_XDECREF(own);
    Py_XDECREF(numbers);
    forget_error();
}

/* The wait has ended with a batch. What fails here is ours, and forgotten; the wait is closed in any case. */
static void wait_ended(PyObject *parts, PyObject *data)
{
    PyObject *indices = NULL, *worker = NULL, *number = come(parts, &indices, &worker);
    long long place = number ? PyLong_AsLongLong(number) : -1;
    PyObject *key = place >= 0 && place <= PyLong_AsLongLong(of(parts, MOST))
                        ? PyLong_FromLongLong(under.account.first_key + place) : NULL;
    forget_error();
    call_one(of(parts, LEAVES), of(parts, WAIT), key, NULL);
    int64_t samples = key && indices != Py_None ? samples_in(data, indices) : UNTOLD;
    if (samples != UNTOLD)
        delivered(parts, number, key, indices, worker, data, samples);
    else {
        PyObject *batch = number ? batch_made(parts, number, indices, worker) : Py_NewRef(Py_None);
        if (batch)
            call_one(of(parts, DELIVER), under.iterator, batch, data);
        Py_XDECREF(batch);
    }
    come_by(parts);
    Py_XDECREF(indices);
    Py_XDECREF(worker);
    Py_XDECREF(number);
    Py_XDECREF(key);
}

/* The wait has ended with the exception that is set; that is the program's, and stays. */
static void wait_failed(PyObject *parts)
{
    PyObject *kind, *value, *trace;
    int over = PyErr_ExceptionMatches(PyExc_StopIteration);
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_NormalizeException(&kind, &value, &trace);
    if (over) {
        PyObject *key = PyLong_FromLongLong(under.account.first_key);
        if (key)
            call_one(of(parts, OVER), key, NULL, NULL);
        Py_XDECREF(key);
    } else {
        PyObject *indices = NULL, *worker = NULL, *number = come(parts, &indices, &worker);
        PyObject *batch = number ? batch_made(parts, number, indices, worker) : Py_NewRef(Py_None);
        forget_error();
        call_one(of(parts, UNSEEN), batch ? batch : Py_None, value ? value : Py_None, NULL);
        Py_XDECREF(indices);
        Py_XDECREF(worker);
        Py_XDECREF(number);
        Py_XDECREF(batch);
    }
    forget_error();
    PyErr_Restore(kind, value, trace);
}

static PyObject *waited(Outermost *outermost, PyObject *parts, Account *account, PyObject *iterator, long long number)
{
    PyObject *given[] = {NULL, iterator};
    under.iterator = iterator;
    under.account = account_held(account);
    under.number = number;
    call_one(of(parts, ENTERS), of(parts, WAIT), NULL, NULL);
    PyObject *result = PyObject_Vectorcall(outermost->function, given + 1, 1 | OFFSET_BIT, NULL);
    if (result)
        wait_ended(parts, result);
    else
        wait_failed(parts);
    under.iterator = NULL;
    Py_CLEAR(under.asked);
    Py_CLEAR(under.indices);
    account_closed(&under.account);
    return result;
}

/* The number of the batch that comes next, where it is made here; with workers 0. -1: it is not plain. */
static long long next_number(PyObject *parts, Account *account, PyObject *iterator)
{
    if (!account || account->first_key < 0)
        return -1;
    long long number = account->filed == Py_None ? number_at(iterator, s_yielded) : 0;
    return number <= PyLong_AsLongLong(of(parts, MOST)) ? number : -1;
}

static int is_main(PyObject *parts)
{
    return PyThread_get_thread_ident() == PyLong_AsUnsignedLong(of(parts, MAIN));
}

static PyObject *slowly(Outermost *outermost, PyObject *const *args, size_t flags, PyObject *names)
{
    PyObject *subscribed = Py_NewRef(outermost->subscribed);
    PyObject *result = PyObject_Vectorcall(subscribed, args, flags, names);
    Py_DECREF(subscribed);
    return result;
}

static PyObject *next_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Outermost *outermost = (Outermost *)self;
    int plain = batch_parts && ready && !waits && !names && args_in(flags) == 1 && of(batch_parts, WORKER) == Py_None;
    PyObject *parts = plain ? Py_NewRef(batch_parts) : NULL; /* they may be taken back meanwhile */
    Account *account = plain && is_main(parts) ? account_of(parts, args[0]) : NULL;
    long long number = plain ? next_number(parts, account, args[0]) : -1;
    PyObject *result = NULL;
    waits++;
    if (number >= 0)
        result = waited(outermost, parts, account, args[0], number);
    else if (!interrupted())
        result = slowly(outermost, args, flags, names);
    waits--;
    Py_XDECREF(parts);
    return result;
}

/* ---- asking the sampler, and sending it to a worker ---- */

static int is_under_way(PyObject *const *args, size_t flags, PyObject *names)
{
    return under.iterator && !names && args_in(flags) == 1 && args[0] == under.iterator;
}

static PyObject *index_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    if (!is_under_way(args, flags, names))
        return slowly((Outermost *)self, args, flags, names);
    PyObject *result = PyObject_Vectorcall(((Outermost *)self)->function, args, flags, names);
    put_owned(&under.asked, Py_XNewRef(result));
    if (result && under.account.ordinals != Py_None && under.account.filed == Py_None) {
        under.first = ordinal_taken(Py_None, result);
        forget_error();
    }
    return result;
}

/* What a worker is asked for, as numbers. */
static PyObject *indices_for(PyObject *parts, PyObject *worker)
{
    if (under.account.ordinals == Py_None)
        return indices_of(parts, under.asked);
    return ordinals_from(ordinal_taken(worker, under.asked), under.asked);
}

/* Notes what was sent to which worker, as `_PutKeeper` does. */
static void file_task(PyObject *parts, PyObject *iterator, int64_t number)
{
    PyObject *tasks = PyObject_GetAttr(iterator, s_tasks), *key = PyLong_FromLongLong(number);
    PyObject *task = tasks && key && PyDict_Check(tasks) ? PyDict_GetItemWithError(tasks, key) : NULL;
    PyObject *worker = task && PyTuple_Check(task) && PyTuple_Size(task) > 0 ? PyTuple_GetItem(task, 0) : NULL;
    PyObject *indices = worker ? indices_for(parts, worker) : NULL;
    PyObject *entry = indices ? PyTuple_Pack(2, indices, worker) : NULL;
    if (entry)
        PyDict_SetItem(under.account.filed, key, entry);
    Py_XDECREF(tasks);
    Py_XDECREF(key);
    Py_XDECREF(indices);
    Py_XDECREF(entry);
    forget_error();
}

static PyObject *put_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    int64_t number = is_under_way(args, flags, names) && under.account.filed != Py_None ? number_at(args[0], s_sent) : -1;
    if (number < 0)
        return interrupted() ? NULL : slowly((Outermost *)self, args, flags, names);
    Py_CLEAR(under.asked);
    PyObject *result = PyObject_Vectorcall(((Outermost *)self)->function, args, flags, names);
    if (result && under.asked && batch_parts) {
        PyObject *parts = Py_NewRef(batch_parts);
        file_task(parts, args[0], number);
        Py_DECREF(parts);
    }
    return result;
}

/* ---- making a batch ---- */

static void inspect_fetcher(PyObject *parts, PyObject *fetcher)
{
    PyObject *key = PyObject_CallFunctionObjArgs(of(parts, INSPECT_FETCHER), fetcher, NULL);
    known_key = key && key != Py_None ? PyLong_AsLongLong(key) : -1;
    Py_XDECREF(key);
    put_owned(&known_fetcher, Py_NewRef(fetcher));
}

/* The number in the records of the batch that is to be made in a worker; NULL, perhaps with an exception: it is no plain one. */
static PyObject *key_in_worker(PyObject *parts, PyObject *fetcher)
{
    if ((PyObject *)Py_TYPE(fetcher) != of(parts, FETCHER))
        return NULL;
    if (fetcher != known_fetcher)
        inspect_fetcher(parts, fetcher);
    PyObject *number = known_key < 0 ? NULL : PyObject_GetAttr(of(parts, WORKER), s_number);
    long long value = number && number != Py_None ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return value < 0 || value > PyLong_AsLongLong(of(parts, MOST)) ? NULL : PyLong_FromLongLong(known_key + value);
}

/* The number in the records of a batch that is made here; NULL: it is not the one that is waited for. */
static PyObject *key_here(PyObject *const *args)
{
    if (!under.iterator || (void *)args[0] != under.account.fetcher || args[1] != under.asked)
        return NULL;
    return PyLong_FromLongLong(under.account.first_key + under.number);
}

/* The numbers of these items in the innermost dataset, where places in a subset were asked for; `indices` is taken over. */
static PyObject *own_numbers(PyObject *parts, PyObject *indices)
{
    if (of(parts, WORKER) != Py_None || !under.account.subset || !indices)
        return indices;
    PyObject *found = originals(parts, indices), *own = found ? PySequence_Tuple(found) : NULL;
    Py_DECREF(indices);
    Py_XDECREF(found);
    put_owned(&under.indices, Py_XNewRef(own));
    return own;
}

/* Ends the only item of a batch that is none, then collates. `last`: it is open still. */
static PyObject *convert_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    FastPath *fast = (FastPath *)self;
    if (fast->last) {
        fast->last = 0;
        call_one(fast->parts[0], fast->parts[1], NULL, NULL);
    }
    return PyObject_Vectorcall(fast->function, args, flags, names);
}

static PyObject *converting(PyObject *parts, PyObject *collate)
{
    FastPath *fast = fast_path_made(convert_call, collate);
    if (fast) {
        fast->parts[0] = Py_NewRef(of(parts, LEAVES));
        fast->parts[1] = Py_NewRef(of(parts, ITEM));
        fast->last = 1;
    }
    return (PyObject *)fast;
}

/* What shall stand in the place of what collates: what `around` makes of it, and for a single item what ends that, which `item` gets. */
static PyObject *surrounded(PyObject *parts, PyObject *collate, int singly, PyObject **item)
{
    PyObject *around = PyObject_GetAttr(of(parts, HERE), s_around);
    PyObject *made = singly ? converting(parts, collate) : Py_NewRef(collate);
    *item = singly ? Py_XNewRef(made) : NULL;
    if (made && around && around != Py_None) {
        PyObject *inner = made;
        made = PyObject_CallFunctionObjArgs(around, inner, NULL);
        Py_DECREF(inner);
    }
    Py_XDECREF(around);
    return made;
}

/* Puts that there; `collate` gets what was there before, if it does. */
static void put_around(PyObject *parts, PyObject *fetcher, int singly, PyObject **collate, PyObject **item)
{
    PyObject *before = PyObject_GetAttr(fetcher, s_collate);
    PyObject *made = before ? surrounded(parts, before, singly, item) : NULL;
    if (made && made != before && PyObject_SetAttr(fetcher, s_collate, made) == 0)
        *collate = Py_NewRef(before);
    Py_XDECREF(before);
    Py_XDECREF(made);
    forget_error();
}

/* Puts back what collates. An exception that is set stays. */
static void take_away(PyObject *fetcher, PyObject *collate)
{
    PyObject *kind, *value, *trace;
    if (!collate)
        return;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject_SetAttr(fetcher, s_collate, collate);
    forget_error();
    PyErr_Restore(kind, value, trace);
    Py_DECREF(collate);
}

/* A batch that is being made. All owned, all but the first three may be NULL. */
typedef struct {
    PyObject *key;   /* its number in the records */
    PyObject *span;
    PyObject *given; /* what torch gets in the place of what it asked for */
    PyObject *items; /* the same, where items are made one by one: an `Items` */
    PyObject *index; /* the number of a single item */
    PyObject *item;  /* what ends that */
    PyObject *stream, *loop; /* of an iterable dataset: what it is read from, and what stands in its place meanwhile */
    long long first;         /* the ordinal of its first item */
} Making;

static void making_cleared(Making *making)
{
    Py_XDECREF(making->key);
    Py_XDECREF(making->span);
    Py_XDECREF(making->given);
    Py_XDECREF(making->items);
    Py_XDECREF(making->index);
    Py_XDECREF(making->item);
    Py_XDECREF(making->stream);
    Py_XDECREF(making->loop);
}

/* The only item of a batch that is none is entered inside of it. */
static void item_begun(PyObject *parts, Making *making)
{
    if (making->index)
        call_one(of(parts, ENTERS), of(parts, ITEM), making->index, NULL);
}

static int item_is_open(const Making *making)
{
    return making->index && (!making->item || ((FastPath *)making->item)->last);
}

static void fetch_failed(PyObject *parts, PyObject *const *args, Making *making)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    Py_XDECREF(PyObject_CallFunction(of(parts, UNMADE), "OOOOOOLOO", args[0], args[1], making->key, kind, or_none(making->items),
                                     or_none(making->loop), making->first, making->span,
                                     item_is_open(making) ? making->index : Py_None));
    forget_error();
    PyErr_Restore(kind, value, trace);
}

static void fetch_ended(PyObject *parts, Making *making)
{
    PyObject *loop = making->items ? PyObject_GetAttr(making->items, s_loop) : NULL;
    if (loop && loop != Py_None)
        Py_XDECREF(PyObject_CallMethodObjArgs(loop, s_close, NULL));
    Py_XDECREF(loop);
    forget_error();
    if (item_is_open(making))
        call_one(of(parts, LEAVES), of(parts, ITEM), NULL, NULL);
    call_one(of(parts, LEAVES), making->span, NULL, NULL);
    if (of(parts, WORKER) != Py_None)
        come_by(parts);
}

/* Puts back what an iterable dataset is read from. An exception that is set stays. */
static void flow_back(PyObject *fetcher, Making *making)
{
    PyObject *kind, *value, *trace;
    if (!making->loop)
        return;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject_SetAttr(fetcher, s_iter, making->stream);
    forget_error();
    PyErr_Restore(kind, value, trace);
}

static PyObject *fetched(PyObject *function, PyObject *parts, PyObject *const *args, Making *making)
{
    PyObject *collate = NULL, *given[] = {NULL, args[0], making->given};
    put_around(parts, args[0], making->index != NULL, &collate, &making->item);
    call_one(of(parts, ENTERS), making->span, making->key, NULL);
    item_begun(parts, making);
    fetching[0] = args[0];
    fetching[1] = args[1];
    muted = 1;
    PyObject *result = PyObject_Vectorcall(function, given + 1, 2 | OFFSET_BIT, NULL);
    take_away(args[0], collate);
    flow_back(args[0], making);
    if (result)
        fetch_ended(parts, making);
    else
        fetch_failed(parts, args, making);
    fetching[0] = fetching[1] = NULL;
    muted = 0;
    return result;
}

/* Each of these prepares `making` for its kind of batch. 0, perhaps with an exception: it is not plain. */
static int making_items(PyObject *parts, PyObject *const *args, Making *making)
{
    PyObject *keys = all_numbers(args[1]) ? own_numbers(parts, Py_NewRef(args[1])) : NULL;
    making->items = keys ? PyObject_CallFunctionObjArgs(of(parts, ITEMS), args[1], NULL) : NULL;
    if (making->items && PyObject_SetAttr(making->items, s_keys, keys) != 0)
        Py_CLEAR(making->items);
    making->given = Py_XNewRef(making->items);
    making->span = Py_NewRef(of(parts, FETCH));
    Py_XDECREF(keys);
    return making->items != NULL;
}

static int making_at_once(PyObject *parts, PyObject *const *args, Making *making)
{
    PyObject *numbers = all_numbers(args[1]) ? own_numbers(parts, PyList_AsTuple(args[1])) : NULL;
    making->span = numbers ? PyObject_CallFunctionObjArgs(of(parts, TOGETHER), numbers, NULL) : NULL;
    making->given = Py_NewRef(args[1]);
    Py_XDECREF(numbers);
    if (making->span == Py_None) /* it failed */
        Py_CLEAR(making->span);
    return making->span != NULL;
}

static int making_singly(PyObject *parts, PyObject *const *args, Making *making)
{
    PyObject *numbers = PyLong_CheckExact(args[1]) ? own_numbers(parts, PyTuple_Pack(1, args[1])) : NULL;
    PyObject *number = numbers && PyTuple_Size(numbers) == 1 ? PyTuple_GetItem(numbers, 0) : NULL;
    making->index = number && PyLong_CheckExact(number) ? Py_NewRef(number) : NULL;
    making->given = Py_NewRef(args[1]);
    making->span = Py_NewRef(of(parts, FETCH));
    Py_XDECREF(numbers);
    return making->index != NULL;
}

static int making_flow(PyObject *parts, PyObject *const *args, Making *making)
{
    making->first = under.first;
    making->given = Py_NewRef(args[1]);
    making->span = Py_NewRef(of(parts, FETCH));
    making->stream = under.first >= 0 ? PyObject_GetAttr(args[0], s_iter) : NULL;
    PyObject *loop = making->stream ? PyObject_CallFunction(of(parts, STREAMS), "OOL", making->stream, of(parts, ITEM), under.first) : NULL;
    if (loop && PyObject_SetAttr(args[0], s_iter, loop) == 0)
        making->loop = Py_NewRef(loop);
    Py_XDECREF(loop);
    return making->loop != NULL;
}

/* Is this batch made by the fast path? Then `making` is prepared. */
static int is_made_here(PyObject *parts, PyObject *const *args, Making *making)
{
    static int (*const kinds[])(PyObject *, PyObject *const *, Making *) = {making_items, making_at_once, making_singly, making_flow};
    if (fetching[0])
        return 0;
    int worker = of(parts, WORKER) != Py_None;
    making->key = worker ? key_in_worker(parts, args[0]) : key_here(args);
    return making->key && kinds[worker ? ONE_BY_ONE : under.account.making](parts, args, making);
}

static PyObject *fetch_call(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    Making making = {0};
    PyObject *parts = batch_parts && !names && args_in(flags) == 2 ? Py_NewRef(batch_parts) : NULL, *result = NULL;
    if (parts && is_made_here(parts, args, &making)) /* the parts may be taken back meanwhile */
        result = fetched(((Outermost *)self)->function, parts, args, &making);
    else if (!interrupted())
        result = slowly((Outermost *)self, args, flags, names);
    making_cleared(&making);
    Py_XDECREF(parts);
    return result;
}

/* ---- for Python ---- */

static PyObject *fast_path(PyObject *Py_UNUSED(module), PyObject *args)
{
    static const struct {
        const char *name;
        vectorcallfunc call;
    } known[] = {{"next", next_call}, {"index", index_call}, {"put", put_call}, {"fetch", fetch_call}};
    const char *name;
    PyObject *function, *subscribed;
    if (!PyArg_ParseTuple(args, "sOO", &name, &function, &subscribed))
        return NULL;
    for (int i = 0; i < 4; i++)
        if (strcmp(known[i].name, name) == 0)
            return (PyObject *)outermost_made(known[i].call, function, subscribed);
    return PyErr_Format(PyExc_ValueError, "there is no fast path %s", name);
}

static PyObject *set_batches(PyObject *module, PyObject *args, PyObject *kwargs)
{
    PyObject *parts = named_arguments(args, kwargs, batch_names);
    if (parts && !PyType_IsSubtype((PyTypeObject *)of(parts, BATCH), &PyTuple_Type)) {
        Py_CLEAR(parts);
        PyErr_SetString(PyExc_TypeError, "a batch must be a tuple");
    }
    if (!parts)
        return NULL;
    put_owned(&batch_parts, parts);
    return forget(module, NULL);
}

static PyObject *rest(PyObject *module, PyObject *Py_UNUSED(none))
{
    put_owned(&batch_parts, NULL);
    return forget(module, NULL);
}

static PyObject *get_waiting(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(under.iterator != NULL);
}

static PyObject *get_coming(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    if (!under.iterator || !batch_parts || under.account.filed != Py_None || !under.asked)
        Py_RETURN_NONE;
    PyObject *number = PyLong_FromLongLong(under.number), *indices = number ? indices_here(batch_parts) : NULL;
    PyObject *batch = indices ? batch_made(batch_parts, number, indices, Py_None) : NULL;
    Py_XDECREF(number);
    Py_XDECREF(indices);
    return batch;
}

static PyObject *get_fetching(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return fetching[0] ? PyTuple_Pack(2, fetching[0], fetching[1]) : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"fast_path", fast_path, METH_VARARGS, "A fast replacement for a loader function: its name, the function, the slow replacement."},
    {"batches", (PyCFunction)(void (*)(void))set_batches, METH_VARARGS | METH_KEYWORDS, "Set the callbacks for made and delivered batches."},
    {"rest", rest, METH_NOARGS, "Disable the fast path."},
    {"forget", forget, METH_NOARGS, "Classify all iterators again because a loop over data has begun."},
    {"waiting", get_waiting, METH_NOARGS, "Whether this thread waits for a plain batch."},
    {"coming", get_coming, METH_NOARGS, "The plain batch this thread waits for; None if there is none or it is not known yet."},
    {"fetching", get_fetching, METH_NOARGS, "The fetcher of the plain batch being made in this thread and its request, or None."},
    {NULL, NULL, 0, NULL},
};

int fill_loader(PyObject *module)
{
    static const Name names[] = {
        {&s_number, "number"}, {&s_keys, "keys"}, {&s_loop, "loop"}, {&s_around, "around"}, {&s_close, "close"}, {&s_collate, "collate_fn"}, {&s_listeners, "listeners"},
        {&s_yielded, "_num_yielded"}, {&s_sent, "_send_idx"}, {&s_tasks, "_task_info"}, {&s_dataset, "_dataset"},
        {&s_settings, "settings"}, {&s_writer, "writer"}, {&s_iter, "dataset_iter"}, {&s_shape, "shape"}, {NULL, NULL}};
    return make_names(names) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
