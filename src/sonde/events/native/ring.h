/* Rings and files: where records go, how they leave the ring, and how losses are counted. */
#ifndef SONDE_RING_H
#define SONDE_RING_H

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "blame.h"
#include "state.h"

#define RETRY_OPEN_NS 1000000000ull
#define RETRY_RING_NS 100000000ull

static inline void publish(uint64_t *where, uint64_t value)
{
    __atomic_store_n(where, value, __ATOMIC_RELEASE);
}

/* ---- files ---- */

static File file_of(int fd)
{
    File file = {.fd = fd};
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0) {
        file.dev = st.st_dev;
        file.ino = st.st_ino;
    }
    return file;
}

static int still_ours(const File *file)
{
    struct stat st;
    return file->fd >= 0 && fstat(file->fd, &st) == 0 && st.st_dev == file->dev && st.st_ino == file->ino;
}

static void file_close(File *file)
{
    if (still_ours(file))
        close(file->fd);
    file->fd = -1;
}

/* Past the file-size limit a write would raise SIGXFSZ, which kills a program that set its default action. */
static int within_limit(uint64_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur;
}

static int write_at(const File *file, struct iovec *parts, int count, uint64_t offset)
{
    ssize_t total = 0, written;
    for (int i = 0; i < count; i++)
        total += (ssize_t)parts[i].iov_len;
    if (!still_ours(file) || !within_limit(offset + (uint64_t)total))
        return 0;
    do
        written = pwritev(file->fd, parts, count, (off_t)offset);
    while (written < 0 && errno == EINTR);
    return written == total; /* a short write is left where it is: the length that counts does not grow */
}

/* ---- the size cap ---- */

static void use_bytes(uint64_t bytes)
{
    uint64_t total = g.usage ? __atomic_add_fetch(g.usage, bytes, __ATOMIC_RELAXED) : (g.own_usage += bytes);
    double share = g.cap ? (double)total / (double)g.cap : 0.0;
    g.limit = !g.recording ? -1 : share >= 1.0 ? -1 : share >= THIN_NORMAL ? ESSENTIAL : share >= THIN_DETAIL ? NORMAL : DETAIL;
}

/* ---- losses ---- */

/* Taken before the record is written, published after it: a kill in between is no loss. */
static inline uint32_t next_seq(void)
{
    return (uint32_t)g.seq++;
}

static void lose_one(int capped)
{
    if (!g.header) {
        g.early_lost++;
        return;
    }
    g.header->next_seq = ++g.seq;
    ++*(capped ? &g.header->lost_cap : &g.header->lost_ring);
}

/* ---- names ---- */

static PyObject *call_host(const char *method, PyObject *arguments)
{
    PyObject *result = NULL;
    PyObject *function = arguments && g.host ? PyObject_GetAttrString(g.host, method) : NULL;
    if (function)
        result = PyObject_Call(function, arguments, NULL);
    Py_XDECREF(function);
    Py_XDECREF(arguments);
    return result;
}

/* Lines for names.jsonl wait here until they are written; a full disk makes them wait longer. */
static void write_pending(void)
{
    char *bytes;
    Py_ssize_t size;
    if (likely(!g.pending) || PyBytes_AsStringAndSize(g.pending, &bytes, &size) != 0)
        return;
    struct iovec part = {bytes, (size_t)size};
    if (!write_at(&g.names, &part, 1, g.names_len))
        return;
    g.names_len += (uint64_t)size;
    Py_CLEAR(g.pending);
}

static void append_line(PyObject *line)
{
    PyObject *longer = line && g.pending ? PySequence_Concat(g.pending, line) : Py_XNewRef(line);
    Py_XDECREF(line);
    if (longer) {
        Py_XDECREF(g.pending);
        g.pending = longer;
    }
    forget_error();
    write_pending();
}

static PyObject *name_line(Py_ssize_t index)
{
    PyObject *pair = PyList_GetItem(g.names_list, index);
    return call_host("name_line", Py_BuildValue("(nOO)", index + 1, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)));
}

/* Bring the names of this process's file up to date. */
static void write_names(void)
{
    uint32_t generation = g.generation;
    while (g.header && g.names_written < PyList_Size(g.names_list)) {
        PyObject *line = name_line(g.names_written);
        if (g.generation != generation || !g.header) {
            Py_XDECREF(line);
            break;
        }
        g.names_written++;
        if (line && PyList_Size(g.names_list) > g.names_written) {
            PyObject *longer = g.pending ? PySequence_Concat(g.pending, line) : Py_NewRef(line);
            Py_DECREF(line);
            Py_XDECREF(g.pending);
            g.pending = longer;
        } else {
            append_line(line);
        }
    }
    forget_error();
}

/* ---- spilling ---- */

static void spill(Thread *t, uint64_t count)
{
    Ring *ring = t->ring;
    uint32_t first = (uint32_t)(t->spilled % RING_RECORDS);
    uint64_t straight = RING_RECORDS - first < count ? RING_RECORDS - first : count;
    Record head = {.start = BLOCK_MAGIC, .dur = (int64_t)t->spilled, .key = (int64_t)count, .name = t->ordinal, .kind = BLOCK};
    struct iovec parts[3] = {
        {&head, sizeof head},
        {&ring->records[first], straight * sizeof(Record)},
        {ring->records, (count - straight) * sizeof(Record)},
    };
    uint64_t bytes = (count + 1) * sizeof(Record);
    if (!count)
        return;
    write_pending();
    if (write_at(&g.seg, parts, count > straight ? 3 : 2, g.header->seg_len)) {
        publish(&g.header->seg_len, g.header->seg_len + bytes);
        use_bytes(bytes);
    } else {
        g.header->lost_space += count;
    }
    t->spilled += count;
    publish(&ring->spilled, t->spilled);
}

static inline void spill_all(Thread *t)
{
    if (t->ring && t->generation == g.generation)
        spill(t, t->head - t->spilled);
}

/* ---- maps ---- */

/* Allocated before it is mapped: on a full disk this fails here instead of killing the program with SIGBUS. */
static int allocate(const File *file, uint64_t offset, uint64_t size)
{
    static const char zeros[HEADER_BYTES];
    if (!still_ours(file) || !within_limit(offset + size))
        return 0;
    if (fallocate(file->fd, 0, (off_t)offset, (off_t)size) == 0)
        return 1;
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return 0;
    for (uint64_t done = 0; done < size; done += sizeof zeros) {
        struct iovec part = {(void *)zeros, sizeof zeros};
        if (!write_at(file, &part, 1, offset + done))
            return 0;
    }
    return 1;
}

static void *map_rings(uint64_t offset, uint64_t size)
{
    void *place;
    if (g.rings.fd < 0)
        place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else if (!allocate(&g.rings, offset, size))
        return NULL;
    else
        place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, g.rings.fd, (off_t)offset);
    return place == MAP_FAILED ? NULL : place;
}

static void map_usage(int fd)
{
    struct stat st;
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size >= 8) {
        void *place = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        g.usage = place == MAP_FAILED ? NULL : place;
    }
    close(fd);
}

/* ---- the process ---- */

static int start_process(int rings, int seg, int args, int names, int usage)
{
    g.rings = file_of(rings);
    g.seg = file_of(seg);
    g.args = file_of(args);
    g.names = file_of(names);
    g.usage = NULL;
    g.own_usage = 0;
    map_usage(usage);
    Header *header = map_rings(0, HEADER_BYTES);
    if (!header) {
        file_close(&g.rings);
        file_close(&g.seg);
        file_close(&g.args);
        file_close(&g.names);
        if (g.usage)
            munmap(g.usage, 8);
        g.usage = NULL;
        return 0;
    }
    header->version = FORMAT_VERSION;
    header->record_size = sizeof(Record);
    header->ring_bytes = RING_BYTES;
    header->next_seq = g.seq = 1 + g.early_lost;
    header->lost_ring = g.early_lost;
    header->args_len = sizeof ARGS_MAGIC - 1;
    header->step = g.step;
    header->epoch = g.epoch == NO_EPOCH ? UINT32_MAX : g.epoch;
    g.early_lost = 0;
    g.names_written = 0;
    g.names_len = 0;
    Py_CLEAR(g.pending);
    g.threads = 0;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(header->magic, RINGS_MAGIC, 8);
    g.header = header;
    use_bytes(HEADER_BYTES);
    return 1;
}

/* Let go of the process's maps, without touching what they hold. */
static void forget_process(void)
{
    for (Thread *t = g.all; t; t = t->next) {
        if (t->ring && t->generation == g.generation)
            munmap(t->ring, RING_BYTES);
        t->ring = NULL;
    }
    if (g.header)
        munmap(g.header, HEADER_BYTES);
    if (g.usage)
        munmap(g.usage, 8);
    g.header = NULL;
    g.usage = NULL;
    g.generation++;
    file_close(&g.rings);
    file_close(&g.seg);
    file_close(&g.args);
    file_close(&g.names);
}

/* Ask the host for the process folder. Threads that come meanwhile wait for it. */
static int open_process(void)
{
    int fds[5], done = 0;
    uint64_t now = monotonic();
    if (g.opening && pthread_equal(g.opener, pthread_self()))
        return 0; /* a span inside our own opening */
    for (int waited = 0; g.opening && waited < 20000; waited++) {
        Py_BEGIN_ALLOW_THREADS
        usleep(100);
        Py_END_ALLOW_THREADS
    }
    if (g.header)
        return 1;
    if (g.opening || !g.recording || now < g.retry_at)
        return 0;
    uint32_t generation = g.generation;
    g.opening = 1;
    g.opener = pthread_self();
    PyObject *files = call_host("open", PyTuple_New(0));
    g.opening = 0;
    int got = files && files != Py_None && PyArg_ParseTuple(files, "iiiii", fds, fds + 1, fds + 2, fds + 3, fds + 4);
    if (got && g.generation == generation && g.recording && !g.header)
        done = start_process(fds[0], fds[1], fds[2], fds[3], fds[4]);
    Py_XDECREF(files);
    forget_error();
    if (done)
        write_names();
    else
        g.retry_at = now + RETRY_OPEN_NS;
    return done && g.header;
}

/* ---- threads ---- */

static void thread_left(void *place)
{
    Thread *t = place;
    pthread_mutex_lock(&g.free_lock);
    t->next_free = g.free;
    g.free = t;
    pthread_mutex_unlock(&g.free_lock);
}

static Thread *thread_new(void)
{
    pthread_mutex_lock(&g.free_lock);
    Thread *t = g.free;
    if (t)
        g.free = t->next_free;
    pthread_mutex_unlock(&g.free_lock);
    if (!t) {
        t = calloc(1, sizeof(Thread));
        if (!t)
            return NULL;
        t->next = g.all;
        g.all = t;
    } else {
        spill_all(t);
        frame_unref(t->top);
        t->top = NULL;
        while (t->task_frames)
            unlink_task_frame(t->task_frames);
        t->tasks = 0;
    }
    t->ordinal = 0;
    self_thread = t;
    pthread_setspecific(g.key, t);
    return t;
}

static int give_ring(Thread *t)
{
    uint64_t now = monotonic();
    if (t->ring)
        return 1;
    if (now < t->retry_at)
        return 0;
    t->ring = map_rings(HEADER_BYTES + (uint64_t)g.header->rings * RING_BYTES, RING_BYTES);
    if (!t->ring) {
        t->retry_at = now + RETRY_RING_NS;
        return 0;
    }
    t->head = t->spilled = t->slot = 0;
    g.header->rings++;
    use_bytes(RING_BYTES);
    return 1;
}

/* This thread's state, with a ring in the current process; NULL: it cannot record now. */
static Thread *attach(void)
{
    if (!g.header && !open_process())
        return NULL;
    Thread *t = self_thread ? self_thread : thread_new();
    if (!t)
        return NULL;
    if (t->generation != g.generation) {
        t->ring = NULL;
        t->retry_at = 0;
        t->ordinal = 0;
        t->generation = g.generation;
    }
    if (!give_ring(t))
        return NULL;
    if (!t->ordinal) {
        uint32_t generation = g.generation, ordinal = ++g.threads;
        uint64_t tid = (uint64_t)syscall(SYS_gettid);
        PyObject *line = call_host("thread_line", Py_BuildValue("(IK)", ordinal, (unsigned long long)tid));
        if (g.generation != generation || !g.header) {
            Py_XDECREF(line);
            forget_error();
            return NULL;
        }
        append_line(line);
        t->ordinal = ordinal;
        t->ring->tid = tid;
        __atomic_store_n(&t->ring->owner, ordinal, __ATOMIC_RELEASE);
    }
    return t;
}

static inline Thread *current_thread(void)
{
    Thread *t = self_thread;
    return likely(t && t->generation == g.generation && t->ordinal) ? t : attach();
}

/* ---- putting a record into the ring ---- */

/* Its slot. */
static inline uint32_t put(Thread *t, const Record *record)
{
    if (unlikely(t->head - t->spilled == RING_RECORDS))
        spill(t, SPILL_RECORDS);
    uint32_t slot = t->slot;
    t->ring->records[slot] = *record;
    t->slot = slot + 1 == RING_RECORDS ? 0 : slot + 1;
    publish(&t->ring->head, ++t->head);
    g.header->next_seq = g.seq;
    return slot;
}

/* ---- fork ---- */

static void forked_child(void)
{
    Thread *me = self_thread;
    forget_process();
    pthread_mutex_init(&g.free_lock, NULL);
    g.free = NULL;
    for (Thread *t = g.all; t; t = t->next) {
        t->top = NULL; /* these frames are the parent's; wrappers that still hold one only drop it */
        t->task_frames = NULL;
        t->ordinal = 0;
        if (t != me) {
            t->next_free = g.free;
            g.free = t;
        }
    }
    g.opening = 0;
    g.retry_at = 0;
    g.early_lost = 0;
}

#endif
