#define _GNU_SOURCE
#include "CReactorLinux.h"

#include <errno.h>
#include <limits.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

_Static_assert(sizeof(struct sockaddr_storage) == sizeof((struct reactor_address){0}.storage), "an address fits");

// MARK: Calls

static struct reactor_address address_of(int descriptor, int (*get)(int, struct sockaddr *, socklen_t *)) {
    struct reactor_address result = {0};
    socklen_t length = sizeof result.storage;
    int code = get(descriptor, (struct sockaddr *)result.storage, &length);
    result.length = code == 0 ? (int)length : -1;
    return result;
}

struct reactor_address reactor_local_address(int descriptor) { return address_of(descriptor, getsockname); }

struct reactor_address reactor_peer_address(int descriptor) { return address_of(descriptor, getpeername); }

int reactor_bind(int descriptor, struct reactor_address address) {
    return bind(descriptor, (const struct sockaddr *)address.storage, (socklen_t)address.length);
}

int reactor_connect(int descriptor, struct reactor_address address) {
    return connect(descriptor, (const struct sockaddr *)address.storage, (socklen_t)address.length);
}

void reactor_reset(int descriptor) {
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    // TCP resets the connection at once, whatever duplicates the descriptor has. Unix-domain sockets refuse.
    if (connect(descriptor, &none, sizeof none) != 0) shutdown(descriptor, SHUT_RDWR);
}

struct reactor_accepted reactor_accept(int listener) {
    struct reactor_accepted result = {0};
    socklen_t length = sizeof result.peer.storage;
    struct sockaddr *peer = (struct sockaddr *)result.peer.storage;
    result.descriptor = accept4(listener, peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    result.peer.length = (int)length;
    return result;
}

int reactor_option(int descriptor, int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(descriptor, level, name, &value, &length) == 0 ? value : -1;
}

int reactor_set_option(int descriptor, int level, int name, int value) {
    return setsockopt(descriptor, level, name, &value, sizeof value);
}

int reactor_queued_bytes(int descriptor, unsigned long request) {
    int count = 0;
    return ioctl(descriptor, request, &count) == 0 ? count : -1;
}

struct reactor_addresses reactor_resolve(const char *host, const char *service, int flags, int family, int type) {
    struct addrinfo hints = {.ai_flags = flags, .ai_family = family, .ai_socktype = type};
    struct addrinfo *list = NULL;
    struct reactor_addresses result = {0};
    result.code = getaddrinfo(host, service, &hints, &list);
    result.system_error = errno;
    if (result.code != 0) return result;
    size_t capacity = 0;
    for (struct addrinfo *entry = list; entry; entry = entry->ai_next) capacity++;
    result.addresses = calloc(capacity, sizeof *result.addresses);
    for (struct addrinfo *entry = list; entry && result.addresses; entry = entry->ai_next) {
        struct reactor_address *address = &result.addresses[result.count];
        if (!entry->ai_addr || entry->ai_addrlen > sizeof address->storage) continue;
        memcpy(address->storage, entry->ai_addr, entry->ai_addrlen);
        address->length = (int)entry->ai_addrlen;
        result.count++;
    }
    if (!result.addresses) result.code = EAI_MEMORY;
    freeaddrinfo(list);
    return result;
}

bool reactor_has_sent(int descriptor) {
    struct tcp_info information = {0};
    socklen_t length = sizeof information;
    if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &information, &length) != 0) return true;
    return information.tcpi_bytes_acked > 1; // the first is the connection's own
}

// MARK: Datagrams

struct datagram {
    struct iovec place;
    struct sockaddr_storage sender;
};

struct reactor_datagrams {
    unsigned capacity;
    size_t limit;
    // One block, of which only the pages that datagrams have filled take memory.
    char *bytes;
    struct datagram *datagrams;
    // Of the credentials and descriptors of each; 0 if none are wanted.
    size_t control_size;
    struct mmsghdr headers[];
};

static const struct reactor_credentials no_credentials = {0, UINT_MAX, UINT_MAX};

size_t reactor_control_size(unsigned descriptors, bool credentials) {
    return (credentials ? CMSG_SPACE(sizeof(struct ucred)) : 0) +
           (descriptors ? CMSG_LEN(descriptors * sizeof(int)) : 0);
}

struct reactor_datagrams *reactor_datagrams_make(unsigned capacity, size_t limit, size_t control) {
    size_t each = sizeof(struct mmsghdr) + sizeof(struct datagram) + CMSG_ALIGN(control);
    struct reactor_datagrams *batch = calloc(1, sizeof *batch + capacity * each);
    char *bytes = reallocarray(NULL, capacity, limit);
    if (!batch || !bytes) return free(batch), free(bytes), NULL;
    *batch = (struct reactor_datagrams){capacity, limit, bytes, (struct datagram *)&batch->headers[capacity], control};
    for (unsigned index = 0; index < capacity; index++) {
        struct datagram *datagram = &batch->datagrams[index];
        datagram->place = (struct iovec){bytes + index * limit, limit};
        struct msghdr *header = &batch->headers[index].msg_hdr;
        header->msg_name = &datagram->sender;
        header->msg_iov = &datagram->place;
        header->msg_iovlen = 1;
        if (control) header->msg_control = (char *)&batch->datagrams[capacity] + index * CMSG_ALIGN(control);
    }
    return batch;
}

void reactor_datagrams_free(struct reactor_datagrams *batch) {
    free(batch->bytes);
    free(batch);
}

int reactor_datagrams_receive(struct reactor_datagrams *batch, int descriptor) {
    for (unsigned index = 0; index < batch->capacity; index++) {
        batch->headers[index].msg_hdr.msg_namelen = sizeof(struct sockaddr_storage);
        batch->headers[index].msg_hdr.msg_controllen = batch->control_size;
    }
    // With MSG_TRUNC msg_len is the whole length of the datagram, not what fitted.
    return recvmmsg(descriptor, batch->headers, batch->capacity, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC, NULL);
}

static void read_control(struct reactor_datagram *datagram, const struct msghdr *header) {
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR((struct msghdr *)header, part)) {
        if (part->cmsg_level != SOL_SOCKET) continue;
        if (part->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof sender);
            datagram->credentials = (struct reactor_credentials){sender.pid, sender.uid, sender.gid};
        } else if (part->cmsg_type == SCM_RIGHTS) {
            datagram->descriptors = (const int *)CMSG_DATA(part);
            datagram->descriptor_count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        }
    }
}

struct reactor_datagram reactor_datagrams_at(const struct reactor_datagrams *batch, unsigned index) {
    const struct mmsghdr *header = &batch->headers[index];
    size_t length = header->msg_len;
    struct reactor_datagram result = {
        .bytes = batch->datagrams[index].place.iov_base,
        .count = length < batch->limit ? length : batch->limit,
        .length = length,
        .sender.length = (int)header->msg_hdr.msg_namelen,
        .credentials = no_credentials,
        .has_lost_descriptors = header->msg_hdr.msg_flags & MSG_CTRUNC,
    };
    memcpy(result.sender.storage, &batch->datagrams[index].sender, sizeof result.sender.storage);
    if (batch->control_size) read_control(&result, &header->msg_hdr);
    return result;
}

ssize_t reactor_send_datagram(int descriptor, const void *bytes, size_t count, struct reactor_address address) {
    const struct sockaddr *peer = address.length > 0 ? (const struct sockaddr *)address.storage : NULL;
    return sendto(descriptor, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL, peer, (socklen_t)address.length);
}

ssize_t reactor_send_descriptors(int descriptor, const void *bytes, size_t count, struct reactor_address address,
                                 const int *passed, size_t passed_count) {
    enum { most = 253 }; // SCM_MAX_FD
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(most * sizeof(int))];
    } control = {0};
    if (passed_count > most) {
        errno = EINVAL;
        return -1;
    }
    struct iovec place = {(void *)bytes, count};
    struct msghdr message = {.msg_iov = &place, .msg_iovlen = 1};
    if (address.length > 0) {
        message.msg_name = address.storage;
        message.msg_namelen = (socklen_t)address.length;
    }
    if (passed_count > 0) {
        size_t size = passed_count * sizeof(int);
        control.header = (struct cmsghdr){CMSG_LEN(size), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.header), passed, size);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(size);
    }
    return sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

struct reactor_credentials reactor_peer_credentials(int descriptor) {
    struct ucred peer;
    socklen_t length = sizeof peer;
    if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return no_credentials;
    return (struct reactor_credentials){peer.pid, peer.uid, peer.gid};
}

int reactor_multicast_membership(int descriptor, bool join, struct reactor_address group, unsigned interface) {
    struct group_req request = {.gr_interface = interface, };
    memcpy(&request.gr_group, group.storage, sizeof group.storage);
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
