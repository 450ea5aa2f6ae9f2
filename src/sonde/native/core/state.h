/* What the core knows: the process it records for, its threads, and the frames of the spans that are open. */
#ifndef SONDE_STATE_H
#define SONDE_STATE_H

#include <pthread.h>
#include <sys/types.h>

#include "../shared/objects.h"
#include "record.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

typedef struct Thread Thread;
typedef struct Frame Frame;

/* A descriptor and the file it stood for when we got it: a program that closes all descriptors and opens others
   must never find our bytes in its files. */
typedef struct {
    int fd;
    dev_t dev;
    ino_t ino;
} File;

/* One entry of a span. It is alive while its generation is the current one; closing sets it to 0. */
struct Frame {
    Frame *prev;           /* what was innermost at the entry; owned */
    PyObject *span;        /* the object that was entered, to find it again when it is left; owned, may be NULL */
    Frame *newer, *older;  /* open frames of tasks, by thread */
    Thread *thread;
    uint64_t index;        /* of its record among those of the thread `ordinal` */
    uint32_t slot;         /* where in the ring that is */
    uint32_t ordinal;
    uint32_t generation;
    uint32_t refs;
    uint32_t depth;
    uint8_t in_task;
    Record record;
};

struct Thread {
    Ring *ring;
    uint64_t head, spilled;
    uint32_t slot;         /* head % RING_RECORDS */
    uint32_t ordinal;
    uint32_t generation;   /* of the process it has its ring in */
    uint8_t tasks;         /* an event loop runs here */
    uint8_t plain;         /* its ring is plain memory: the file is not there yet, has no room, or is not wanted */
    uint8_t named;
    uint8_t ready;         /* nothing is left to do before a record is put */
    Frame *top;            /* innermost open frame; owned */
    Frame *task_frames;    /* newest open frame entered while a loop ran here; the list owns its frames */
    uint64_t retry_at;     /* when to try again to get a ring in the file */
    Thread *next;          /* list of all */
    Thread *next_free;
};

static struct {
    int limit;             /* records of a level above this are not taken; -1: none are */
    int recording;
    uint32_t generation;   /* raised by begin, end and fork */
    uint64_t seq;          /* the next sequence number */
    uint32_t step;
    uint16_t epoch;
    uint32_t steps_set, epochs_set; /* how often the program has set them */
    int open;              /* the process folder is */
    int torn, torn_reported;   /* another program has truncated the rings */
    Header plain;          /* the header until then */
    Header *header;        /* `plain`, or mapped */
    uint64_t seg_len, args_len; /* as in the header, which another program may truncate */
    File rings, seg, args, names;
    File usage;            /* of the run: bytes of all its processes, and records of those that have no folder */
    int asked_usage;
    uint64_t used;         /* bytes of the run when they were counted last */
    uint64_t unreported;   /* bytes of this process since */
    uint64_t homeless;     /* records of this process that are counted in `usage` as having no folder */
    uint64_t cap;
    Py_ssize_t longest;    /* text among arguments that is not cut, in characters; 0: not known */
    int opening;           /* a thread is asking the host to open the process folder */
    pthread_t opener;
    uint64_t retry_at;
    char *early;           /* arguments, until there is a file for them */
    uint64_t early_len, early_count;
    uint32_t threads;      /* ordinals given out */
    uint64_t args_version; /* raised when any shared arguments change */
    PyObject *host;
    PyObject *clock;
    PyObject *user;        /* "user", the default category */
    PyObject *ids;         /* (cat, name) -> id */
    PyObject *names_list;  /* id - 1 -> (cat, name) */
    Py_ssize_t names_chars;
    Py_ssize_t names_written;
    uint64_t names_len;
    PyObject *pending;     /* lines for names.jsonl that could not be written yet */
    PyObject *var_get, *var_set; /* of the ContextVar that holds a task's innermost frame */
    Frame *spare;
    int spares;
    Thread *all, *free;
    pthread_mutex_t free_lock;
    pthread_key_t key;
} g = {.limit = -1, .generation = 1, .step = NO_STEP, .epoch = NO_EPOCH, .header = &g.plain, .usage = {.fd = -1},
     .free_lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local Thread *self_thread;

static uint64_t tested_clock(void)
{
    PyObject *result = PyObject_CallNoArgs(g.clock);
    uint64_t now = result ? PyLong_AsUnsignedLongLong(result) : 0;
    Py_XDECREF(result);
    if (PyErr_Occurred())
        PyErr_Clear();
    return now;
}

static inline uint64_t clock_now(void)
{
    return likely(!g.clock) ? (uint64_t)now_ns() : tested_clock();
}

/* ---- frames: counted references, recycled through one list ---- */

static Frame *frame_new(void)
{
    Frame *frame = g.spare;
    if (likely(frame)) {
        g.spare = frame->prev;
        g.spares--;
        return frame;
    }
    return malloc(sizeof(Frame));
}

static void frame_unref(Frame *frame)
{
    while (frame && --frame->refs == 0) {
        Frame *prev = frame->prev;
        PyObject *span = frame->span;
        if (g.spares < 1024) {
            frame->prev = g.spare;
            g.spare = frame;
            g.spares++;
        } else {
            free(frame);
        }
        Py_XDECREF(span);
        frame = prev;
    }
}

/* Take it out of its thread's list of open task frames, which held a reference. */
static void unlink_task_frame(Frame *frame)
{
    if (frame->newer)
        frame->newer->older = frame->older;
    else if (frame->thread->task_frames == frame)
        frame->thread->task_frames = frame->older;
    if (frame->older)
        frame->older->newer = frame->newer;
    frame->in_task = 0;
    frame_unref(frame);
}

static inline int alive(const Frame *frame)
{
    return frame->generation == g.generation;
}

#endif
