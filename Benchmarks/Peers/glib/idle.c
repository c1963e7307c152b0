// idle-glib [SECONDS]  One timer.

#include "workloads.h"

#include <glib.h>

static gboolean fired(gpointer loop) {
    g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

int main(int argc, char **argv) {
    GMainLoop *loop = g_main_loop_new(NULL, FALSE);
    g_timeout_add((guint)idle_milliseconds(argc, argv), fired, loop);
    g_main_loop_run(loop);
}
