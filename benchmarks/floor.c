/* What no recorder can go below: two clock reads for each span, in a C loop. */
#include <stdint.h>
#include <time.h>

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* CPU ns for `count` pairs of clock reads. */
uint64_t clock_pairs(uint64_t count)
{
    struct timespec t;
    volatile uint64_t sink = 0;
    uint64_t start = cpu_ns();
    for (uint64_t i = 0; i < count; i++) {
        clock_gettime(CLOCK_MONOTONIC, &t);
        sink += (uint64_t)t.tv_nsec;
        clock_gettime(CLOCK_MONOTONIC, &t);
        sink += (uint64_t)t.tv_nsec;
    }
    return cpu_ns() - start;
}

/* CPU ns for reading `bytes` of memory `times` times: eight independent sums, so that the memory is what is waited for. */
uint64_t memory_reads(const uint64_t *place, uint64_t bytes, uint64_t times)
{
    volatile uint64_t sink = 0;
    uint64_t start = cpu_ns();
    for (uint64_t round = 0; round < times; round++) {
        uint64_t sums[32] = {0};
        for (uint64_t i = 0; i + 32 <= bytes / 8; i += 32)
            for (int j = 0; j < 32; j++)
                sums[j] += place[i + j];
        for (int j = 0; j < 32; j++)
            sink += sums[j];
    }
    return cpu_ns() - start;
}
