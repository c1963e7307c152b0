// libevent's timers, with a precise clock and precise waits (EVENT_BASE_FLAG_PRECISE_TIMER) unless COARSE is set.

#include "workloads.h"

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdlib.h>

static struct event_base *base;
static struct event *events;

static void fired(evutil_socket_t descriptor, short what, void *index) {
    (void)descriptor, (void)what;
    timer_fired((size_t)index);
}

static void prepare(size_t count) {
    struct event_config *configuration = event_config_new();
    if (!getenv("COARSE")) event_config_set_flag(configuration, EVENT_BASE_FLAG_PRECISE_TIMER);
    base = event_base_new_with_config(configuration);
    events = malloc(count * sizeof *events);
}

static void add_event(size_t index, short flags, int64_t delay) {
    struct timeval time = {delay / 1000000000, delay % 1000000000 / 1000};
    event_assign(&events[index], base, -1, flags, fired, (void *)index);
    event_add(&events[index], &time);
}

static void add(size_t index, int64_t delay) { add_event(index, 0, delay); }
static void add_repeating(size_t index) { add_event(index, EV_PERSIST, timer_period); }
static void cancel(size_t index) { event_del(&events[index]); }
static void run(void) { event_base_dispatch(base); }
static void stop(void) { event_base_loopbreak(base); }

int main(int argc, char **argv) {
    struct timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, NULL};
    return run_timers(&peer, argc, argv);
}
