#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

bool reactor_epoll_takes(int descriptor) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) return true; // no descriptor left to ask with: the loop's own poller will tell
    struct epoll_event event = {.events = 0};
    bool taken = epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event) == 0 || errno != EPERM;
    close(poller);
    return taken;
}

// SIGPIPE is directed at the thread that writes: it is blocked here, and taken back if this write has raised it.
ssize_t reactor_write(int descriptor, const void *bytes, size_t count) {
    sigset_t pipe, pending, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    sigpending(&pending);
    ssize_t written = write(descriptor, bytes, count);
    int code = errno;
    // A reader that goes while a write waits for room: part of it was taken, and the signal raised all the same.
    bool raised = written < 0 ? code == EPIPE : (size_t)written < count;
    if (raised && !sigismember(&pending, SIGPIPE)) {
        struct timespec none = {0, 0};
        while (sigtimedwait(&pipe, NULL, &none) < 0 && errno == EINTR) {}
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = code;
    return written;
}

// Sockets: never blocking, never SIGPIPE, whatever the descriptor's flags.

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

int reactor_accept(int listener, void *peer, unsigned *length) {
    return accept4(listener, peer, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
}
