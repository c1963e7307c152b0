// GLib's timeout sources, which count milliseconds.

#include "workloads.h"

#include <glib.h>

static GMainLoop *loop;
static GSource **sources;

static gboolean fired_once(gpointer index) {
    timer_fired((size_t)index);
    return G_SOURCE_REMOVE;
}

static gboolean fired(gpointer index) {
    timer_fired((size_t)index);
    return G_SOURCE_CONTINUE;
}

static void prepare(size_t count) {
    loop = g_main_loop_new(NULL, FALSE);
    sources = malloc(count * sizeof *sources);
}

static void start(size_t index, int64_t delay, GSourceFunc function) {
    sources[index] = g_timeout_source_new((guint)((delay + 999999) / 1000000));
    g_source_set_callback(sources[index], function, (gpointer)index, NULL);
    g_source_attach(sources[index], NULL);
}

static void add(size_t index, int64_t delay) { start(index, delay, fired_once); }
static void add_repeating(size_t index) { start(index, timer_period, fired); }

static void cancel(size_t index) {
    g_source_destroy(sources[index]);
    g_source_unref(sources[index]);
}

static void run(void) { g_main_loop_run(loop); }
static void stop(void) { g_main_loop_quit(loop); }

int main(int argc, char **argv) {
    struct timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, NULL};
    return run_timers(&peer, argc, argv);
}
