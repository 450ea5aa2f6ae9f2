/* Writing into the ledger of a process, as `Writer.put` of store/ledger.py does where there is room and nobody is at it. */
#ifndef SONDE_LEDGER_H
#define SONDE_LEDGER_H

#include "abi.h"

#include <stdint.h>

/* Adds an entry that stands for so many batches. No Python code runs while it is written. 0, perhaps with an exception: it is not. */
int put_quickly(PyObject *writer, const char *entry, int64_t size, int batches);

/* The bytes of a number, the lowest first; returns where they end. */
char *put_number(char *place, uint64_t number, int bytes);

#endif
