#define _GNU_SOURCE
#include "workloads.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct echo_peer *peer;
static char shared[echo_buffer_size];

static void end(struct echo_connection *connection) {
    peer->forget(connection);
    close(connection->descriptor);
    free(connection->own);
    free(connection);
}

int echo_next(int listener) {
    int yes = 1, descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor >= 0) setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return descriptor;
}

void echo_accept(int listener) {
    int descriptor = echo_next(listener);
    if (descriptor < 0) return;
    struct echo_connection *connection = calloc(1, sizeof *connection);
    connection->descriptor = descriptor;
    peer->watch(connection);
}

static void keep(struct echo_connection *connection, char *bytes, size_t begin, size_t end) {
    if (!connection->own) {
        connection->own = malloc(echo_buffer_size);
        memcpy(connection->own + begin, bytes + begin, end - begin);
    }
    connection->begin = begin;
    connection->end = end;
    peer->write_instead(connection);
}

void echo_readable(struct echo_connection *connection) {
    char *bytes = connection->own ? connection->own : shared;
    ssize_t count = read(connection->descriptor, bytes, echo_buffer_size);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return end(connection);
    ssize_t written = write(connection->descriptor, bytes, (size_t)count);
    if (written < 0 && errno != EAGAIN) return end(connection);
    if (written < count) keep(connection, bytes, written < 0 ? 0 : (size_t)written, (size_t)count);
}

void echo_writable(struct echo_connection *connection) {
    size_t left = connection->end - connection->begin;
    ssize_t written = write(connection->descriptor, connection->own + connection->begin, left);
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) return end(connection);
    connection->begin += (size_t)written;
    if (connection->begin == connection->end) peer->read_again(connection);
}

int echo_listen(int argc, char **argv) {
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(argc > 1 ? (uint16_t)atoi(argv[1]) : 0)};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGPIPE, SIG_IGN);
    allow_descriptors(20000);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1024) ||
        getsockname(listener, (struct sockaddr *)&address, &length)) {
        perror("listen");
        exit(1);
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return listener;
}

int run_echo(const struct echo_peer *echo_peer, int argc, char **argv) {
    peer = echo_peer;
    peer->prepare(echo_listen(argc, argv));
    peer->run();
    return 1;
}
