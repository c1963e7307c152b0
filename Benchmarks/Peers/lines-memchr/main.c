// lines-memchr FILE  the limit on one core: read(2) of 64 KiB and memchr(3) for each line: GB/s cpu-s 0
#include "../Workloads/clocks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **arguments) {
    static char buffer[1 << 16];
    int descriptor = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    int64_t begin = monotonic_ns(), bytes = 0, lines = 0;
    for (ssize_t size; (size = read(descriptor, buffer, sizeof buffer)) > 0; bytes += size)
        for (char *at = buffer, *end = buffer + size; (at = memchr(at, '\n', (size_t)(end - at))); at++) lines++;
    printf("%f %f 0\n", (double)bytes / (double)(monotonic_ns() - begin), (double)processor_ns() / 1e9);
    return lines > 0 ? 0 : 1;
}
