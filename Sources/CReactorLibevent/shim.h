#pragma once

// Included before libevent's header, which defines _GNU_SOURCE: otherwise `fd_set` would have another layout than in
// Swift's Glibc module.
#include <sys/select.h>

#include <event2/event.h>

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

// CReactorLinux's.
extern void reactor_leave_at_error(jmp_buf *target);

/// Makes a base for one thread: without locks, and without a cached time, because it has no timers and would read
/// the clock in every pass. NULL with errno on failure.
///
/// libevent exits if it gets no sockets for its signals, because another thread has just taken the last descriptors. This
/// returns in its place; the unfinished base and its epoll leak.
static inline struct event_base *reactor_base_make(void) {
    errno = ENOMEM;
    struct event_config *configuration = event_config_new();
    if (!configuration) return NULL;
    jmp_buf target;
    if (setjmp(target)) {
        reactor_leave_at_error(NULL);
        event_config_free(configuration);
        errno = EMFILE;
        return NULL;
    }
    reactor_leave_at_error(&target);
    event_config_set_flag(configuration,
                          EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV | EVENT_BASE_FLAG_NO_CACHE_TIME);
    event_config_require_features(configuration, EV_FEATURE_ET | EV_FEATURE_O1);
    struct event_base *base = event_base_new_with_config(configuration);
    reactor_leave_at_error(NULL);
    event_config_free(configuration);
    return base;
}

static inline void reactor_ignore_event(evutil_socket_t descriptor, short kind, void *context) {}

/// The epoll(7) of a base, which libevent does not expose, or -1 with errno: no other epoll watches a new descriptor.
static inline int reactor_base_epoll(struct event_base *base) {
    int probe = eventfd(0, EFD_CLOEXEC);
    if (probe < 0) return -1;
    struct event *event = event_new(base, probe, EV_READ, reactor_ignore_event, NULL);
    int found = -1, error = ENOMEM;
    if (event && event_add(event, NULL) == 0) {
        error = ENOTSUP;
        for (long number = 0, end = sysconf(_SC_OPEN_MAX); found < 0 && number < end; number++)
            if (epoll_ctl((int)number, EPOLL_CTL_DEL, probe, NULL) == 0) found = (int)number;
    }
    if (event) event_free(event);
    close(probe);
    errno = error;
    return found;
}

/// Makes an event: calls `callback` whenever `descriptor` is ready for `kind`, until event_free. 0, or -1 with errno.
static inline int reactor_event_add(struct event_base *base, int descriptor, short kind, event_callback_fn callback,
                                    void *context, struct event **event) {
    *event = event_new(base, descriptor, kind | EV_PERSIST, callback, context);
    if (!*event) {
        errno = ENOMEM;
        return -1;
    }
    if (event_add(*event, NULL) == 0) return 0;
    int error = errno;
    event_free(*event);
    errno = error;
    return -1;
}

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
