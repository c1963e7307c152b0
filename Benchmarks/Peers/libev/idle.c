// idle-libev [SECONDS]  One timer.

#include "workloads.h"

#include <ev.h>

static void fired(struct ev_loop *loop, ev_timer *timer, int what) { (void)loop, (void)timer, (void)what; }

int main(int argc, char **argv) {
    ev_timer timer;
    ev_timer_init(&timer, fired, idle_milliseconds(argc, argv) / 1e3, 0);
    ev_timer_start(EV_DEFAULT, &timer);
    ev_run(EV_DEFAULT, 0);
}
