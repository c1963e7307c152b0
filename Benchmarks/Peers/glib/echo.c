// echo-glib [PORT]  GLib's descriptor sources, one per connection. Prints the port that it listens on.

#include "workloads.h"

#include <glib-unix.h>

static gboolean acceptable(gint listener, GIOCondition condition, gpointer context) {
    (void)condition, (void)context;
    echo_accept(listener);
    return G_SOURCE_CONTINUE;
}

static gboolean ready(gint descriptor, GIOCondition condition, gpointer connection) {
    (void)descriptor;
    if (condition & G_IO_OUT) echo_writable(connection);
    else echo_readable(connection);
    return G_SOURCE_CONTINUE;
}

static void prepare(int listener) { g_unix_fd_add(listener, G_IO_IN, acceptable, NULL); }

static void watch_for(struct echo_connection *connection, GIOCondition condition) {
    GSource *source = g_unix_fd_source_new(connection->descriptor, condition | G_IO_HUP | G_IO_ERR);
    g_source_set_callback(source, G_SOURCE_FUNC(ready), connection, NULL);
    g_source_attach(source, NULL);
    connection->watch = source;
}

static void forget(struct echo_connection *connection) {
    g_source_destroy(connection->watch);
    g_source_unref(connection->watch);
}

static void watch(struct echo_connection *connection) { watch_for(connection, G_IO_IN); }

static void read_again(struct echo_connection *connection) {
    forget(connection);
    watch_for(connection, G_IO_IN);
}

static void write_instead(struct echo_connection *connection) {
    forget(connection);
    watch_for(connection, G_IO_OUT);
}

static void run(void) { g_main_loop_run(g_main_loop_new(NULL, FALSE)); }

int main(int argc, char **argv) {
    struct echo_peer peer = {prepare, watch, read_again, write_instead, forget, run};
    return run_echo(&peer, argc, argv);
}
