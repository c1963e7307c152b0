#pragma once

#ifndef __linux__
#error "swift-reactor needs Linux. On Apple's platforms use the product ReactorFoundation only: it is Foundation there."
#endif

// What Swift's Glibc module lacks: calls that glibc declares for GNU sources only or that take variable arguments,
// libdispatch's hooks for a main-queue run loop, thread-local storage, code that may only call async-signal-safe functions,
// and vector instructions.

// None of the headers whose types the module Glibc exports: a client that uses their members would have to import this module.
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>

/// A function that is safe to call with the object that its argument names, and with a string or variables of Swift's.
#define REACTOR_SAFE __attribute__((swift_attr("@safe")))

// MARK: Diagnostics

/// What loops record of their callbacks. Bit 0: times and names. Bit 1: mistakes are reported, and times and names recorded.
/// Bit 2: the time of some threads is replaced.
extern uint32_t reactor_diagnostics;
enum { REACTOR_TIME_IS_REPLACED = 4 };
static inline uint32_t reactor_diagnostics_switches(void) {
    return __atomic_load_n(&reactor_diagnostics, __ATOMIC_RELAXED);
}
static inline void reactor_set_diagnostics(uint32_t switches, bool is_on) {
    if (is_on) __atomic_fetch_or(&reactor_diagnostics, switches, __ATOMIC_RELAXED);
    else __atomic_fetch_and(&reactor_diagnostics, ~switches, __ATOMIC_RELAXED);
}

// MARK: The clocks

/// The clocks that replace the calling thread's, an object of Swift's; NULL for the kernel's.
void *reactor_replaced_clocks(void);
void reactor_replace_clocks(void *clocks);
static inline void *reactor_thread_clocks(void) {
    return reactor_diagnostics_switches() & REACTOR_TIME_IS_REPLACED ? reactor_replaced_clocks() : NULL;
}
/// In Swift: the time of one of its clocks.
int64_t reactor_replaced_nanoseconds(void *clocks, clockid_t clock) __attribute__((weak));

/// The kernel's time in nanoseconds.
static inline int64_t reactor_kernel_nanoseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/// The calling thread's time in nanoseconds.
static inline int64_t reactor_clock_nanoseconds(clockid_t clock) {
    void *clocks = reactor_thread_clocks();
    return __builtin_expect(clocks != NULL, 0) ? reactor_replaced_nanoseconds(clocks, clock)
                                               : reactor_kernel_nanoseconds(clock);
}

static inline int64_t reactor_monotonic_nanoseconds(void) { return reactor_clock_nanoseconds(CLOCK_MONOTONIC); }

/// Arms `descriptor`, a timerfd of any clock, at `nanoseconds` of it, and again after each `interval`; 0 disarms it. 0, or -1
/// with errno.
static inline int reactor_timerfd_set(int descriptor, int64_t nanoseconds, int64_t interval, bool tells_set) {
    struct itimerspec when = {{interval / 1000000000, interval % 1000000000},
                              {nanoseconds / 1000000000, nanoseconds % 1000000000}};
    // TFD_TIMER_CANCEL_ON_SET, which not every C library declares.
    return timerfd_settime(descriptor, TFD_TIMER_ABSTIME | (tells_set ? 2 : 0), &when, NULL);
}

/// Makes the processor load two cache lines at `address`, any address, which is about to be changed.
static inline void reactor_prefetch(uintptr_t address) {
    __builtin_prefetch((const void *)address, 1);
    __builtin_prefetch((const void *)(address + 64), 1);
}

/// The slack that the kernel adds to this thread's waits, in nanoseconds (prctl(2), PR_GET_TIMERSLACK).
int64_t reactor_timer_slack(void);

// MARK: The main queue (libdispatch's hooks for CoreFoundation)

/// The eventfd that libdispatch writes when its main queue gets work. The first call creates it, and ends the
/// process if that fails.
int _dispatch_get_main_queue_handle_4CF(void);
/// Runs the work of the main queue. Main thread only.
void _dispatch_main_queue_callback_4CF(void *message);

// MARK: Tasks

/// Calls ``reactor_unpark(_:)`` when the current task is cancelled: at once if it has been. Ends with
/// ``reactor_forget_cancellation(_:)`` in the same task, after which the function is not being called.
/// Registrations end in the reverse order of their beginning, before the asynchronous function returns.
void *reactor_unpark_on_cancellation(void *parker);
REACTOR_SAFE void reactor_forget_cancellation(void *registration);
/// In Swift.
void reactor_unpark(void *parker) __attribute__((weak));

// MARK: References (Swift's runtime)

/// Retains an object, and returns it; NULL if its deinitializer has begun.
void *swift_tryRetain(void *object);
/// Keeps the memory of an object after its deinitializer, with its reference counts.
void *swift_unownedRetain(void *object);
void swift_unownedRelease(void *object);

/// Offers the jobs that threads with replaced clocks queue for Swift's concurrency pool to `enqueue`, which returns false for
/// those that the pool is to run. From the first call on, until the process ends.
void reactor_redirect_jobs(bool (*enqueue)(void *job));

// MARK: The thread's loop

/// The number of the calling thread's run loop; 0 if it has none.
uint64_t reactor_current_loop(void);
/// The last time that the calling thread's loop has asked the kernel what is ready: the loop's number, and 32 bits of how
/// often it has done that.
uint64_t reactor_last_poll(void);
uint64_t reactor_count_poll(void);
/// Sets what reactor_last_poll returns, after another loop was the thread's for a while.
void reactor_set_last_poll(uint64_t poll);
/// The calling thread's loop object; NULL if it has none.
void *reactor_current_loop_object(void);
void reactor_set_current_loop(uint64_t identity, void *object);
/// Removes the calling thread's loop, in a child of fork(2).
void reactor_forget_loop_in_child(void);
/// Whether the calling thread had a loop when it called fork; for the child.
bool reactor_had_loop_before_fork(void);
/// Whether the calling thread is the process's first.
bool reactor_is_main_thread(void);
/// Whether a worker of libdispatch's pool runs the calling code. Swift's tasks use these workers, too.
bool reactor_is_on_pool_thread(void);
/// The number of the calling thread.
pid_t reactor_thread_number(void);
/// How often a thread of the process has given up its processor while that thread sleeps; 0 while it runs or waits for a
/// processor or a disk, and -1 if the kernel does not say.
int64_t reactor_sleep_count(pid_t thread);
int pthread_setname_np(pthread_t thread, const char *name);
int pthread_getname_np(pthread_t thread, char *name, size_t size);

/// Says whether the calling thread makes calls of libevent whose results tell of their failure: warnings are dropped.
void reactor_capture_messages(bool captures);
/// Where the calling thread continues in place of libevent's exit(3) after an error; NULL for none.
void reactor_leave_at_error(jmp_buf *target);
/// libevent's callback for messages. After a message of error severity libevent would exit: this leaves for the target, or
/// aborts, if the call is one of the library's. Messages in other code's calls are printed, as libevent does by itself.
void reactor_note_message(int severity, const char *message);

// MARK: fork(2)

/// The number of the process since its forks are counted: 1 for the one that has begun to count them, one more for each child.
/// A child does not inherit run loops and signal subscriptions. 0 before that.
extern uint32_t reactor_forks;
static inline uint32_t reactor_fork_count(void) { return __atomic_load_n(&reactor_forks, __ATOMIC_RELAXED); }
/// Begins to count forks, by pthread_atfork(3), and returns the count.
uint32_t reactor_count_forks(void);

// MARK: Conditions

/// A number of changes that threads wait for (futex(2)).
struct reactor_event_count;

/// Ends the process when there is no memory.
struct reactor_event_count *reactor_event_count_make(void);
void reactor_event_count_free(struct reactor_event_count *count);
/// How many broadcasts there have been.
REACTOR_SAFE uint32_t reactor_event_count_generation(const struct reactor_event_count *count);
/// Counts one more, and wakes every thread that waits.
REACTOR_SAFE void reactor_event_count_broadcast(struct reactor_event_count *count);
/// Waits until the count is not `generation`; false if it still is at `deadline`, in nanoseconds of the kernel's
/// CLOCK_MONOTONIC (INT64_MAX: no deadline).
REACTOR_SAFE bool reactor_event_count_wait(struct reactor_event_count *count, uint32_t generation, int64_t deadline);

// MARK: POSIX signals

/// The name of `signal` without SIG, such as INT; NULL if it has none.
const char *reactor_signal_name(int signal);

/// Subscribes to `signal`. Returns an eventfd that counts its deliveries, and stores in `token` what ends the
/// subscription; or -1 with errno.
REACTOR_SAFE int reactor_signal_subscribe(int signal, uintptr_t *token);
/// Installs the handler again for a subscription, in case other code has installed another one since.
REACTOR_SAFE void reactor_signal_catch(uintptr_t token);
/// Stops counting. The last subscription of a signal restores the disposition that other code had installed last. The eventfd
/// stays, with its count.
void reactor_signal_stop(uintptr_t token);
/// Ends a subscription, as reactor_signal_stop does, and closes its eventfd.
void reactor_signal_unsubscribe(uintptr_t token);

// MARK: Descriptors

/// O_PATH and O_DIRECT, which Swift's Glibc does not declare.
extern const int reactor_o_path, reactor_o_direct;
int pipe2(int ends[2], int flags);
int ptsname_r(int master, char *name, size_t size);
ssize_t getdents64(int folder, void *entries, size_t size);
/// A read(2) that does not block (preadv2(2), RWF_NOWAIT). Returns -errno instead of -1: EOPNOTSUPP if the kernel doesn't
/// support that.
ssize_t reactor_read_now(int descriptor, void *bytes, size_t count);
/// A write(2) that fails with EPIPE or EFBIG without raising SIGPIPE or SIGXFSZ, whatever the signals'
/// dispositions.
ssize_t reactor_write(int descriptor, const void *bytes, size_t count);
/// A recv(2) that does not block. Returns -errno instead of -1, so that no other call can overwrite it.
ssize_t reactor_receive(int descriptor, void *bytes, size_t count);
/// A send(2) that neither blocks nor raises SIGPIPE. Returns -errno instead of -1.
ssize_t reactor_send(int descriptor, const void *bytes, size_t count);
/// How many bytes a socket has room for at least, if poll(2) says that it has room; 0 if that is unknown, as with
/// a limit of what is not sent (TCP_NOTSENT_LOWAT, or the system's).
ssize_t reactor_send_room(int socket);
/// A sendfile(2) that neither blocks for `socket` nor raises SIGPIPE. Returns -errno instead of -1: -ENOTSUP for a socket in
/// blocking mode.
ssize_t reactor_send_file(int socket, int file, off_t offset, size_t count);

// MARK: Child processes

/// What to spawn.
struct reactor_spawn {
    /// How many paths to try, arguments and variables there are, and descriptors to pass.
    size_t path_count, argument_count, variable_count, descriptor_count;
    bool inherits_environment;
    /// Whether the variable LISTEN_PID is added, with the child's number.
    bool names_process;
    bool is_session_leader;
    /// The working directory; -1 for the parent's.
    int folder;
    /// The process group to join: 0 for a new one, -1 for the parent's. The kernel refuses others below 0.
    int group;
    /// The controlling terminal of the new session; -1 for none.
    int terminal;
    /// The signal that the child gets when the calling thread ends; 0 for none.
    int death_signal;
};

enum { reactor_spawn_process, reactor_spawn_folder, reactor_spawn_descriptors, reactor_spawn_program };

struct reactor_spawned {
    /// -1 if there is none.
    int process;
    /// A pidfd (clone(2), CLONE_PIDFD), for the caller to close.
    int descriptor;
    /// What has failed, and the errno.
    int stage, error;
};

/// Spawns a process with default dispositions, no blocked signals, and the descriptors 0 to 2 and those passed.
/// Returns once it runs the program, or has failed to. Takes one descriptor: the pidfd. `strings` has the paths, the arguments
/// and the variables, each with a zero at its end; `descriptors` the parent's, and after them the child's numbers for them.
struct reactor_spawned reactor_spawn_start(struct reactor_spawn request, const char *strings, const int *descriptors);

/// How a process has ended.
struct reactor_end {
    /// CLD_EXITED, CLD_KILLED or CLD_DUMPED; 0 while it runs; -errno if it cannot be known.
    int code;
    /// The exit status or the signal.
    int status;
    /// In microseconds.
    int64_t user_time, system_time;
    /// In units of 1,024 bytes.
    long maximum_resident_size;
};
/// Collects the child of a pidfd, if it has ended, or waits until it has (waitid(2)). If `keeps`, only looks at it.
struct reactor_end reactor_collect(int descriptor, bool waits, bool keeps);
/// pidfd_send_signal(2): 0, or -1 with errno.
int reactor_signal_process(int descriptor, int signal);
/// Sends `signal` to the group that the process of a pidfd leads: 0, or -1 with errno, ESRCH if nothing is left of it, and
/// before Linux 6.9 also if the process was collected. `leader` is the process's number.
int reactor_signal_group(int descriptor, int leader, int signal);

/// Changes the settings of a terminal until the end, and whenever the process continues in the foreground. `entering` is
/// written to `output` then, and `leaving` before they are restored: also by exit(3), a deadly signal and a stop. NULL with
/// errno.
void *reactor_terminal_begin(int input, int output, bool is_raw, const char *entering, const char *leaving);
void reactor_terminal_end(void *scope);
/// Rows times 65,536, and columns (TIOCGWINSZ); -1 with errno.
int64_t reactor_terminal_size(int terminal);

/// From now on, a trap of the process is explained on standard error as libdispatch's; false ends that.
void reactor_explain_traps(bool begins);

// TIOCSPTLCK, TIOCGPTPEER and TIOCSWINSZ of a pseudo-terminal's master (ioctl_tty(2)).
int reactor_terminal_unlock(int master);
int reactor_terminal_open(int master);
int reactor_terminal_resize(int master, uint16_t rows, uint16_t columns);

// MARK: Serial ports

/// The settings of a serial port.
struct reactor_serial {
    uint32_t speed;
    int data_bits, stop_bits;
    /// N, E or O.
    char parity;
    bool has_hardware_flow_control, has_software_flow_control;
};
/// Sets up a serial port for all bytes to pass unchanged (TCSETS2). -1 with errno.
int reactor_serial_configure(int descriptor, struct reactor_serial settings);

// MARK: Sockets

/// A socket address (sockaddr(3type)) by value. `length` is -1, and errno set, where a call has failed to get one.
struct reactor_address {
    uint64_t storage[16]; // a sockaddr_storage
    int length;
};

// getsockname(2), getpeername(2), bind(2), connect(2).
struct reactor_address reactor_local_address(int descriptor);
struct reactor_address reactor_peer_address(int descriptor);
int reactor_bind(int descriptor, struct reactor_address address);
int reactor_connect(int descriptor, struct reactor_address address);
/// Ends a connection for all duplicates of its descriptor, and drops what was not sent. The peer of a TCP socket gets a reset,
/// also if another thread closes the descriptor before.
void reactor_reset(int descriptor);
/// getsockopt(2) of an option whose value is a nonnegative number; -1 with errno.
int reactor_option(int descriptor, int level, int name);
/// setsockopt(2) of an option whose value is a number: 0, or -1 with errno.
int reactor_set_option(int descriptor, int level, int name, int value);
/// The number of bytes that ioctl(2) reports for `request` (FIONREAD, SIOCOUTQ); -1 with errno.
int reactor_queued_bytes(int descriptor, unsigned long request);
/// Whether a connection has sent bytes; true where the kernel cannot tell.
bool reactor_has_sent(int descriptor);

struct reactor_accepted {
    int descriptor;
    struct reactor_address peer;
};
/// Accepts a pending connection as non-blocking and close-on-exec (accept4(2)). Descriptor -1 with errno.
struct reactor_accepted reactor_accept(int listener);

/// The answer of getaddrinfo(3): `addresses` is for the caller to free(3).
struct reactor_addresses {
    struct reactor_address *addresses;
    size_t count;
    /// 0, or an EAI_ code.
    int code;
    /// errno where the code is EAI_SYSTEM.
    int system_error;
};
struct reactor_addresses reactor_resolve(const char *host, const char *service, int flags, int family, int type);

// MARK: Datagrams

/// A buffer for datagrams that are received with one system call.
struct reactor_datagrams;

/// Who has sent a datagram, or is at the other end of a Unix-domain connection (unix(7)).
struct reactor_credentials {
    /// 0 for a process of another PID namespace, which has no number here.
    int process;
    /// UINT_MAX if there are no credentials.
    unsigned user, group;
};
/// Those of a connected socket's peer (`SO_PEERCRED`).
struct reactor_credentials reactor_peer_credentials(int descriptor);

/// A received datagram: the first `count` of its `length` bytes, and its sender (of length 0 for a socket without a name).
struct reactor_datagram {
    const void *bytes;
    size_t count;
    size_t length;
    struct reactor_address sender;
    struct reactor_credentials credentials;
    /// The descriptors that came with it, for the caller to close.
    const int *descriptors;
    size_t descriptor_count;
    /// Whether the kernel had descriptors that it could not deliver (MSG_CTRUNC).
    bool has_lost_descriptors;
};

/// Makes a buffer for `capacity` datagrams of `limit` bytes each, with `control` bytes for what comes with each.
/// NULL when there is no memory.
struct reactor_datagrams *reactor_datagrams_make(unsigned capacity, size_t limit, size_t control);
/// The control bytes of a datagram that comes with credentials and up to `descriptors` descriptors, without padding, which
/// the kernel would use for one more.
size_t reactor_control_size(unsigned descriptors, bool credentials);
void reactor_datagrams_free(struct reactor_datagrams *batch);
/// Receives pending datagrams without blocking (recvmmsg(2)): how many, or -1 with errno. Replaces the previous ones.
REACTOR_SAFE int reactor_datagrams_receive(struct reactor_datagrams *batch, int descriptor);
/// A received datagram, valid until the next call that receives.
REACTOR_SAFE struct reactor_datagram reactor_datagrams_at(const struct reactor_datagrams *batch, unsigned index);
/// sendto(2) without blocking and without SIGPIPE; to the connected peer if the address has no length. -1 with errno.
ssize_t reactor_send_datagram(int descriptor, const void *bytes, size_t count, struct reactor_address address);

/// The same with duplicates of descriptors, at most 253 (SCM_RIGHTS). -1 with errno.
ssize_t reactor_send_descriptors(int descriptor, const void *bytes, size_t count, struct reactor_address address,
                                 const int *passed, size_t passed_count);

/// Joins or leaves a multicast group on an interface; the kernel's choice for 0. 0, or -1 with errno.
int reactor_multicast_membership(int descriptor, bool join, struct reactor_address group, unsigned interface);
/// Sets the interface that multicast is sent by; the kernel's choice for 0. 0, or -1 with errno.
int reactor_multicast_interface(int descriptor, int family, unsigned interface);

// MARK: Scanning

/// Writes to `positions` the offsets, ascending, of the first `capacity` bytes that equal `wanted`. Returns
/// how many.
///
/// If it returns `capacity` there may be more: continue after the last one. `count` is at most UINT32_MAX.
/// The rest of `positions` is undefined. Any thread.
size_t reactor_find_bytes(const void *bytes, size_t count, uint8_t wanted,
                          uint32_t *positions, size_t capacity);
/// The same with instructions that every processor of the architecture has: SSE2, NEON, or plain words.
size_t reactor_find_bytes_baseline(const void *bytes, size_t count, uint8_t wanted,
                                   uint32_t *positions, size_t capacity);

/// The result of reactor_check_text.
enum reactor_text { reactor_text_unknown, reactor_text_utf8, reactor_text_ascii };

/// Whether the bytes are whole, well-formed UTF-8 characters, or even ASCII. Unknown if not, for fewer than
/// some forty bytes, and on processors without AVX2 or NEON. Any thread.
enum reactor_text reactor_check_text(const void *bytes, size_t count);
