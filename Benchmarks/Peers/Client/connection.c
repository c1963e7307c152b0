#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { period = 65521, sources = 8 }; // a prime, so that the pattern does not repeat at powers of two

int port;
static char pattern[period + chunk], arrived[chunk];

void die(const char *what) {
    perror(what);
    exit(1);
}

void reject(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void make_pattern(void) {
    for (size_t i = 0; i < sizeof pattern; i++) pattern[i] = i < period ? (char)random_below(256) : pattern[i - period];
}

// Rotates the source addresses: one address has too few ports for the connections of a long run.
static struct sockaddr_in source(size_t number) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (uint32_t)(number % sources));
    return address;
}

void dial(struct connection *connection) {
    static size_t dialled;
    if (!dialled++) make_pattern();
    struct sockaddr_in from = source(dialled), to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1, descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) die("socket");
    setsockopt(descriptor, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(descriptor, (struct sockaddr *)&from, sizeof from)) die("bind");
    if (connect(descriptor, (struct sockaddr *)&to, sizeof to)) die("connect");
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    *connection = (struct connection){.descriptor = descriptor, .times = connection->times};
    connection->sent = connection->received = dialled * 977;
}

void hang_up(struct connection *connection) { close(connection->descriptor); }

void finish_sending(struct connection *connection) {
    if (shutdown(connection->descriptor, SHUT_WR)) die("shutdown");
}

size_t send_some(struct connection *connection, size_t count) {
    if (count > chunk) count = chunk;
    ssize_t taken = send(connection->descriptor, pattern + connection->sent % period, count, MSG_NOSIGNAL);
    if (taken < 0 && errno == EAGAIN) return 0;
    if (taken < 0) die("send");
    connection->sent += (size_t)taken;
    return (size_t)taken;
}

void send_all(struct connection *connection, size_t count) {
    if (send_some(connection, count) != count) reject("The messages in flight do not fit into the socket's buffer.");
}

size_t receive(struct connection *connection) {
    ssize_t count = read(connection->descriptor, arrived, chunk);
    if (count < 0 && errno == EAGAIN) return 0;
    if (count < 0) die("read");
    if (count == 0) reject("The server closed a connection.");
    if (memcmp(arrived, pattern + connection->received % period, (size_t)count)) reject("The echoed bytes differ from the sent bytes.");
    connection->received += (size_t)count;
    if (connection->received > connection->sent) reject("The server sent more bytes than it received.");
    return (size_t)count;
}

int has_ended(struct connection *connection) {
    char byte;
    ssize_t count = read(connection->descriptor, &byte, 1);
    if (count > 0) reject("The server sent more bytes than it received.");
    if (count < 0 && errno != EAGAIN) die("read");
    return count == 0;
}
