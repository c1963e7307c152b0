// tls-server PROGRAM ARGUMENT...  Runs PROGRAM ARGUMENT... PORT CERTIFICATE with a server on that port of loopback, which has
//                                 a certificate of its own for localhost. A client sends the first letter of its kind of work
//                                 and a number of 64 bits:
//
// get      the server sends as many bytes, and ends
// put      the server reads as many bytes, sends one, and ends
// h        (full, resumed) the server sends a byte, and ends
// idle     the server sends a byte, and waits for the end

#define _GNU_SOURCE // memfd_create(2)

#include "certificate.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { block_size = 65536 };

static SSL_CTX *context;

static int send_all(SSL *ssl, uint64_t count) {
    static char block[block_size];
    while (count > 0) {
        int size = count < block_size ? (int)count : block_size;
        if (SSL_write(ssl, block, size) <= 0) return 0;
        count -= (uint64_t)size;
    }
    return 1;
}

static void receive(SSL *ssl, uint64_t count) {
    char *block = malloc(block_size);
    for (int size; count > 0 && (size = SSL_read(ssl, block, block_size)) > 0;) count -= (uint64_t)size;
    free(block);
}

static void *serve(void *argument) {
    int descriptor = (int)(intptr_t)argument;
    // Otherwise the answer may wait for the acknowledgement of the tickets: 40 ms.
    int on = 1;
    setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, descriptor);
    char request[9];
    uint64_t count;
    if (SSL_accept(ssl) == 1 && SSL_read(ssl, request, sizeof request) == sizeof request) {
        memcpy(&count, request + 1, sizeof count);
        if (*request == 'p') receive(ssl, count);
        send_all(ssl, *request == 'g' ? count : 1);
        if (*request == 'i') receive(ssl, 1);
        SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(descriptor);
    return NULL;
}

static void *wait_for_end(void *argument) {
    char byte;
    while (read((int)(intptr_t)argument, &byte, 1) < 0) {}
    _exit(0); // Other threads still use OpenSSL, which exit(3) would clean up.
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    context = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key;
    X509 *certificate = make_certificate(&key);
    SSL_CTX_use_certificate(context, certificate);
    SSL_CTX_use_PrivateKey(context, key);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1024)) return 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    int client[2];
    if (pipe(client)) return 1;
    if (fork()) {
        close(client[0]);
        char port[8], file[32];
        snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
        snprintf(file, sizeof file, "/proc/self/fd/%d", write_certificate(certificate));
        char **arguments = calloc((size_t)argc + 2, sizeof *arguments);
        memcpy(arguments, argv + 1, (size_t)(argc - 1) * sizeof *arguments);
        arguments[argc - 1] = port;
        arguments[argc] = file;
        execvp(arguments[0], arguments);
        return 1;
    }
    // Not a child of the client, whose strace(1) would wait for it. The pipe ends with the client.
    if (fork()) return 0;
    close(client[1]);
    signal(SIGPIPE, SIG_IGN);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 18);
    pthread_t end;
    if (pthread_create(&end, &attributes, wait_for_end, (void *)(intptr_t)client[0])) return 1;
    for (int descriptor; (descriptor = accept(listener, NULL, NULL)) >= 0;) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, serve, (void *)(intptr_t)descriptor)) close(descriptor);
    }
}
