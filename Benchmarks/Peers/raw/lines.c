// lines-raw FILE  The baseline on one core: read(2) of 64 KiB and memchr(3) for each line: cpu-s/GB GB/s

#include "workloads.h"

#include <fcntl.h>
#include <unistd.h>

int main(int count, char **arguments) {
    static char buffer[1 << 16];
    int descriptor = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    lines_begin();
    for (ssize_t size; (size = read(descriptor, buffer, sizeof buffer)) > 0;) lines_take(buffer, (size_t)size);
    return lines_end();
}
