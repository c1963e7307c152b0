// lines-text BYTES  Writes a text with lines of 10 to 150 bytes to standard output. The text is always the same.
#include "clocks.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    static const char *words[] = {"request", "from", "worker", "status", "200", "took", "caf\xc3\xa9", "connection",
                                  "closed", "the", "buffer", "of", "stream", "INFO", "retry", "queue"};
    long long wanted = count > 1 ? atoll(arguments[1]) : 1 << 20;
    for (long long written = 0; written < wanted;) {
        int64_t goal = 10 + random_below(130);
        int length = 0;
        while (length < goal) length += printf("%s ", words[random_below(16)]);
        putchar('\n');
        written += length + 1;
    }
}
