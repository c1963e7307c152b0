// echo-client WORK NUMBER... SERVER [ARGUMENT]...  Starts an echo server and measures it:
//
//   messages CONNECTIONS DEPTH BYTES COUNT   COUNT messages of BYTES, with DEPTH in flight on each connection:
//                                            the server's processor-ns/message, messages/s, p50-us, p99-us, p99.9-us
//   bulk BYTES                               one connection, 64 KiB at a time: processor-s/GB GB/s
//   arrive BUSY COUNT                        COUNT connections, one after another, while BUSY others exchange
//                                            messages: p50-us, p99-us, p99.9-us from connecting to the first reply
//   stay COUNT                               COUNT connections that are idle after one message: the server's
//                                            bytes/connection processor-us/connection
//   churn COUNT                              COUNT connections with one message each, 64 at a time: the server's
//                                            processor-us/connection and its growth: descriptors KiB

#include "client.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int numbers;
} works[] = {{"messages", 4}, {"bulk", 1}, {"arrive", 2}, {"stay", 1}, {"churn", 1}};

static void measure(const char *work, const size_t *numbers) {
    if (!strcmp(work, "bulk")) send_bulk(numbers[0]);
    else if (!strcmp(work, "arrive")) arrive(numbers[0], numbers[1]);
    else if (!strcmp(work, "stay")) stay(numbers[0]);
    else if (!strcmp(work, "churn")) churn(numbers[0]);
    else exchange(numbers[0], numbers[1], numbers[2], numbers[3]);
}

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        int first = 2 + works[i].numbers;
        if (argc <= first || strcmp(argv[1], works[i].name)) continue;
        size_t numbers[4] = {0};
        for (int j = 0; j < works[i].numbers; j++) numbers[j] = strtoull(argv[2 + j], NULL, 0);
        allow_descriptors(20000);
        stay_on(client_core);
        start_server(argv + first);
        measure(argv[1], numbers);
        end_server();
        return 0;
    }
    reject("usage: echo-client messages|bulk|arrive|stay|churn NUMBER... SERVER [ARGUMENT]...");
}
