/* Where C lets go of an exception. A failure of our own code must never reach the program; what one of the program's signal handlers
   raised while our code ran must always. */
#ifndef SONDE_ERRORS_H
#define SONDE_ERRORS_H

#include "abi.h"

/* The exception that is set is raised again as soon as Python code runs. */
void defer_error(void);

/* Is the exception that is set the program's? Any other is cleared. */
int is_theirs(void);

/* The exception that is set, if there is one: `report`, in Python, counts it and gives something up, unless it is the program's. */
void blame_on(PyObject *report);

/* After a call of our own code. 1: the exception that is set is the program's. Any other is cleared. */
static inline int interrupted(void)
{
    return PyErr_Occurred() ? is_theirs() : 0;
}

/* The same where the caller cannot fail, or has another exception to raise: the program gets its own later. */
static inline void forget_error(void)
{
    if (interrupted())
        defer_error();
}

#endif
