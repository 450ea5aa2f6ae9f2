/* Rings and files: where records go, how they leave the ring, and how losses are counted. */
#ifndef SONDE_RING_H
#define SONDE_RING_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../shared/errors.h"
#include "state.h"

#define RETRY_OPEN_NS 1000000000ull
#define RETRY_RING_NS 100000000ull
#define REPORT_BYTES 32768
#define MOST_EARLY (1 << 20)

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

/* ---- what all processes of a run count together ---- */

enum { USED_BYTES, HOMELESS_RECORDS };

static PyObject *call_host(const char *method, PyObject *arguments);

static int has_usage(void)
{
    if (!g.asked_usage && g.host) {
        g.asked_usage = 1;
        PyObject *fd = call_host("usage", PyTuple_New(0));
        g.usage = file_of(fd ? (int)PyLong_AsLong(fd) : -1);
        Py_XDECREF(fd);
        forget_error();
    }
    return still_ours(&g.usage);
}

/* Add to a count of the run; what it is then. Two processes at the same moment may lose one of their numbers. A file that was cut counts from `least`. */
static uint64_t add_usage(int which, uint64_t more, uint64_t least)
{
    uint64_t count = least;
    off_t place = which * (off_t)sizeof count;
    if (!has_usage())
        return least + more;
    if (pread(g.usage.fd, &count, sizeof count, place) != sizeof count)
        count = least;
    count += more;
    struct iovec part = {&count, sizeof count};
    write_at(&g.usage, &part, 1, (uint64_t)place);
    return count;
}

static void use_bytes(uint64_t bytes)
{
    g.unreported += bytes;
    if (g.unreported >= REPORT_BYTES) {
        g.used = add_usage(USED_BYTES, g.unreported, g.used);
        g.unreported = 0;
    }
    double share = g.cap ? (double)(g.used + g.unreported) / (double)g.cap : 0.0;
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
    g.header->next_seq = ++g.seq;
    ++*(capped ? &g.header->lost_cap : &g.header->lost_ring);
}

/* A process that has no folder tells the run how many records it has made. */
static void report_homeless(void)
{
    uint64_t now = g.open ? 0 : g.seq - 1;
    if (now != g.homeless)
        add_usage(HOMELESS_RECORDS, now - g.homeless, g.homeless);
    g.homeless = now;
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
    while (g.open && g.names_written < PyList_Size(g.names_list)) {
        PyObject *line = name_line(g.names_written);
        if (g.generation != generation || !g.open) {
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

/* ---- rings that another program has truncated ---- */

static struct sigaction before_bus; /* what was there before `on_bus` */
static int bus_is_ours;

static void *map_at(const char *place, size_t *size)
{
    *size = HEADER_BYTES;
    if (g.header != &g.plain && place >= (char *)g.header && place < (char *)g.header + HEADER_BYTES)
        return g.header;
    *size = RING_BYTES;
    for (Thread *t = g.all; t; t = t->next)
        if (t->ring && !t->plain && place >= (char *)t->ring && place < (char *)t->ring + RING_BYTES)
            return t->ring;
    return NULL;
}

/* A page of ours has no file behind it any more: plain memory takes its place, and recording ends at the next spill. Only a
   thread that holds the GIL touches our maps. Whatever else raised the signal is for the handler before us: a fault comes
   again as soon as that is back. */
static void on_bus(int number, siginfo_t *info, void *Py_UNUSED(context))
{
    int error = errno;
    size_t size;
    void *place = info->si_code == BUS_ADRERR ? map_at(info->si_addr, &size) : NULL;
    if (place && mmap(place, size, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == place) {
        g.torn = 1;
    } else {
        sigaction(SIGBUS, &before_bus, NULL);
        if (info->si_code != BUS_ADRALN && info->si_code != BUS_ADRERR && info->si_code != BUS_OBJERR && info->si_code != BUS_MCEERR_AR)
            raise(number); /* sent by somebody, so it does not come again */
    }
    errno = error;
}

static void watch_bus(void)
{
    struct sigaction ours = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    ours.sa_sigaction = on_bus;
    sigemptyset(&ours.sa_mask);
    if (!bus_is_ours && sigaction(SIGBUS, &ours, &before_bus) == 0)
        bus_is_ours = 1; /* never twice: who came after us may hand on to us */
}

static void unwatch_bus(void)
{
    struct sigaction now;
    if (bus_is_ours && sigaction(SIGBUS, NULL, &now) == 0 && now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus)
        bus_is_ours = sigaction(SIGBUS, &before_bus, NULL) != 0;
}

static int report_torn(void *Py_UNUSED(nothing))
{
    if (g.host && !g.torn_reported && (g.torn_reported = 1))
        Py_XDECREF(call_host("torn", PyTuple_New(0)));
    forget_error();
    return 0;
}

/* What was in the rings is gone, and the header says so. */
static void stop_torn(void)
{
    Header header = {
        .magic = RINGS_MAGIC, .version = FORMAT_VERSION, .record_size = sizeof(Record), .ring_bytes = RING_BYTES, .next_seq = g.seq,
        .seg_len = g.seg_len, .args_len = g.args_len, .step = g.step, .epoch = g.epoch == NO_EPOCH ? UINT32_MAX : g.epoch, .lost_space = g.seq};
    struct iovec part = {&header, sizeof header};
    g.limit = -1;
    if (!g.recording)
        return;
    g.recording = 0;
    if (allocate(&g.rings, 0, HEADER_BYTES))
        write_at(&g.rings, &part, 1, 0);
    Py_AddPendingCall(report_torn, NULL);
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
    if (g.torn)
        stop_torn();
    else if (g.open && (write_pending(), write_at(&g.seg, parts, count > straight ? 3 : 2, g.seg_len))) {
        g.seg_len += bytes;
        publish(&g.header->seg_len, g.seg_len);
        use_bytes(bytes);
    } else {
        g.header->lost_space += count;
    }
    t->spilled += count;
    publish(&ring->spilled, t->spilled);
}

static inline void spill_all(Thread *t)
{
    if (g.open && t->ring && t->generation == g.generation)
        spill(t, t->head - t->spilled);
}

/* ---- maps ---- */

static void *plain_memory(uint64_t size)
{
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return place == MAP_FAILED ? NULL : place;
}

/* A part of the file; without a file, plain memory. */
static void *map_rings(uint64_t offset, uint64_t size)
{
    if (g.rings.fd < 0)
        return plain_memory(size);
    if (!allocate(&g.rings, offset, size))
        return NULL;
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, g.rings.fd, (off_t)offset);
    return place == MAP_FAILED ? NULL : place;
}

/* ---- the process ---- */

static void close_files(void)
{
    file_close(&g.rings);
    file_close(&g.seg);
    file_close(&g.args);
    file_close(&g.names);
}

/* Nothing is recorded yet, nor is there a folder. */
static void reset_process(void)
{
    g.open = g.torn = g.torn_reported = 0;
    g.plain = (Header){.next_seq = 1, .args_len = sizeof ARGS_MAGIC - 1};
    g.header = &g.plain;
    g.seq = 1;
    g.seg_len = 0;
    g.args_len = g.header->args_len;
    g.early_len = g.early_count = g.homeless = 0;
    g.threads = 0;
    g.rings.fd = g.seg.fd = g.args.fd = g.names.fd = -1;
    g.retry_at = 0;
}

/* Write the arguments that have been waiting for the file. */
static void write_early(void)
{
    struct iovec part = {g.early, g.early_len};
    if (g.early_len && !write_at(&g.args, &part, 1, sizeof ARGS_MAGIC - 1))
        g.header->lost_args += g.early_count;
    use_bytes(g.early_len);
    g.early_len = g.early_count = 0;
}

static int ring_to_file(Thread *t);

static int start_process(int rings, int seg, int args, int names)
{
    g.rings = file_of(rings);
    g.seg = file_of(seg);
    g.args = file_of(args);
    g.names = file_of(names);
    Header *header = map_rings(0, HEADER_BYTES);
    if (!header) {
        close_files();
        return 0;
    }
    watch_bus();
    *header = g.plain;
    header->version = FORMAT_VERSION;
    header->record_size = sizeof(Record);
    header->ring_bytes = RING_BYTES;
    header->step = g.step;
    header->epoch = g.epoch == NO_EPOCH ? UINT32_MAX : g.epoch;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(header->magic, RINGS_MAGIC, 8);
    g.header = header;
    g.open = 1;
    g.names_written = 0;
    g.names_len = 0;
    Py_CLEAR(g.pending);
    use_bytes(HEADER_BYTES);
    write_early();
    for (Thread *t = g.all; t; t = t->next)
        if (t->ring && t->generation == g.generation)
            ring_to_file(t);
    report_homeless();
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
    if (g.header != &g.plain)
        munmap(g.header, HEADER_BYTES);
    g.generation++;
    close_files();
    reset_process();
}

/* Ask the host for the process folder. Threads that come meanwhile wait for it; until it is there, rings are plain memory. */
static void open_process(void)
{
    int fds[4], done = 0;
    uint64_t now = (uint64_t)now_ns();
    if (g.opening && pthread_equal(g.opener, pthread_self()))
        return; /* a span inside our own opening */
    for (int waited = 0; g.opening && waited < 20000; waited++) {
        Py_BEGIN_ALLOW_THREADS
        usleep(100);
        Py_END_ALLOW_THREADS
    }
    if (g.open || g.opening || !g.recording || now < g.retry_at)
        return;
    uint32_t generation = g.generation;
    g.opening = 1;
    g.opener = pthread_self();
    has_usage();
    PyObject *files = call_host("open", PyTuple_New(0));
    g.opening = 0;
    int got = files && files != Py_None && PyArg_ParseTuple(files, "iiii", fds, fds + 1, fds + 2, fds + 3);
    if (got && g.generation == generation && g.recording && !g.open)
        done = start_process(fds[0], fds[1], fds[2], fds[3]);
    Py_XDECREF(files);
    forget_error();
    if (done)
        write_names();
    else
        g.retry_at = now + RETRY_OPEN_NS;
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
    t->ready = 0;
    self_thread = t;
    pthread_setspecific(g.key, t);
    return t;
}

/* Give a thread a ring in the file, with what is in the one that it has. */
static int ring_to_file(Thread *t)
{
    Ring *old = t->ring, *ring = map_rings(HEADER_BYTES + (uint64_t)g.header->rings * RING_BYTES, RING_BYTES);
    if (!ring)
        return 0;
    if (old) {
        memcpy(ring->records, old->records, sizeof ring->records);
        memcpy(ring, old, RING_HEAD_BYTES);
        munmap(old, RING_BYTES);
    }
    t->ring = ring;
    t->plain = 0;
    g.header->rings++;
    use_bytes(RING_BYTES);
    return 1;
}

static int give_ring(Thread *t)
{
    uint64_t now = t->ring && !t->plain ? 0 : (uint64_t)now_ns();
    int retry = now && (!t->ring || now >= t->retry_at);
    if (!retry || (g.open && ring_to_file(t)))
        return t->ring != NULL;
    t->retry_at = now + RETRY_RING_NS;
    if (!t->ring) {
        t->ring = plain_memory(RING_BYTES);
        t->plain = 1;
    }
    return t->ring != NULL;
}

static void name_thread(Thread *t)
{
    uint32_t generation = g.generation;
    PyObject *line = call_host("thread_line", Py_BuildValue("(IK)", t->ordinal, (unsigned long long)t->ring->tid));
    if (g.generation == generation && g.open && !t->named) {
        t->named = 1;
        append_line(line);
    } else {
        Py_XDECREF(line);
    }
    forget_error();
}

/* This thread's state, with a ring; NULL: it cannot record now. */
static Thread *attach(void)
{
    if (!g.open)
        open_process();
    Thread *t = self_thread ? self_thread : thread_new();
    if (!t)
        return NULL;
    if (t->generation != g.generation) {
        t->ring = NULL;
        t->retry_at = 0;
        t->ordinal = 0;
        t->generation = g.generation;
        t->head = t->spilled = t->slot = 0;
        t->named = t->ready = 0;
    }
    if (!give_ring(t))
        return NULL;
    if (!t->ordinal) {
        t->ordinal = ++g.threads;
        t->named = 0;
        t->ring->tid = (uint64_t)syscall(SYS_gettid);
        __atomic_store_n(&t->ring->owner, t->ordinal, __ATOMIC_RELEASE);
    }
    if (g.open && !t->named) {
        name_thread(t);
        if (t->generation != g.generation)
            return NULL;
    }
    t->ready = g.open && t->named && !t->plain;
    return t;
}

static inline Thread *current_thread(void)
{
    Thread *t = self_thread;
    return likely(t && t->generation == g.generation && t->ready) ? t : attach();
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
    if (unlikely(!g.open) && !g.opening)
        report_homeless();
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
    g.unreported = 0;
}

#endif
