// Echoed messages, with a number of them in flight on each connection.

#include "client.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

static size_t depth, message;

// Waits for the echo of a first message. The server has then accepted the connection, which can take long while others
// are busy.
static void greet(struct connection *connection) {
    struct pollfd request = {.fd = connection->descriptor, .events = POLLIN};
    send_all(connection, message);
    while (connection->received < connection->sent)
        if (poll(&request, 1, -1) > 0) receive(connection);
}

int start_exchange(size_t count, size_t in_flight, size_t bytes) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct connection *connections = calloc(count, sizeof *connections);
    depth = in_flight;
    message = bytes;
    for (size_t i = 0; i < count; i++) {
        connections[i].times = calloc(depth, sizeof *connections->times);
        dial(&connections[i]);
        greet(&connections[i]);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, connections[i].descriptor, &event)) die("epoll_ctl");
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < depth; j++) connections[i].times[j] = monotonic_ns();
        send_all(&connections[i], depth * message);
    }
    return poller;
}

// The number of messages in flight, including one that was echoed in part.
static size_t messages_in_flight(const struct connection *connection) {
    return (connection->sent - connection->received + message - 1) / message;
}

size_t turn(struct connection *connection, struct samples *samples) {
    size_t whole = messages_in_flight(connection);
    receive(connection);
    whole -= messages_in_flight(connection);
    if (!whole) return 0;
    int64_t time = monotonic_ns();
    for (size_t i = 0; i < whole; i++) {
        if (samples->count < samples->capacity)
            samples->values[samples->count++] = time - connection->times[connection->oldest];
        connection->times[connection->oldest] = time;
        connection->oldest = (connection->oldest + 1) % depth;
    }
    send_all(connection, whole * message);
    return whole;
}

static void go_round(int poller, size_t count, struct samples *samples) {
    struct epoll_event events[256];
    while (count > 0) {
        int ready = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            size_t done = turn(events[i].data.ptr, samples);
            count -= done < count ? done : count;
        }
    }
}

void exchange(size_t number, size_t in_flight, size_t bytes, size_t count) {
    struct samples none = {0}, samples = {.values = calloc(count, sizeof(int64_t)), .capacity = count};
    int poller = start_exchange(number, in_flight, bytes);
    go_round(poller, count / 10 + number * depth, &none);
    int64_t wall = monotonic_ns(), processor = server_processor_ns();
    go_round(poller, count, &samples);
    wall = monotonic_ns() - wall;
    processor = server_processor_ns() - processor;
    sort_numbers(samples.values, samples.count);
    printf("%.1f %.0f %.1f %.1f %.1f\n", (double)processor / (double)count, (double)count * 1e9 / (double)wall,
           microseconds_at(samples.values, count, 50), microseconds_at(samples.values, count, 99),
           microseconds_at(samples.values, count, 99.9));
}

void send_bulk(size_t bytes) {
    struct connection connection = {0};
    dial(&connection);
    size_t first = connection.received;
    int64_t wall = monotonic_ns(), processor = server_processor_ns();
    while (connection.received - first < bytes) {
        size_t left = bytes - (connection.sent - first);
        struct pollfd request = {.fd = connection.descriptor, .events = (short)(left ? POLLIN | POLLOUT : POLLIN)};
        if (poll(&request, 1, -1) < 0) die("poll");
        if (request.revents & (POLLIN | POLLHUP | POLLERR)) receive(&connection);
        if (request.revents & POLLOUT && left) send_some(&connection, left);
    }
    wall = monotonic_ns() - wall;
    processor = server_processor_ns() - processor;
    printf("%.4f %.3f\n", (double)processor / (double)bytes, (double)bytes / (double)wall);
}
