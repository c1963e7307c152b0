// idle-libuv [SECONDS]  One timer.

#include "workloads.h"

#include <uv.h>

static void fired(uv_timer_t *timer) { (void)timer; }

int main(int argc, char **argv) {
    uv_timer_t timer;
    uv_timer_init(uv_default_loop(), &timer);
    uv_timer_start(&timer, fired, (uint64_t)idle_milliseconds(argc, argv), 0);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
}
