#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool reactor_has_sent(int descriptor) {
    struct tcp_info information = {0};
    socklen_t length = sizeof information;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &information, &length) != 0) return true;
    return information.tcpi_bytes_acked > 1; // the first is the connection's own
}

// One block of memory for the headers, and one for the bytes. The kernel writes only where datagrams come in: of the
// second block, what no datagram has reached takes no memory.
struct reactor_datagrams {
    unsigned capacity;
    size_t limit;
    char *bytes;
    struct mmsghdr *headers;
    struct iovec *places;
    struct sockaddr_storage *senders;
};

struct reactor_datagrams *reactor_datagrams_make(unsigned capacity, size_t limit) {
    struct reactor_datagrams *batch = calloc(1, sizeof *batch);
    if (!batch) return NULL;
    batch->capacity = capacity;
    batch->limit = limit;
    batch->bytes = reallocarray(NULL, capacity, limit);
    batch->headers = calloc(capacity, sizeof *batch->headers);
    batch->places = calloc(capacity, sizeof *batch->places);
    batch->senders = calloc(capacity, sizeof *batch->senders);
    if (!batch->bytes || !batch->headers || !batch->places || !batch->senders) {
        reactor_datagrams_free(batch);
        errno = ENOMEM;
        return NULL;
    }
    for (unsigned index = 0; index < capacity; index++) {
        batch->places[index] = (struct iovec){batch->bytes + index * limit, limit};
        struct msghdr *header = &batch->headers[index].msg_hdr;
        header->msg_name = &batch->senders[index];
        header->msg_iov = &batch->places[index];
        header->msg_iovlen = 1;
    }
    return batch;
}

void reactor_datagrams_free(struct reactor_datagrams *batch) {
    free(batch->bytes);
    free(batch->headers);
    free(batch->places);
    free(batch->senders);
    free(batch);
}

int reactor_datagrams_receive(struct reactor_datagrams *batch, int descriptor) {
    for (unsigned index = 0; index < batch->capacity; index++)
        batch->headers[index].msg_hdr.msg_namelen = sizeof *batch->senders;
    // With MSG_TRUNC the lengths told are those that the datagrams had, not those that fitted.
    return recvmmsg(descriptor, batch->headers, batch->capacity, MSG_DONTWAIT | MSG_TRUNC, NULL);
}

struct reactor_datagram reactor_datagrams_at(const struct reactor_datagrams *batch, unsigned index) {
    const struct mmsghdr *header = &batch->headers[index];
    size_t length = header->msg_len;
    return (struct reactor_datagram){
        .bytes = batch->places[index].iov_base,
        .count = length < batch->limit ? length : batch->limit,
        .length = length,
        .sender = &batch->senders[index],
        .sender_length = header->msg_hdr.msg_namelen,
    };
}

int reactor_multicast_membership(int descriptor, bool join, const void *group, size_t length, unsigned interface) {
    struct group_req request = {.gr_interface = interface};
    memcpy(&request.gr_group, group, length < sizeof request.gr_group ? length : sizeof request.gr_group);
    int level = request.gr_group.ss_family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
    return setsockopt(descriptor, level, join ? MCAST_JOIN_GROUP : MCAST_LEAVE_GROUP, &request, sizeof request);
}

int reactor_multicast_interface(int descriptor, int family, unsigned interface) {
    if (family == AF_INET6) {
        int index = (int)interface;
        return setsockopt(descriptor, IPPROTO_IPV6, IPV6_MULTICAST_IF, &index, sizeof index);
    }
    struct ip_mreqn request = {.imr_ifindex = (int)interface};
    return setsockopt(descriptor, IPPROTO_IP, IP_MULTICAST_IF, &request, sizeof request);
}
