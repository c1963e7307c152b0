// GLib's way to call a function on another thread's context: an idle source per call.

#include "workloads.h"

#include <glib.h>

struct post {
    posted_function function;
    void *context;
};

static gboolean run_post(gpointer post) {
    ((struct post *)post)->function(((struct post *)post)->context);
    return G_SOURCE_REMOVE;
}

static void *make(void) { return g_main_context_new(); }
static void run(void *context) { g_main_loop_run(g_main_loop_new(context, FALSE)); }

static void post(void *context, posted_function function, void *argument) {
    struct post *post = malloc(sizeof *post);
    *post = (struct post){function, argument};
    GSource *source = g_idle_source_new();
    g_source_set_priority(source, G_PRIORITY_DEFAULT);
    g_source_set_callback(source, run_post, post, free);
    g_source_attach(source, context);
    g_source_unref(source);
}

int main(int argc, char **argv) {
    struct cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
