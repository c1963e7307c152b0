#pragma once

// The workloads for programs in C: each gives the functions that its event loop does the work with, and says in its
// callbacks what has happened. What is printed is what the program of the same name on this library prints.

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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
    void (*within)(void (*body)(void)); // on the loop's own thread; NULL where that is the caller's
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
void ring_read(size_t index, size_t count); // instead, by a peer that has read the bytes itself

// MARK: Posting from other threads

typedef void (*posted_function)(void *context);

struct cross_peer {
    void *(*make)(void); // a loop
    void (*run)(void *loop);
    void (*post)(void *loop, posted_function function, void *context); // from any thread
};

int run_cross(const struct cross_peer *peer, int argc, char **argv);

// A list behind a mutex, for loops that have none of their own.
struct posts {
    pthread_mutex_t mutex;
    struct post *first, **end;
};

void posts_prepare(struct posts *posts);
int posts_add(struct posts *posts, posted_function function, void *context); // whether it was empty
void posts_run(struct posts *posts);

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

enum { echo_buffer_size = 65536 };

int run_echo(const struct echo_peer *peer, int argc, char **argv);
int echo_listen(int argc, char **argv); // the listening socket; prints its port
int echo_next(int listener);            // a descriptor that has connected, or -1
void echo_accept(int listener);
void echo_readable(struct echo_connection *connection);
void echo_writable(struct echo_connection *connection);

// MARK: Lines

void lines_begin(void);
void lines_take(const void *bytes, size_t count); // counts the lines in them: memchr(3) for each
int lines_end(void);                              // prints cpu-s/GB GB/s

// MARK: Waiting

// How long the smallest program waits: 10 ms, or as many seconds as it is told.
static inline int idle_milliseconds(int argc, char **argv) { return argc > 1 ? atoi(argv[1]) * 1000 : 10; }
