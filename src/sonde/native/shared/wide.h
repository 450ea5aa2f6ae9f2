/* Loops over memory that use the widest instructions of the machine, chosen at run time. */
#ifndef SONDE_WIDE_H
#define SONDE_WIDE_H

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#define BY_HAND
#else
#define WIDE
#endif

#endif
