/* SIGTERM seen before whoever else waits for it. `native/sigterm.pyi` says what each function is for.

   The handler only sends this process a second signal, whose handler is a Python function: that one writes what is to be
   written, and then calls `pass_on`, which lets SIGTERM do what it would have done. A program that hangs in a library never
   comes to run Python code: then a timer of the kernel does it, so that such a program ends as it would without us. Python's
   own table of handlers is left alone: the program sees none of this. */
#include "shared/abi.h"

#ifdef __linux__
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MOST_TRIES 64 /* more workers of a loader than usual may end at the same time */

static struct sigaction theirs; /* what SIGTERM did before */
static int notify;              /* the signal that calls Python */
static int grace;               /* seconds until the timer */
static int timer = -1;          /* of the kernel, by its number */
static pid_t owner;
static volatile sig_atomic_t waiting; /* a SIGTERM has come, and Python has not said what to do */

static void on_term(int number, siginfo_t *info, void *context);

static int is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_term;
}

static void set_timer(int seconds)
{
    struct itimerspec when;
    memset(&when, 0, sizeof when);
    when.it_value.tv_sec = seconds;
    if (timer >= 0)
        syscall(SYS_timer_settime, timer, 0, &when, NULL);
}

/* What would have happened: the end of the process, or a handler. */
static void act(int number, siginfo_t *info, void *context)
{
    if (theirs.sa_flags & SA_SIGINFO) {
        theirs.sa_sigaction(number, info, context);
    } else if (theirs.sa_handler == SIG_DFL) {
        sigset_t only;
        signal(SIGTERM, SIG_DFL);
        kill(getpid(), SIGTERM);
        sigemptyset(&only);
        sigaddset(&only, SIGTERM);
        pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* here it ends */
    } else if (theirs.sa_handler != SIG_IGN) {
        theirs.sa_handler(number);
    }
}

/* Does nobody wait for the second signal? Python drops its handlers when it ends, and the program may do so before. */
static int is_deaf(void)
{
    struct sigaction now;
    return sigaction(notify, NULL, &now) != 0 ||
           (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN));
}

static void on_term(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    if (getpid() != owner || is_deaf() || (waiting && info && info->si_code == SI_TIMER)) {
        waiting = 0;
        act(number, info, context);
    } else if (!waiting) {
        waiting = 1;
        set_timer(grace);
        kill(getpid(), notify);
    }
    errno = kept;
}

static int new_timer(void)
{
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTERM;
    int made;
    return syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &made) == 0 ? made : -1;
}

static void drop_timer(void)
{
    if (timer >= 0 && owner == getpid())
        syscall(SYS_timer_delete, timer);
    timer = -1;
}

static PyObject *watch(PyObject *Py_UNUSED(module), PyObject *args)
{
    struct sigaction now, ours;
    int number, seconds;
    if (!PyArg_ParseTuple(args, "ii:watch", &number, &seconds))
        return NULL;
    if (sigaction(SIGTERM, NULL, &now) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    if (is_ours(&now) && owner == getpid())
        Py_RETURN_TRUE;
    if (!is_ours(&now)) {
        if (!(now.sa_flags & SA_SIGINFO) && now.sa_handler == SIG_IGN)
            Py_RETURN_FALSE;
        theirs = now;
    }
    drop_timer();
    owner = getpid();
    notify = number;
    grace = seconds;
    waiting = 0;
    timer = new_timer();
    if (timer < 0)
        Py_RETURN_FALSE;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_term;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGTERM, &ours, NULL) != 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_TRUE;
}

static PyObject *unwatch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    struct sigaction now;
    if (owner && sigaction(SIGTERM, NULL, &now) == 0 && is_ours(&now))
        sigaction(SIGTERM, &theirs, NULL);
    drop_timer();
    owner = 0;
    Py_RETURN_NONE;
}

static PyObject *pass_on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    set_timer(0);
    if (waiting) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        info.si_signo = SIGTERM;
        info.si_code = SI_USER;
        waiting = 0;
        act(SIGTERM, &info, NULL);
    }
    Py_RETURN_NONE;
}

/* torch raises an error for each worker that ends, wherever the program is: also in the function that Python calls for us. In C it
   cannot be raised, so that SIGTERM is passed on whatever happens. */
static PyObject *handle(PyObject *module, PyObject *args)
{
    PyObject *callback, *number, *frame, *done = NULL, *type = NULL, *value = NULL, *traceback = NULL;
    if (!PyArg_ParseTuple(args, "OOO:handle", &callback, &number, &frame))
        return NULL;
    PyObject *begun = PyList_New(0);
    if (!begun)
        return NULL;
    for (int tries = 0; !done && tries < MOST_TRIES; tries++) {
        done = PyObject_CallFunctionObjArgs(callback, begun, NULL);
        if (!done) {
            Py_CLEAR(type);
            Py_CLEAR(value);
            Py_CLEAR(traceback);
            PyErr_Fetch(&type, &value, &traceback);
        }
    }
    if (done != Py_False)
        Py_DECREF(pass_on(module, NULL));
    Py_XDECREF(done);
    Py_DECREF(begun);
    if (type) {
        PyErr_Restore(type, value, traceback);
        return NULL;
    }
    Py_RETURN_NONE;
}
#else
static PyObject *watch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) { Py_RETURN_FALSE; }
static PyObject *unwatch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) { Py_RETURN_NONE; }
static PyObject *pass_on(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none)) { Py_RETURN_NONE; }
static PyObject *handle(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) { Py_RETURN_NONE; }
#endif

static PyMethodDef functions[] = {
    {"watch", watch, METH_VARARGS, "Report SIGTERM through another signal."},
    {"unwatch", unwatch, METH_NOARGS, "Stop reporting SIGTERM."},
    {"pass_on", pass_on, METH_NOARGS, "Deliver the received SIGTERM."},
    {"handle", handle, METH_VARARGS, "Call until no other signal interrupts, then deliver SIGTERM."},
    {NULL, NULL, 0, NULL},
};

int fill_sigterm(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
