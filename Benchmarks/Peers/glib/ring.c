// GLib's descriptor sources.

#include "workloads.h"

#include <glib-unix.h>

static gboolean ready(gint descriptor, GIOCondition condition, gpointer index) {
    (void)descriptor, (void)condition;
    ring_ready((size_t)index);
    return G_SOURCE_CONTINUE;
}

static void prepare(size_t count) { (void)count; }
static void watch(size_t index, int descriptor) { g_unix_fd_add(descriptor, G_IO_IN, ready, (gpointer)index); }
static void run(void) { g_main_loop_run(g_main_loop_new(NULL, FALSE)); }

int main(int argc, char **argv) {
    struct ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
