// tls-openssl KIND COUNT PORT CERTIFICATE  The baseline: OpenSSL on the descriptor (SSL_set_fd), and poll(2). A client of
//                                          tls-server, which describes the kinds. Prints:
//
// get, put       cpu-s/GB GB/s, of COUNT MiB
// full, resumed  cpu-us/handshake handshakes/s, of COUNT connections one after another
// idle           KiB/connection, of COUNT connections
//
// With one more argument, the file of CERTIFICATE's key, it is the server of tls-clients on the port: server-full and
// server-resumed print the columns of the handshakes, and server-idle those of idle.
//
// context        cpu-ms, of the first context that trusts the system's certificates

#define _GNU_SOURCE // accept4(2)

#include "workloads.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { block_size = 65536 };

static SSL_CTX *context;
static SSL_SESSION *session;
static struct sockaddr_in address;
static char block[block_size];

static int keep(SSL *ssl, SSL_SESSION *new) {
    (void)ssl;
    SSL_SESSION_free(session);
    session = new;
    return 1;
}

// Waits until the call that has returned `result` can be repeated; 0 if it has failed or there are no more bytes.
static int wait_after(SSL *ssl, int result) {
    int error = SSL_get_error(ssl, result);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) return 0;
    struct pollfd state = {.fd = SSL_get_fd(ssl), .events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT};
    return poll(&state, 1, -1) >= 0;
}

static size_t read_some(SSL *ssl) {
    for (;;) {
        int count = SSL_read(ssl, block, block_size);
        if (count > 0) return (size_t)count;
        if (!wait_after(ssl, count)) return 0;
    }
}

static void write_some(SSL *ssl, size_t size) {
    for (;;) {
        int count = SSL_write(ssl, block, (int)size);
        if (count > 0) return;
        if (!wait_after(ssl, count)) exit(1);
    }
}

// Makes the handshake, and asks the server for `kind`.
static SSL *connect_for(char kind, uint64_t count) {
    int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address)) exit(1);
    fcntl(descriptor, F_SETFL, O_NONBLOCK);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, descriptor);
    SSL_set1_host(ssl, "localhost");
    SSL_set_tlsext_host_name(ssl, "localhost");
    if (session) SSL_set_session(ssl, session);
    for (int code; (code = SSL_connect(ssl)) != 1;) {
        if (!wait_after(ssl, code)) exit(1);
    }
    block[0] = kind;
    memcpy(block + 1, &count, sizeof count);
    write_some(ssl, 1 + sizeof count);
    return ssl;
}

static void end(SSL *ssl) {
    int descriptor = SSL_get_fd(ssl);
    SSL_shutdown(ssl);
    SSL_free(ssl);
    close(descriptor);
}

static void transfer(char kind, uint64_t size) {
    SSL *ssl = connect_for(kind, size);
    int64_t wall = monotonic_ns(), processor = processor_ns();
    for (uint64_t done = 0; kind == 'g' && done < size;) {
        size_t count = read_some(ssl);
        if (!count) exit(1);
        done += count;
    }
    for (uint64_t done = 0; kind == 'p' && done < size; done += block_size) write_some(ssl, block_size);
    if (kind == 'p' && !read_some(ssl)) exit(1);
    processor = processor_ns() - processor;
    wall = monotonic_ns() - wall;
    printf("%.3f %.3f\n", (double)processor / (double)size, (double)size / (double)wall);
}

static void connect_once(void) {
    SSL *ssl = connect_for('h', 0);
    if (!read_some(ssl)) exit(1);
    end(ssl);
}

static void handshakes(size_t count) {
    connect_once();
    int64_t wall = monotonic_ns(), processor = processor_ns();
    for (size_t i = 0; i < count; i++) connect_once();
    processor = processor_ns() - processor;
    wall = monotonic_ns() - wall;
    printf("%.1f %.0f\n", (double)processor / 1e3 / (double)count, (double)count * 1e9 / (double)wall);
}

static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void idle(size_t count) {
    allow_descriptors(count + 64);
    if (!read_some(connect_for('i', 0))) exit(1);
    long before = resident();
    for (size_t i = 0; i < count; i++) {
        if (!read_some(connect_for('i', 0))) exit(1);
    }
    printf("%.1f\n", (double)(resident() - before) / 1024 / (double)count);
}

// MARK: The server

static uint64_t served; // complete connections

// Serves one connection. It counts unless the client makes no handshake.
static void serve(int listener, int is_idle) {
    int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), code, on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, descriptor);
    while ((code = SSL_accept(ssl)) != 1 && wait_after(ssl, code)) continue;
    if (code == 1 && read_some(ssl)) {
        write_some(ssl, 1);
        served++;
    }
    if (code != 1 || !is_idle) end(ssl);
}

static int run_server(const char *kind, uint64_t count, const char *certificate, const char *key) {
    context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1) return 1;
    if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) return 1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, is_idle = !strcmp(kind, "server-idle");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) return 1;
    allow_descriptors(count + 64);
    signal(SIGPIPE, SIG_IGN);
    while (served < 1) serve(listener, is_idle);
    long before = resident();
    int64_t wall = monotonic_ns(), processor = processor_ns();
    while (served < count + 1) serve(listener, is_idle);
    processor = processor_ns() - processor;
    wall = monotonic_ns() - wall;
    if (is_idle) return printf("%.1f\n", (double)(resident() - before) / 1024 / (double)count) < 0;
    printf("%.1f %.0f\n", (double)processor / 1e3 / (double)count, (double)count * 1e9 / (double)wall);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *kind = argv[1];
    size_t count = strtoull(argv[2], NULL, 0);
    if (!strcmp(kind, "context")) {
        int64_t processor = processor_ns();
        SSL_CTX_set_default_verify_paths(SSL_CTX_new(TLS_client_method()));
        printf("%.2f\n", (double)(processor_ns() - processor) / 1e6);
        return 0;
    }
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (argc > 5) return run_server(kind, count, argv[4], argv[5]);
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_load_verify_file(context, argv[4]) != 1) return 1;
    if (!strcmp(kind, "resumed")) {
        SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(context, keep);
    }
    switch (*kind) {
        case 'g':
        case 'p': transfer(*kind, (uint64_t)count << 20); break;
        case 'i': idle(count); break;
        default: handshakes(count);
    }
}
