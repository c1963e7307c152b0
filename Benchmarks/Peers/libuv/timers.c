// libuv's timers, which count milliseconds from the loop's time. The loop's time is updated for each timer.

#include "workloads.h"

#include <uv.h>

static uv_loop_t *loop;
static uv_timer_t *timers;

static void fired(uv_timer_t *timer) { timer_fired((size_t)(timer - timers)); }

static void prepare(size_t count) {
    loop = uv_default_loop();
    timers = malloc(count * sizeof *timers);
}

static void start(size_t index, int64_t delay, int64_t period) {
    uv_update_time(loop);
    uv_timer_init(loop, &timers[index]);
    uv_timer_start(&timers[index], fired, (uint64_t)((delay + 999999) / 1000000), (uint64_t)(period / 1000000));
}

static void add(size_t index, int64_t delay) { start(index, delay, 0); }
static void add_repeating(size_t index) { start(index, timer_period, timer_period); }
static void cancel(size_t index) { uv_timer_stop(&timers[index]); }
static void run(void) { uv_run(loop, UV_RUN_DEFAULT); }
static void stop(void) { uv_stop(loop); }

int main(int argc, char **argv) {
    struct timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, NULL};
    return run_timers(&peer, argc, argv);
}
