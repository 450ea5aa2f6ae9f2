/* Tensors of torch whose memory C reads: through DLPack's exchange, and only where torch's own functions say that the memory is there and
   that a look does not change it. What DLPack 1.x fixes of the exchange between libraries stands here. */
#ifndef SONDE_TENSOR_H
#define SONDE_TENSOR_H

#include "objects.h"

typedef struct {
    void *data;
    int32_t device, device_id, dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} View;
typedef struct {
    uint32_t major, minor;
    void *older;
    void *allocate, *from_object, *to_object;
    int (*view)(void *object, View *out);
    void *stream;
} Exchange;
enum { CPU = 1 };
enum { SIGNED = 0, UNSIGNED = 1, FLOATING = 2, BRAIN = 4, COMPLEX = 5, TRUTH = 6 };

enum { READABLE, OPAQUE, FREED };

/* `capsule`: torch's exchange, or None; `copied_late`: tells whether a tensor is copied on write, which DLPack would do. -1 with an exception. */
int tensors_known(PyObject *capsule, PyObject *copied_late);

/* Is there an exchange? Else all tensors are OPAQUE. */
int tensors_are_read(void);

/* READABLE: `view` is filled, and lasts as long as nobody else runs. FREED: its memory was freed. OPAQUE: Python has to look. Never an exception. */
int view_of(PyObject *tensor, View *view);

/* How many elements there are, and whether they lie side by side in order. */
static inline int64_t count_of(const View *view, int *dense)
{
    int64_t count = 1;
    *dense = 1;
    for (int i = view->dims - 1; i >= 0; i--) {
        *dense &= view->shape[i] == 1 || view->strides[i] == count;
        count *= view->shape[i];
    }
    return count;
}

/* Do the elements fill their memory, in whatever order? Then they are read in that of the memory. */
static inline int is_filled(int dims, const int64_t *sizes, const int64_t *strides)
{
    int64_t next = 1;
    int left = 0, found = 1;
    for (int i = 0; i < dims; i++)
        left += sizes[i] != 1;
    while (left && found) {
        found = 0;
        for (int i = 0; i < dims; i++)
            if (sizes[i] != 1 && strides[i] == next) {
                next *= sizes[i];
                left--;
                found = 1;
            }
    }
    return !left;
}

#endif
