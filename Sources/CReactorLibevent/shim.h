#pragma once

// Included before libevent's header, which defines _GNU_SOURCE: otherwise `fd_set` would have another layout than in
// Swift's Glibc module.
#include <sys/select.h>

#include <event2/event.h>

#include <stdlib.h>

struct reactor_events_of_descriptor {
    evutil_socket_t descriptor;
    size_t count, room;
    struct event **events;
};

static inline int reactor_collect_event(const struct event_base *base, const struct event *event, void *context) {
    struct reactor_events_of_descriptor *found = (struct reactor_events_of_descriptor *)context;
    (void)base;
    if (event_get_fd(event) != found->descriptor || event_get_events(event) & EV_SIGNAL) return 0;
    if (found->count < found->room) found->events[found->count] = (struct event *)event;
    found->count++;
    return 0;
}

/// Registers a descriptor with the kernel again, for all events that are still added, after it was removed from the
/// base's epoll without libevent's knowledge. Takes time in proportion to the base's events.
static inline void reactor_register_again(struct event_base *base, evutil_socket_t descriptor) {
    struct reactor_events_of_descriptor found = {descriptor, 0, 0, NULL};
    event_base_foreach_event(base, reactor_collect_event, &found);
    if (found.count == 0) return;
    found.events = (struct event **)calloc(found.count, sizeof *found.events);
    if (!found.events) return;
    found.room = found.count;
    found.count = 0;
    event_base_foreach_event(base, reactor_collect_event, &found);
    // libevent tells the kernel only of the first and the last event of a kind.
    for (size_t i = 0; i < found.count; i++) event_del(found.events[i]);
    for (size_t i = 0; i < found.count; i++) event_add(found.events[i], NULL);
    free(found.events);
}
