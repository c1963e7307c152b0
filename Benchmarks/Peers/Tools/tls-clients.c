// tls-clients PROGRAM KIND COUNT  Runs PROGRAM server-KIND COUNT PORT CERTIFICATE KEY, a server on that port of loopback with
//                                 that certificate for localhost, and lets tls-openssl KIND COUNT PORT CERTIFICATE, of this
//                                 program's folder, be its clients.

#define _GNU_SOURCE // memfd_create(2)

#include "certificate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

// A port that nothing listens on.
static uint16_t find_port(void) {
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(probe, (struct sockaddr *)&address, size)) exit(1);
    getsockname(probe, (struct sockaddr *)&address, &size);
    close(probe);
    return ntohs(address.sin_port);
}

// Waits until the server listens. It drops this connection, which makes no handshake.
static void wait_for(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int code = connect(probe, (struct sockaddr *)&address, sizeof address);
        close(probe);
        if (!code) return;
        usleep(1000);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    EVP_PKEY *key;
    X509 *certificate = make_certificate(&key);
    char port[8], certificate_file[32], key_file[32], kind[32], client[4096], folder[4096];
    snprintf(port, sizeof port, "%d", find_port());
    snprintf(certificate_file, sizeof certificate_file, "/proc/self/fd/%d", write_certificate(certificate));
    snprintf(key_file, sizeof key_file, "/proc/self/fd/%d", write_key(key));
    snprintf(kind, sizeof kind, "server-%s", argv[2]);
    if (fork()) {
        execlp(argv[1], argv[1], kind, argv[3], port, certificate_file, key_file, NULL);
        return 1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(folder, sizeof folder, "%s", argv[0]);
    snprintf(client, sizeof client, "%s/tls-openssl", dirname(folder));
    // The columns of the server alone are wanted.
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
    wait_for((uint16_t)atoi(port));
    execl(client, client, argv[2], argv[3], port, certificate_file, NULL);
    return 1;
}
