// Connections that send one message, and are then closed or stay open.

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

enum { message = 64, at_once = 64 };

struct visit {
    struct connection connection;
    int is_leaving;
};

static void begin(struct visit *visit, int poller) {
    dial(&visit->connection);
    visit->is_leaving = 0;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = visit};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, visit->connection.descriptor, &event)) die("epoll_ctl");
    send_all(&visit->connection, message);
}

static int is_answered(struct visit *visit) {
    return receive(&visit->connection) && visit->connection.received == visit->connection.sent;
}

// Returns whether the visit is complete: answered if the connection stays, otherwise closed by the server.
static int step(struct visit *visit, int stays) {
    if (!visit->is_leaving) {
        if (!is_answered(visit)) return 0;
        if (stays) return 1;
        finish_sending(&visit->connection);
        visit->is_leaving = 1;
        return 0;
    }
    if (!has_ended(&visit->connection)) return 0;
    hang_up(&visit->connection);
    return 1;
}

static void make_visits(size_t count, int stay) {
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct visit *visits = calloc(stay ? count : at_once, sizeof *visits);
    struct epoll_event events[at_once];
    size_t begun = 0, over = 0;
    while (begun < count && begun < at_once) begin(&visits[begun++], poller);
    while (over < count) {
        int ready = epoll_wait(poller, events, at_once, -1);
        for (int i = 0; i < ready; i++) {
            struct visit *visit = events[i].data.ptr;
            if (!step(visit, stay)) continue;
            over++;
            if (begun < count) begin(stay ? &visits[begun] : visit, poller), begun++;
        }
    }
}

// Each newcomer connects after a random number of the others' messages, one for each of them on average. If it connected right
// after a reply, it would always meet the server at the same place of its iteration, which depends on their relative speed.
void arrive(size_t busy, size_t count) {
    struct samples none = {0}, samples = {.values = calloc(count, sizeof(int64_t)), .capacity = count};
    struct epoll_event events[256];
    struct visit newcomer = {0};
    int poller = start_exchange(busy, 1, message);
    int64_t time = 0;
    size_t left = busy; // messages before the next newcomer; 0 while one is connected
    while (samples.count < count) {
        int ready = epoll_wait(poller, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr != &newcomer) {
                turn(events[i].data.ptr, &none);
                if (left == 0 || --left > 0) continue;
                time = monotonic_ns();
                begin(&newcomer, poller);
            } else if (is_answered(&newcomer)) {
                samples.values[samples.count++] = monotonic_ns() - time;
                hang_up(&newcomer.connection);
                left = 1 + (size_t)rand() % (2 * busy);
            }
        }
    }
    sort_numbers(samples.values, count);
    printf("%.1f %.1f %.1f\n", microseconds_at(samples.values, count, 50), microseconds_at(samples.values, count, 99),
           microseconds_at(samples.values, count, 99.9));
}

void stay(size_t count) {
    make_visits(at_once, 0);
    size_t memory = server_memory();
    int64_t processor = server_processor_ns();
    make_visits(count, 1);
    processor = server_processor_ns() - processor;
    printf("%.0f %.2f\n", ((double)server_memory() - (double)memory) / (double)count,
           (double)processor / 1e3 / (double)count);
}

void churn(size_t count) {
    make_visits(count / 50, 0); // warms up the server's caches
    size_t memory = server_memory(), descriptors = server_descriptors();
    int64_t processor = server_processor_ns();
    make_visits(count, 0);
    processor = server_processor_ns() - processor;
    printf("%.2f %.0f %.0f\n", (double)processor / 1e3 / (double)count,
           (double)server_descriptors() - (double)descriptors, ((double)server_memory() - (double)memory) / 1024);
}
