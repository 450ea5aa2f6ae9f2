/* Arguments that are a few whole numbers and words, as JSON: the same bytes as `args.py` makes of them, without a call of Python. */
#ifndef SONDE_PLAIN_H
#define SONDE_PLAIN_H

#include "state.h"

#define PLAIN_ROOM 4096   /* bytes, and so many names, and numbers of a list: less than what args.py would cut */
#define PLAIN_NAMES 16
#define PLAIN_LIST 128
#define PLAIN_WORD 64     /* characters */
#define PLAIN_NUMBER 24   /* bytes, with what stands around it */

typedef struct {
    char text[PLAIN_ROOM];
    size_t size;
} Plain;

static int plain_fits(const Plain *plain, size_t more)
{
    return plain->size + more <= sizeof plain->text;
}

/* Digits by hand: this is most of the work where a batch has many items. */
static int plain_number(Plain *plain, PyObject *number)
{
    int overflow = 0, length = 0;
    char digits[PLAIN_NUMBER];
    if (!PyLong_CheckExact(number) || !plain_fits(plain, PLAIN_NUMBER))
        return 0;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow)
        return 0;
    unsigned long long left = value < 0 ? 0ULL - (unsigned long long)value : (unsigned long long)value;
    do
        digits[length++] = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        digits[length++] = '-';
    while (length)
        plain->text[plain->size++] = digits[--length];
    return 1;
}

static int plain_list(Plain *plain, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    if (count > PLAIN_LIST)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        plain->text[plain->size++] = i ? ',' : '[';
        if (!plain_number(plain, PyList_GetItem(list, i)))
            return 0;
    }
    plain->text[plain->size++] = ']';
    return count > 0;
}

/* In quotes, if it needs no escapes and is not to be cut. */
static int plain_word(Plain *plain, PyObject *word)
{
    Py_ssize_t size = 0;
    const char *text = PyUnicode_CheckExact(word) ? PyUnicode_AsUTF8AndSize(word, &size) : NULL;
    if (!text || size > PLAIN_WORD || size > g.longest || !plain_fits(plain, PLAIN_WORD + PLAIN_NUMBER))
        return 0;
    plain->text[plain->size++] = '"';
    for (Py_ssize_t i = 0; i < size; i++) {
        if (text[i] < ' ' || text[i] > '~' || text[i] == '"' || text[i] == '\\')
            return 0;
        plain->text[plain->size++] = text[i];
    }
    plain->text[plain->size++] = '"';
    return 1;
}

static int plain_value(Plain *plain, PyObject *value)
{
    return PyList_CheckExact(value) ? plain_list(plain, value) : PyLong_CheckExact(value) ? plain_number(plain, value) : plain_word(plain, value);
}

static int plain_arguments(Plain *plain, PyObject *mapping)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    plain->size = 0;
    plain->text[plain->size++] = '{';
    while (PyDict_Next(mapping, &at, &name, &value)) {
        if (plain->size > 1)
            plain->text[plain->size++] = ',';
        if (!plain_word(plain, name))
            return 0;
        plain->text[plain->size++] = ':';
        if (!plain_value(plain, value))
            return 0;
    }
    plain->text[plain->size++] = '}';
    return 1;
}

/* Bytes, or NULL without an exception: it is not so plain. */
static PyObject *plain_encoded(PyObject *mapping)
{
    Plain plain;
    if (!PyDict_CheckExact(mapping) || PyDict_Size(mapping) > PLAIN_NAMES || !plain_arguments(&plain, mapping)) {
        PyErr_Clear();
        return NULL;
    }
    return PyBytes_FromStringAndSize(plain.text, (Py_ssize_t)plain.size);
}

#endif
