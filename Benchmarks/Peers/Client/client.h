#pragma once

#include "clocks.h"

#include <sys/types.h>

_Noreturn void die(const char *what); // with what errno says
_Noreturn void reject(const char *what);

// MARK: The server

enum { server_core = 0, client_core = 1 };

extern int port; // at which the server listens

// Starts the program, on its own core; the first line that it prints is the port that it listens at.
void start_server(char **arguments);
void end_server(void);
int64_t server_processor_ns(void);
size_t server_memory(void);        // its own, not shared with files: heap and stacks, in bytes
size_t server_descriptors(void);
void stay_on(int core);

// MARK: Connections

enum { chunk = 65536 }; // the most that is sent or received at once

// Both directions carry the same bytes, of which each connection begins at another place.
struct connection {
    int descriptor;
    size_t sent, received; // bytes, the beginning included
    int64_t *times;        // when each message in flight was sent: a ring
    size_t oldest;
};

void dial(struct connection *connection);
void hang_up(struct connection *connection);
void finish_sending(struct connection *connection); // what is sent can still come back
size_t send_some(struct connection *connection, size_t count); // what the kernel takes
void send_all(struct connection *connection, size_t count);
size_t receive(struct connection *connection); // what has come, checked; 0 if nothing
int has_ended(struct connection *connection);  // whether the server has closed it

// MARK: What is measured

struct samples {
    int64_t *values;
    size_t count, capacity;
};

// Connections that send bytes, at once and then whenever they come back; returns what polls them.
int start_exchange(size_t connections, size_t depth, size_t bytes);
// Sends a message for each that has come back, and returns how many those are.
size_t turn(struct connection *connection, struct samples *samples);

void exchange(size_t connections, size_t depth, size_t bytes, size_t count);
void send_bulk(size_t bytes);
void arrive(size_t busy, size_t count);
void stay(size_t count);
void churn(size_t count);
