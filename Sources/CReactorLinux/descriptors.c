#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

const int reactor_o_path = O_PATH, reactor_o_direct = O_DIRECT;

ssize_t reactor_read_now(int descriptor, void *bytes, size_t count) {
    struct iovec place = {bytes, count};
    ssize_t read;
    do read = preadv2(descriptor, &place, 1, -1, RWF_NOWAIT);
    while (read < 0 && errno == EINTR);
    return read >= 0 ? read : -errno;
}

// The signal that a write has raised, if any; else 0.
static int raised_signal(int descriptor, ssize_t written, size_t count, int code) {
    // The reader closed while the write waited for room: the kernel has accepted a part, and raises the
    // signal too. A write that does not wait accepts a part when there is no more room.
    if (written >= 0) return (size_t)written < count && !(fcntl(descriptor, F_GETFL) & O_NONBLOCK) ? SIGPIPE : 0;
    return code == EPIPE ? SIGPIPE : code == EFBIG ? SIGXFSZ : 0;
}

// The kernel sends SIGPIPE and SIGXFSZ to the writing thread. Both are blocked during a write, and one that it has raised
// is discarded.
struct write_signals {
    sigset_t pending, before;
};

static sigset_t signal_set(int one, int other) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, one);
    sigaddset(&set, other);
    return set;
}

static void block_write_signals(struct write_signals *signals) {
    sigset_t both = signal_set(SIGPIPE, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &both, &signals->before);
    sigpending(&signals->pending);
}

// Discards `raised`, unless that is 0.
static void unblock_write_signals(const struct write_signals *signals, int raised) {
    if (raised && !sigismember(&signals->pending, raised)) {
        struct timespec none = {0, 0};
        sigset_t one = signal_set(raised, raised);
        while (sigtimedwait(&one, NULL, &none) < 0 && errno == EINTR) {}
    }
    pthread_sigmask(SIG_SETMASK, &signals->before, NULL);
}

ssize_t reactor_write(int descriptor, const void *bytes, size_t count) {
    struct write_signals signals;
    block_write_signals(&signals);
    ssize_t written = write(descriptor, bytes, count);
    int code = errno;
    unblock_write_signals(&signals, raised_signal(descriptor, written, count, code));
    errno = code;
    return written;
}

/// Whether the system limits how many bytes that are not sent yet a TCP socket takes (tcp_notsent_lowat, tcp(7)), which the
/// socket does not say. Found out once.
static bool system_limits_unsent(void) {
    enum { unknown, no, yes };
    static atomic_int known = unknown;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == unknown) {
        FILE *file = fopen("/proc/sys/net/ipv4/tcp_notsent_lowat", "re");
        // No descriptor, perhaps: there may be one the next time.
        if (file == NULL && errno != ENOENT) return true;
        unsigned limit = UINT_MAX;
        if (file != NULL) {
            if (fscanf(file, "%u", &limit) != 1) limit = UINT_MAX;
            fclose(file);
        }
        answer = limit == UINT_MAX ? no : yes;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == yes;
}

ssize_t reactor_send_room(int socket) {
    int size = 0;
    unsigned unsent = 0;
    socklen_t length = sizeof size;
    if (getsockopt(socket, SOL_SOCKET, SO_SNDBUF, &size, &length) != 0) return 0;
    length = sizeof unsent;
    // Fails for a socket that is not TCP's. 0 stands for the system's limit, which is none by default.
    if (getsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, &length) != 0) return size / 3;
    return unsent != 0 || system_limits_unsent() ? 0 : size / 3;
}

ssize_t reactor_send_file(int socket, int file, off_t offset, size_t count) {
    // sendfile(2) has no MSG_DONTWAIT, nor MSG_NOSIGNAL.
    if (!(fcntl(socket, F_GETFL) & O_NONBLOCK)) return -ENOTSUP;
    struct write_signals signals;
    block_write_signals(&signals);
    ssize_t sent;
    do sent = sendfile(socket, file, &offset, count);
    while (sent < 0 && errno == EINTR);
    int code = errno;
    // It accepts a part, and raises the signal too, if the peer closes meanwhile.
    unblock_write_signals(&signals, sent < (ssize_t)count ? SIGPIPE : 0);
    return sent < 0 ? -code : sent;
}

// Sockets never block and never raise SIGPIPE here, whatever the descriptor's flags.

ssize_t reactor_receive(int descriptor, void *bytes, size_t count) {
    ssize_t received;
    do received = recv(descriptor, bytes, count, MSG_DONTWAIT);
    while (received < 0 && errno == EINTR);
    return received < 0 ? -errno : received;
}

ssize_t reactor_send(int descriptor, const void *bytes, size_t count) {
    ssize_t sent;
    do sent = send(descriptor, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}
