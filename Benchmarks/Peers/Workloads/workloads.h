#pragma once

// The workloads for programs in C: each gives the functions that its event loop does the work with, and says in its
// callbacks what has happened. What is printed is what the program of the same name on this library prints.

#include <stddef.h>
#include <stdint.h>

int64_t monotonic_ns(void);
int64_t processor_ns(void);
void allow_descriptors(size_t number); // beyond the hard limit that needs root

// MARK: Timers

struct timer_peer {
    void (*prepare)(size_t count);
    void (*add)(size_t index, int64_t delay); // fires once, nanoseconds from now
    void (*add_repeating)(size_t index);      // every timer_period
    void (*cancel)(size_t index);
    void (*run)(void); // until stop
    void (*stop)(void);
};
enum { timer_period = 10000000 };

int run_timers(const struct timer_peer *peer, int argc, char **argv);
void timer_fired(size_t index);

// MARK: The pipe ring

struct ring_peer {
    void (*prepare)(size_t count);
    void (*watch)(size_t index, int descriptor); // for reading, level-triggered
    void (*run)(void);                           // until the process ends
};

int run_ring(const struct ring_peer *peer, int argc, char **argv);
void ring_ready(size_t index);

// MARK: Posting from other threads

typedef void (*posted_function)(void *context);

struct cross_peer {
    void *(*make)(void); // a loop
    void (*run)(void *loop);
    void (*post)(void *loop, posted_function function, void *context); // from any thread
};

int run_cross(const struct cross_peer *peer, int argc, char **argv);

// MARK: Echo

// A connection that has been accepted. The peer keeps in `watch` what it likes.
struct echo_connection {
    int descriptor;
    void *watch;
    size_t begin, end; // of the bytes in `own` that are still to be written
    char *own;         // NULL until the kernel first takes less than was read
};

struct echo_peer {
    void (*prepare)(int listener);                        // calls echo_accept when it can be read
    void (*watch)(struct echo_connection *connection);    // for reading
    void (*read_again)(struct echo_connection *connection);
    void (*write_instead)(struct echo_connection *connection); // of reading
    void (*forget)(struct echo_connection *connection);
    void (*run)(void); // until the process ends
};

int run_echo(const struct echo_peer *peer, int argc, char **argv);
void echo_accept(int listener);
void echo_readable(struct echo_connection *connection);
void echo_writable(struct echo_connection *connection);
