#pragma once

// What Swift's Glibc module lacks: eventfd, timerfd, recvmmsg, accept4, libdispatch's hooks for a main-queue run loop,
// a thread-local identity, a signal handler that may only do async-signal-safe work, and vector instructions.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>

// MARK: The clocks

/// One of the system's clocks in nanoseconds (clock_gettime(2)).
static inline int64_t reactor_clock_nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/// CLOCK_MONOTONIC in nanoseconds.
static inline int64_t reactor_monotonic_nanoseconds(void) { return reactor_clock_nanoseconds(CLOCK_MONOTONIC); }

/// Arms `descriptor` at `nanoseconds` of CLOCK_MONOTONIC, or disarms it with zero. 0, or -1 with errno.
static inline int reactor_timerfd_arm(int descriptor, int64_t nanoseconds) {
    struct itimerspec when = {{0, 0}, {nanoseconds / 1000000000, nanoseconds % 1000000000}};
    return timerfd_settime(descriptor, TFD_TIMER_ABSTIME, &when, NULL);
}

/// The slack that the kernel adds to this thread's waits, in nanoseconds (prctl(2), PR_GET_TIMERSLACK).
int64_t reactor_timer_slack(void);

// MARK: Memory

/// Has the processor fetch the line of memory at `address`, for a read that comes soon. Any number will do: nothing is
/// read where there is no memory.
static inline void reactor_prefetch(uintptr_t address) { __builtin_prefetch((const void *)address); }

// MARK: The main queue (libdispatch's hooks for CoreFoundation)

/// An eventfd that libdispatch writes when its main queue gets work. It is made with the first call, and the process ends
/// where it cannot be.
int _dispatch_get_main_queue_handle_4CF(void);
/// The same; -1 with errno where it cannot be made.
int reactor_main_queue_handle(void);
/// Runs what the main queue holds now. Only on the main thread.
void _dispatch_main_queue_callback_4CF(void *message);

// MARK: Which loop a thread has

/// The number of the run loop of the calling thread; zero when it has none.
uint64_t reactor_current_loop(void);
/// The loop itself; NULL when the thread has none.
void *reactor_current_loop_object(void);
void reactor_set_current_loop(uint64_t identity, void *object);
/// Names the calling thread; the kernel keeps 15 bytes.
void reactor_set_thread_name(const char *name);
/// Whether the calling thread is the process's first.
bool reactor_is_main_thread(void);

// MARK: fork(2)

/// How many forks lie between the process that loaded the library and this one; see reactor_fork_count. A child does not
/// inherit loops and subscriptions to signals.
extern uint32_t reactor_forks;
/// A number that is another one in a child than in its parent.
static inline uint32_t reactor_fork_count(void) { return reactor_forks; }
/// Whether the calling thread had a loop when it forked; asked in the child.
bool reactor_had_loop_before_fork(void);

// MARK: Conditions

/// A number of changes that threads wait for (futex(2)).
struct reactor_condition;

/// NULL when there is no memory.
struct reactor_condition *reactor_condition_make(void);
void reactor_condition_free(struct reactor_condition *condition);
/// How many broadcasts there have been.
uint32_t reactor_condition_generation(const struct reactor_condition *condition);
/// Counts one more, and wakes every thread that waits.
void reactor_condition_broadcast(struct reactor_condition *condition);
/// Waits until the count is not `generation`; false if it still is at `deadline`, in nanoseconds of CLOCK_MONOTONIC
/// (INT64_MAX: no deadline).
bool reactor_condition_wait(struct reactor_condition *condition, uint32_t generation, int64_t deadline);

// MARK: POSIX signals

/// Subscribes to `signal`: returns an eventfd that counts its deliveries, and leaves in `token` what ends it. -1 with errno.
int reactor_signal_subscribe(int signal, void **token);
/// Has the signal of a subscription caught again, if other code has installed another disposition since.
void reactor_signal_catch(void *token);
/// Ends a subscription. The last one of a signal restores the disposition that other code had installed last.
void reactor_signal_unsubscribe(void *token);

// MARK: Descriptors

/// Whether epoll(7) takes `descriptor`: not a regular file, a directory, or a device without poll.
bool reactor_epoll_takes(int descriptor);
/// Deregisters `descriptor` from `epoll`, from any thread. False if that is no epoll, or has no such registration.
bool reactor_epoll_remove(int epoll, int descriptor);
/// Whether there are descriptors for an epoll and a pipe, which are what a base of libevent takes: libevent ends the
/// process where it cannot make the pipe. The number that the epoll gets unless another thread takes it, or -1 with errno.
int reactor_descriptors_for_poller(void);
/// Whether there are descriptors for what libdispatch makes with its first worker thread. 0, or -1 with errno.
int reactor_descriptors_for_dispatch(void);
/// The pipe or terminal that `descriptor` names, opened once more, for writing and non-blocking; -1 with errno if that
/// cannot be. Not a pseudo terminal's master: opening that again makes a new terminal.
int reactor_reopen_for_writing(int descriptor);
/// read(2) that does not block (preadv2(2), RWF_NOWAIT); -1 with EOPNOTSUPP where the kernel does not know how.
ssize_t reactor_read_now(int descriptor, void *bytes, size_t count);
/// write(2) that fails with EPIPE or EFBIG without raising SIGPIPE or SIGXFSZ, whatever the signals' dispositions.
ssize_t reactor_write(int descriptor, const void *bytes, size_t count);
/// recv(2) that does not block; minus errno in place of -1, so that no other call can overwrite it.
ssize_t reactor_receive(int descriptor, void *bytes, size_t count);
/// send(2) that neither blocks nor raises SIGPIPE; minus errno in place of -1.
ssize_t reactor_send(int descriptor, const void *bytes, size_t count);

/// Whether bytes have been sent by a connection, as far as the kernel can tell.
bool reactor_has_sent(int descriptor);
/// Accepts a connection that waits at `listener`: its descriptor, which neither blocks nor is inherited by other
/// programs (accept4(2)), and who it is from. -1 with errno.
int reactor_accept(int listener, void *peer, unsigned *length);

// MARK: Datagrams

/// Room for a number of datagrams that are read with one system call.
struct reactor_datagrams;

/// A datagram that has been read: `count` bytes of the `length` that it had, and the sockaddr of who sent it (of no
/// bytes: of nobody with a name).
struct reactor_datagram {
    const void *bytes;
    size_t count;
    size_t length;
    const void *sender;
    size_t sender_length;
};

/// Makes room for `capacity` datagrams of `limit` bytes each. NULL when there is no memory.
struct reactor_datagrams *reactor_datagrams_make(unsigned capacity, size_t limit);
void reactor_datagrams_free(struct reactor_datagrams *batch);
/// Reads what has come in, without waiting (recvmmsg(2)): how many, or -1 with errno. Ends what was read before.
int reactor_datagrams_receive(struct reactor_datagrams *batch, int descriptor);
/// One of those that have been read, until more are.
struct reactor_datagram reactor_datagrams_at(const struct reactor_datagrams *batch, unsigned index);

/// Joins or leaves the multicast group of a sockaddr on an interface; zero: the kernel's choice. 0, or -1 with errno.
int reactor_multicast_membership(int descriptor, bool join, const void *group, size_t length, unsigned interface);
/// Sets the interface that multicast goes out by; zero: the kernel's choice. 0, or -1 with errno.
int reactor_multicast_interface(int descriptor, int family, unsigned interface);

// MARK: Scanning

/// Writes to `positions` the offsets, ascending, of the first `capacity` bytes that equal `wanted`; returns how many.
///
/// When it returns `capacity` there may be more: continue after the last one. `count` is at most UINT32_MAX.
/// What lies in `positions` after the offsets found is undefined. Any thread.
size_t reactor_find_bytes(const uint8_t *bytes, size_t count, uint8_t wanted,
                          uint32_t *positions, size_t capacity);
/// The same with what every processor of this architecture has: SSE2, NEON, or plain words.
size_t reactor_find_bytes_baseline(const uint8_t *bytes, size_t count, uint8_t wanted,
                                   uint32_t *positions, size_t capacity);

/// What bytes are found to be.
enum reactor_text { reactor_text_unknown, reactor_text_utf8, reactor_text_ascii };

/// Whether the bytes are whole, well-formed UTF-8 characters, and perhaps ASCII alone. Unknown where they are not, where
/// they are fewer than some forty, and on processors without AVX2 or NEON. Any thread.
enum reactor_text reactor_check_text(const uint8_t *bytes, size_t count);
