/* The layout of store/record.py, as C sees it. `layout()` lets a test compare the two. */
#ifndef SONDE_RECORD_H
#define SONDE_RECORD_H

#include <stdint.h>

typedef struct {
    uint64_t start;
    int64_t dur; /* of a counter: the bits of a float64 */
    int64_t key;
    uint32_t name, args, seq, parent, step;
    uint16_t epoch;
    uint8_t kind, depth;
} Record;

enum { SPAN = 1, COUNTER = 2, MARK = 3, VOID = 4, BLOCK = 7, KIND_MASK = 7 };
enum { OPEN = 0x08, ERROR = 0x10, CUT = 0x20, AGAIN = 0x40, META = 0x80 };
enum { ESSENTIAL = 0, NORMAL = 1, DETAIL = 2 };

#define FORMAT_VERSION 1
#define NO_KEY INT64_MIN
#define NO_STEP UINT32_MAX
#define NO_EPOCH UINT16_MAX
#define DEEPEST UINT8_MAX
#define BLOCK_MAGIC 0x4B4C4245444E4F53ull
#define RINGS_MAGIC "SONDERNG"
#define ARGS_MAGIC "SONDEARG"
#define ARGS_ALIGN 8
#define HEADER_BYTES 4096
#define RING_BYTES 65536
#define RING_HEAD_BYTES 64
#define RING_RECORDS ((RING_BYTES - RING_HEAD_BYTES) / sizeof(Record))
#define SPILL_RECORDS (RING_RECORDS / 2)
#define THIN_DETAIL 0.80
#define THIN_NORMAL 0.95
#define MAX_NAMES 16384
#define MAX_NAMES_CHARS (1 << 20)
#define MAX_NAME_CHARS 512
#define OVERFLOW_NAME "(too many names)"

typedef struct {
    char magic[8];
    uint32_t version, record_size, ring_bytes, rings;
    uint64_t next_seq, seg_len, args_len;
    uint32_t step, epoch;
    uint64_t unused;
    uint64_t lost_space, lost_cap, lost_ring, lost_args;
} Header;

typedef struct {
    uint64_t head, spilled;
    uint32_t owner, unused;
    uint64_t tid;
    char rest[RING_HEAD_BYTES - 32];
    Record records[RING_RECORDS];
} Ring;

_Static_assert(sizeof(Record) == 48, "a record has 48 bytes");
_Static_assert(sizeof(Ring) == RING_BYTES, "a ring has 64 KB");
_Static_assert(offsetof(Header, lost_space) == 64, "the losses stand at byte 64");

#endif
