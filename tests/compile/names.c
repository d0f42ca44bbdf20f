/* A program that has macros of its own with the short names that programs like. Some of these would
 * break the system's headers too, C++'s most of all, so those come first; with NAMES_FIRST they do
 * not, and the macros are the ones that C's headers can bear. */
#ifndef NAMES_FIRST
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

#endif

#undef min
#undef max
#define BROKEN     (this, name, belongs, to, the, program)
#define min(a, b)  BROKEN
#define max(a, b)  BROKEN
#define swap(a, b) BROKEN
#define clamp(a)   BROKEN
#define round_up   BROKEN
#define ld         BROKEN
#define len        BROKEN
#define byte       BROKEN
#define uint       BROKEN
#define u8         BROKEN
#define u16        BROKEN
#define u32        BROKEN
#define u64        BROKEN
#define f16        BROKEN
#define f32        BROKEN
#define f64        BROKEN
#define fail(a)    BROKEN
#define array      BROKEN
#define vector     BROKEN
#define check      BROKEN
#define near       BROKEN
#define far        BROKEN
#define small      BROKEN
#define interface  BROKEN
#define A          BROKEN
#define B          BROKEN
#define C          BROKEN
#define D          BROKEN
#define E          BROKEN
#define F          BROKEN
#define G          BROKEN
#define H          BROKEN
#define J          BROKEN
#define K          BROKEN
#define L          BROKEN
#define M          BROKEN
#define N          BROKEN
#define O          BROKEN
#define P          BROKEN
#define Q          BROKEN
#define R          BROKEN
#define S          BROKEN
#define T          BROKEN
#define U          BROKEN
#define V          BROKEN
#define W          BROKEN
#define X          BROKEN
#define Y          BROKEN
#define Z          BROKEN

#if !defined(NAMES_FIRST) && !defined(__cplusplus)
#define bool BROKEN
#define true BROKEN
#define false BROKEN
#endif
#ifndef NAMES_FIRST
#undef abs
#undef M_PI
#undef I
#define abs(a)    BROKEN
#define M_PI      BROKEN
#define assert(a) BROKEN
#define unused    BROKEN
#define string    BROKEN
#define I         BROKEN
#endif

/* The program wraps functions of libc, as MSVC's debug heap and tgmath.h do: a member of that name
 * must not be taken for one. */
#ifndef NAMES_FIRST
#undef fopen
#undef fclose
#undef fread
#undef fwrite
#define malloc(size)       (malloc)(size)
#define calloc(n, size)    (calloc)(n, size)
#define realloc(p, size)   (realloc)(p, size)
#define free(p)            (free)(p)
#define exit(code)         BROKEN
#define abort()            BROKEN
#define read(f, p, n)      (read)(f, p, n)
#define write(f, p, n)     (write)(f, p, n)
#define close(f)           (close)(f)
#define truncate(path, n)  (truncate)(path, n)
#define remove(path)       (remove)(path)
#define rename(from, to)   (rename)(from, to)
#define fopen(path, how)   (fopen)(path, how)
#define fclose(f)          (fclose)(f)
#define fread(p, s, n, f)  (fread)(p, s, n, f)
#define fwrite(p, s, n, f) (fwrite)(p, s, n, f)
#define index(text, c)     (index)(text, c)
#define time(t)            (time)(t)
#define log(x)             (log)(x)
#define exp(x)             (exp)(x)
#define tanh(x)            (tanh)(x)
#define sqrt(x)            (sqrt)(x)
#define pow(x, y)          (pow)(x, y)
#define round(x)           (round)(x)
#define floor(x)           (floor)(x)
#define ceil(x)            (ceil)(x)
#define frexp(x, e)        (frexp)(x, e)
#endif

#ifndef ATTN_STATIC
#define ATTN_IMPLEMENTATION
#endif
#include "attn.h"

int main(void)
{
    return attn_version() != ATTN_VERSION;
}
