#pragma once

// The drivers of the workloads. A program passes functions that do the work with its event loop, and calls the driver in
// its callbacks. The driver prints the same columns as the program WORKLOAD-reactor.

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int64_t monotonic_ns(void);
int64_t processor_ns(void);
void allow_descriptors(size_t number); // exceeding the hard limit requires root

// MARK: Timers

struct timer_peer {
    void (*prepare)(size_t count);
    void (*add)(size_t index, int64_t delay); // fires once, nanoseconds from now
    void (*add_repeating)(size_t index);      // every timer_period
    void (*cancel)(size_t index);
    void (*run)(void); // until stop
    void (*stop)(void);
    void (*within)(void (*body)(void)); // runs body on the loop's thread; NULL if that is the calling thread
};
enum { timer_period = 10000000 };

int run_timers(const struct timer_peer *peer, int argc, char **argv);
void timer_fired(size_t index);

// MARK: The pipe ring

struct ring_peer {
    void (*prepare)(size_t count);
    void (*watch)(size_t index, int descriptor); // for reading, level-triggered
    void (*run)(void);                           // does not return
};

int run_ring(const struct ring_peer *peer, int argc, char **argv);
void ring_ready(size_t index);
void ring_read(size_t index, size_t count); // replaces ring_ready for a peer that reads the bytes itself

// MARK: Posting from other threads

typedef void (*posted_function)(void *context);

struct cross_peer {
    void *(*make)(void); // creates a loop
    void (*run)(void *loop);
    void (*post)(void *loop, posted_function function, void *context); // from any thread
};

int run_cross(const struct cross_peer *peer, int argc, char **argv);

// A list of functions with a mutex, for loops that cannot call functions from other threads.
struct posts {
    pthread_mutex_t mutex;
    struct post *first, **end;
};

void posts_prepare(struct posts *posts);
int posts_add(struct posts *posts, posted_function function, void *context); // returns whether it was empty
void posts_run(struct posts *posts);

// MARK: Echo

// An accepted connection. `watch` is for the peer.
struct echo_connection {
    int descriptor;
    void *watch;
    size_t begin, end; // the range of the unwritten bytes in `own`
    char *own;         // NULL until a write is first incomplete
};

struct echo_peer {
    void (*prepare)(int listener);                        // calls echo_accept when it is readable
    void (*watch)(struct echo_connection *connection);    // for reading
    void (*read_again)(struct echo_connection *connection);
    void (*write_instead)(struct echo_connection *connection); // stops reading
    void (*forget)(struct echo_connection *connection);
    void (*run)(void); // does not return
};

enum { echo_buffer_size = 65536 };

int run_echo(const struct echo_peer *peer, int argc, char **argv);
int echo_listen(int argc, char **argv); // returns a listening socket; prints its port
int echo_next(int listener);            // accepts a connection; -1 if there is none
void echo_accept(int listener);
void echo_readable(struct echo_connection *connection);
void echo_writable(struct echo_connection *connection);

// MARK: Lines

void lines_begin(void);
void lines_take(const void *bytes, size_t count); // counts lines with memchr(3)
int lines_end(void);                              // prints cpu-s/GB GB/s

// MARK: Waiting

// The time for which the smallest program waits: 10 ms, or the number of seconds in its argument.
static inline int idle_milliseconds(int argc, char **argv) { return argc > 1 ? atoi(argv[1]) * 1000 : 10; }
