// Preloaded (ld.so(8)) into a program, counts its allocations: for the program itself, which asks allocation_count,
// and in memory that it shares, the file whose descriptor COUNT_ALLOCATIONS_IN names. Stands on glibc's own names for its functions.

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *pointer, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static _Atomic uint64_t early, *counter = &early;

__attribute__((constructor)) static void share(void) {
    const char *descriptor = getenv("COUNT_ALLOCATIONS_IN");
    if (!descriptor) return;
    void *memory = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(descriptor), 0);
    if (memory != MAP_FAILED) counter = memory;
}

uint64_t allocation_count(void) { return atomic_load_explicit(counter, memory_order_relaxed); }

static void count(void) { atomic_fetch_add_explicit(counter, 1, memory_order_relaxed); }

void *malloc(size_t size) {
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *pointer, size_t size) {
    count();
    return __libc_realloc(pointer, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **pointer, size_t alignment, size_t size) {
    count();
    *pointer = __libc_memalign(alignment, size);
    return *pointer ? 0 : ENOMEM;
}
