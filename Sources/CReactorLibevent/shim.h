#pragma once

// Included before libevent's header, which defines _GNU_SOURCE: otherwise `fd_set` would have another layout than in
// Swift's Glibc module.
#include <sys/select.h>

#include <event2/event.h>

#include <errno.h>
#include <setjmp.h>

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
