#include "ledger.h"
#include "objects.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The fields of `Writer.state`. */
enum { USED, ROOM, IN_BUFFER, BUSY, FILE_DESCRIPTOR, FILE_DEVICE, FILE_NUMBER, STATE_FIELDS };
#define LEDGER_HEAD_BYTES 4096 /* before the buffer, in the file */

/* The writer that was met last. Its memory is nobody's as soon as it says that there is no room, so only the numbers are held on to. */
static struct {
    PyObject *writer; /* owned; NULL: none */
    Py_buffer state;
    char *buffer;
} known_ledger;
static PyObject *s_state, *s_buffer;

/* Gets the memory behind an attribute; to be released. */
static int memory_at(PyObject *object, PyObject *name, Py_buffer *view)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int got = value ? PyObject_GetBuffer(value, view, PyBUF_WRITABLE) : -1;
    Py_XDECREF(value);
    return got == 0;
}

/* 1: `known_ledger` is of this writer. 0, with an exception: it is none that can be known. */
static int is_known_ledger(PyObject *writer)
{
    static const Name names[] = {{&s_state, "state"}, {&s_buffer, "buffer"}, {NULL, NULL}};
    Py_buffer state, buffer;
    if (known_ledger.writer == writer)
        return 1;
    if (make_names(names) < 0 || !memory_at(writer, s_state, &state))
        return 0;
    if (state.len != STATE_FIELDS * (Py_ssize_t)sizeof(int64_t) || !memory_at(writer, s_buffer, &buffer)) {
        PyBuffer_Release(&state);
        return 0;
    }
    PyObject *old = known_ledger.writer;
    if (old)
        PyBuffer_Release(&known_ledger.state);
    known_ledger.writer = Py_NewRef(writer);
    known_ledger.state = state;
    known_ledger.buffer = buffer.buf;
    PyBuffer_Release(&buffer);
    Py_XDECREF(old);
    return 1;
}

int put_quickly(PyObject *writer, const char *entry, int64_t size, int batches)
{
    if (!is_known_ledger(writer))
        return 0;
    int64_t *state = known_ledger.state.buf;
    if (state[BUSY] || state[USED] < 0 || state[ROOM] - state[USED] < size)
        return 0;
    int fd = (int)state[FILE_DESCRIPTOR];
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) != 0 || (int64_t)st.st_dev != state[FILE_DEVICE] || (int64_t)st.st_ino != state[FILE_NUMBER]))
        return 0; /* the program has closed it */
    memcpy(known_ledger.buffer + state[USED], entry, (size_t)size);
    if (fd >= 0 && pwrite(fd, entry, (size_t)size, LEDGER_HEAD_BYTES + state[USED]) < 0)
        errno = 0; /* it is in memory, and goes to the file with the others */
    state[USED] += size;
    state[IN_BUFFER] += batches;
    return 1;
}

char *put_number(char *place, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        place[i] = (char)(number >> (8 * i));
    return place + bytes;
}
