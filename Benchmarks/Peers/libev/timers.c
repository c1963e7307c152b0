// libev's timers, which are relative to the loop's time. The loop's time is updated for each timer.

#include "workloads.h"

#include <ev.h>

static struct ev_loop *loop;
static ev_timer *timers;

static void fired(struct ev_loop *its, ev_timer *timer, int what) {
    (void)its, (void)what;
    timer_fired((size_t)(timer - timers));
}

static void prepare(size_t count) {
    loop = ev_default_loop(0);
    timers = malloc(count * sizeof *timers);
}

static void start(size_t index, int64_t delay, int64_t period) {
    ev_now_update(loop);
    ev_timer_init(&timers[index], fired, (double)delay / 1e9, (double)period / 1e9);
    ev_timer_start(loop, &timers[index]);
}

static void add(size_t index, int64_t delay) { start(index, delay, 0); }
static void add_repeating(size_t index) { start(index, timer_period, timer_period); }
static void cancel(size_t index) { ev_timer_stop(loop, &timers[index]); }
static void run(void) { ev_run(loop, 0); }
static void stop(void) { ev_break(loop, EVBREAK_ALL); }

int main(int argc, char **argv) {
    struct timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, NULL};
    return run_timers(&peer, argc, argv);
}
