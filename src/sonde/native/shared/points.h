/* What the fast paths of `points.c` and `loader.c` share. */
#ifndef SONDE_POINTS_H
#define SONDE_POINTS_H

#include "callable.h"
#include "errors.h"

/* What stands in the place of a patched function. */
typedef struct {
    CALLABLE_HEAD
    PyObject *subscribed; /* called for outermost calls: the function, with whoever has subscribed */
    PyObject *fast;       /* called instead, if there is one; may be NULL */
    PyObject *replaced;   /* called in the place of the function for calls inside another one, if there is one; may be NULL */
    PyObject *compiler;   /* the dict of torch.compiler, which has a flag that says whether it reads this code */
    PyObject *flag, *task;
    uint64_t bit;
} Outermost;

/* The fast path of a probe past its own Python function, for the plain case. That function does the same, and all the rest. */
#define MOST_PARTS 6
typedef struct {
    CALLABLE_HEAD
    PyObject *parts[MOST_PARTS]; /* the arguments it was made with */
    PyObject *kinds[2]; /* the types seen last: no loss, and a loss; of operations: one that does not scale, and one that does; may be NULL */
    int64_t last;       /* the time of the last call; of forwards, the address of the module that learned last */
} FastPath;

extern int ready;               /* the plain case is at hand: training goes on, and nothing unusual was seen */
extern _Thread_local int muted; /* modules that are called here take no fast path */

Outermost *outermost_made(vectorcallfunc vector, PyObject *function, PyObject *subscribed);
FastPath *fast_path_made(vectorcallfunc vector, PyObject *slow);

#endif
