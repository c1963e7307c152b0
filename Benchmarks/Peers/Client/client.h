#pragma once

#include "clocks.h"

#include <sys/types.h>

_Noreturn void die(const char *what); // prints the error in errno
_Noreturn void reject(const char *what);

// MARK: The server

enum { server_core = 0, client_core = 1 };

extern int port; // the server's

// Starts the server on its own core, and reads its port from the first line of its output.
void start_server(char **arguments);
void end_server(void);
int64_t server_processor_ns(void);
size_t server_memory(void); // anonymous memory, which is heap and stacks, in bytes
size_t server_descriptors(void);
void stay_on(int core);

// MARK: Connections

enum { chunk = 65536 }; // the maximum number of bytes per send or receive

// Both directions carry the same pattern. Each connection starts at a different offset.
struct connection {
    int descriptor;
    size_t sent, received; // bytes, including the start offset
    int64_t *times;        // a ring of the times at which the messages in flight were sent
    size_t oldest;
};

void dial(struct connection *connection);
void hang_up(struct connection *connection);
void finish_sending(struct connection *connection); // the server still echoes what was sent
size_t send_some(struct connection *connection, size_t count); // returns the bytes that the kernel accepted
void send_all(struct connection *connection, size_t count);
size_t receive(struct connection *connection); // verifies the available bytes; returns their number
int has_ended(struct connection *connection);  // returns whether the server has closed it

// MARK: Measurements

struct samples {
    int64_t *values;
    size_t count, capacity;
};

// Opens connections with `depth` messages in flight each. Returns their epoll descriptor.
int start_exchange(size_t connections, size_t depth, size_t bytes);
// Sends a message for each one that was echoed, and returns their number.
size_t turn(struct connection *connection, struct samples *samples);

void exchange(size_t connections, size_t depth, size_t bytes, size_t count);
void send_bulk(size_t bytes);
void arrive(size_t busy, size_t count);
void stay(size_t count);
void churn(size_t count);
