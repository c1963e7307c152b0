// hostile-glib WORKLOAD  The workloads on GLib's main loop and GIO: asynchronous calls, and timeouts of one second for sockets of
//                        clients. Each result is checked as the documentation says. TLS is missing: it needs glib-networking.

#include "hostile.h"

#include <gio/gio.h>
#include <gio/gunixinputstream.h>
#include <gio/gunixoutputstream.h>
#include <glib-unix.h>
#include <signal.h>

static GMainLoop *loop;

/// Ends the program when a call has failed.
static void check(const GError *error, const char *call) {
    if (error) reported("%s: %s", call, error->message);
}

static _Noreturn void run_to(const char *result) {
    g_main_loop_run(loop);
    right(result);
}

// MARK: - Timers

static int64_t begin;
static int fired;

static gboolean fire_once(gpointer context) {
    (void)context;
    if (now() - begin < (fired + 1) * 20000000ll) fail("early");
    if (++fired == 1) g_timeout_add(20, fire_once, NULL);
    else g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

static void timer(void) {
    g_timeout_add(20, fire_once, NULL);
    run_to("2");
}

static struct periodic { int interval, count; } periodic[] = {{2, 0}, {3, 0}, {5, 0}};

static gboolean tick(gpointer context) {
    struct periodic *timer = context;
    if (++timer->count > 20) fail("fired after its end");
    if (now() - begin < timer->count * timer->interval * 1000000ll) fail("early");
    if (++fired == 60) g_main_loop_quit(loop);
    return timer->count < 20;
}

static void timers(void) {
    for (int i = 0; i < 3; i++) g_timeout_add((guint)periodic[i].interval, tick, &periodic[i]);
    run_to("60");
}

// A context of its own is what GLib has for a loop that serves only some sources.

static bool is_nested;
static int outer, inner, before;

static gboolean tick_outer(gpointer context) {
    (void)context;
    if (is_nested) fail("a timer of another context fired");
    outer++;
    return G_SOURCE_CONTINUE;
}

static gboolean tick_inner(gpointer nested) {
    if (++inner < 5) return G_SOURCE_CONTINUE;
    g_main_loop_quit(nested);
    return G_SOURCE_REMOVE;
}

static gboolean end_nested(gpointer context) {
    (void)context;
    if (inner != 5 || outer == before) fail("%d and %d", inner, outer);
    g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

static gboolean nest(gpointer none) {
    (void)none;
    GMainContext *context = g_main_context_new();
    GMainLoop *nested = g_main_loop_new(context, FALSE);
    GSource *source = g_timeout_source_new(2);
    g_source_set_callback(source, tick_inner, nested, NULL);
    g_source_attach(source, context);
    is_nested = true;
    g_main_loop_run(nested);
    is_nested = false;
    g_source_unref(source);
    g_main_loop_unref(nested);
    g_main_context_unref(context);
    before = outer;
    g_timeout_add(20, end_nested, NULL);
    return G_SOURCE_REMOVE;
}

static void nested(void) {
    g_timeout_add(2, tick_outer, NULL);
    g_timeout_add(20, nest, NULL);
    run_to("5");
}

// MARK: - A ring of pipes

static struct link {
    GInputStream *input;
    GOutputStream *output;
    guchar received, sent;
} links[ring_size];
static int hops;

static void close_output(struct link *link) {
    GError *error = NULL;
    g_output_stream_close(link->output, NULL, &error);
    check(error, "close");
}

static void passed(GObject *output, GAsyncResult *result, gpointer context) {
    GError *error = NULL;
    g_output_stream_write_all_finish(G_OUTPUT_STREAM(output), result, NULL, &error);
    check(error, "write");
    if (hops == hop_count) close_output(context);
}

static void send_byte(struct link *link, guchar byte) {
    link->sent = byte;
    g_output_stream_write_all_async(link->output, &link->sent, 1, G_PRIORITY_DEFAULT, NULL, passed, link);
}

static void pass(GObject *input, GAsyncResult *result, gpointer context) {
    static int ended;
    struct link *link = context;
    GError *error = NULL;
    gssize count = g_input_stream_read_finish(G_INPUT_STREAM(input), result, &error);
    check(error, "read");
    if (count == 0) {
        if (hops < hop_count) fail("an end");
        g_input_stream_close(link->input, NULL, &error);
        check(error, "close");
        if (++ended == ring_size) g_main_loop_quit(loop);
        return;
    }
    if (link->received != hops || link != &links[hops % ring_size]) fail("byte %d", link->received);
    if (++hops < hop_count) send_byte(link, (guchar)hops);
    else
        for (int i = 0; i < ring_size; i++)
            if (!g_output_stream_has_pending(links[i].output)) close_output(&links[i]);
    g_input_stream_read_async(link->input, &link->received, 1, G_PRIORITY_DEFAULT, NULL, pass, link);
}

static void ring(void) {
    GError *error = NULL;
    for (int i = 0; i < ring_size; i++) {
        int ends[2];
        struct link *next = &links[(i + 1) % ring_size];
        if (!g_unix_open_pipe(ends, FD_CLOEXEC, &error) || !g_unix_set_fd_nonblocking(ends[0], TRUE, &error) ||
            !g_unix_set_fd_nonblocking(ends[1], TRUE, &error))
            check(error, "pipe");
        next->input = g_unix_input_stream_new(ends[0], TRUE);
        links[i].output = g_unix_output_stream_new(ends[1], TRUE);
        g_input_stream_read_async(next->input, &next->received, 1, G_PRIORITY_DEFAULT, NULL, pass, next);
    }
    send_byte(&links[ring_size - 1], 0);
    run_to("100");
}

// MARK: - Sockets

static GSocketAddress *address;

/// Listens on a free port of 127.0.0.1.
static void listen_on(gpointer listener) {
    GError *error = NULL;
    GSocketAddress *any = g_inet_socket_address_new_from_string("127.0.0.1", 0);
    g_socket_listener_set_backlog(listener, 4096);
    g_socket_listener_add_address(listener, any, G_SOCKET_TYPE_STREAM, G_SOCKET_PROTOCOL_TCP, NULL, &address, &error);
    check(error, "g_socket_listener_add_address");
    g_object_unref(any);
}

struct client {
    GSocketConnection *connection;
    GAsyncReadyCallback connected;
    size_t received;
    char bytes[65536];
};

static void connect_client(struct client *client, GAsyncReadyCallback connected) {
    GSocketClient *factory = g_socket_client_new();
    g_socket_client_set_timeout(factory, 1); // for the connection as well
    g_socket_client_set_enable_proxy(factory, FALSE);
    g_socket_client_connect_async(factory, G_SOCKET_CONNECTABLE(address), NULL, connected, client);
    g_object_unref(factory);
}

static void finish_connect(GObject *factory, GAsyncResult *result, struct client *client) {
    GError *error = NULL;
    client->connection = g_socket_client_connect_finish(G_SOCKET_CLIENT(factory), result, &error);
    check(error, "connect");
}

static void read_some(struct client *client, GAsyncReadyCallback received) {
    GInputStream *input = g_io_stream_get_input_stream(G_IO_STREAM(client->connection));
    g_input_stream_read_async(input, client->bytes, sizeof client->bytes, G_PRIORITY_DEFAULT, NULL, received, client);
}

static void write_all(struct client *client, const void *bytes, size_t size, GAsyncReadyCallback written) {
    GOutputStream *output = g_io_stream_get_output_stream(G_IO_STREAM(client->connection));
    g_output_stream_write_all_async(output, bytes, size, G_PRIORITY_DEFAULT, NULL, written, client);
}

static void finish_write(GObject *output, GAsyncResult *result, const char *what) {
    GError *error = NULL;
    g_output_stream_write_all_finish(G_OUTPUT_STREAM(output), result, NULL, &error);
    check(error, what);
}

static void close_connection(struct client *client) {
    GError *error = NULL;
    g_io_stream_close(G_IO_STREAM(client->connection), NULL, &error);
    check(error, "close");
    g_clear_object(&client->connection);
}

/// What the server has for a client: its connection, and the bytes that it sends back.
static struct client *accepted(GSocketConnection *connection) {
    struct client *client = g_new0(struct client, 1);
    client->connection = g_object_ref(connection);
    return client;
}

static void stop_service(GSocketService *service) {
    g_socket_service_stop(service);
    g_socket_listener_close(G_SOCKET_LISTENER(service));
}

static GSocketService *service;
static int served, ended, expected = 1;

static void stop_if_done(void) {
    if (served < expected || ended < expected) return;
    stop_service(service);
    g_main_loop_quit(loop);
}

static void reply(GObject *input, GAsyncResult *result, gpointer context);

static void replied(GObject *output, GAsyncResult *result, gpointer context) {
    finish_write(output, result, "write of the server");
    read_some(context, reply);
}

static void reply(GObject *input, GAsyncResult *result, gpointer context) {
    struct client *client = context;
    GError *error = NULL;
    gssize count = g_input_stream_read_finish(G_INPUT_STREAM(input), result, &error);
    check(error, "read of the server");
    if (count > 0) return write_all(client, client->bytes, (size_t)count, replied);
    close_connection(client);
    g_free(client);
    served++;
    stop_if_done();
}

static gboolean serve_echo(GSocketService *service, GSocketConnection *connection, GObject *source, gpointer context) {
    (void)service, (void)source, (void)context;
    read_some(accepted(connection), reply);
    return TRUE;
}

static void receive_echo(GObject *input, GAsyncResult *result, gpointer context) {
    struct client *client = context;
    GError *error = NULL;
    gssize count = g_input_stream_read_finish(G_INPUT_STREAM(input), result, &error);
    check(error, "read");
    for (gssize i = 0; i < count; i++)
        if (client->bytes[i] != byte_at(client->received++)) fail("byte %zu is another one", client->received - 1);
    if (count > 0) return read_some(client, receive_echo);
    if (client->received != echo_size) fail("%zu bytes", client->received);
    close_connection(client);
    ended++;
    stop_if_done();
}

static void sent(GObject *output, GAsyncResult *result, gpointer context) {
    struct client *client = context;
    GError *error = NULL;
    finish_write(output, result, "write");
    g_socket_shutdown(g_socket_connection_get_socket(client->connection), FALSE, TRUE, &error);
    check(error, "shutdown");
}

static void connected_echo(GObject *factory, GAsyncResult *result, gpointer context) {
    static char bytes[echo_size];
    for (size_t i = 0; i < echo_size; i++) bytes[i] = byte_at(i);
    finish_connect(factory, result, context);
    read_some(context, receive_echo);
    write_all(context, bytes, echo_size, sent);
}

static void serve(GCallback incoming) {
    service = g_socket_service_new();
    listen_on(service);
    g_signal_connect(service, "incoming", incoming, NULL);
    g_socket_service_start(service);
}

static void echo(void) {
    static struct client client;
    serve(G_CALLBACK(serve_echo));
    connect_client(&client, connected_echo);
    run_to("262144");
}

static void greeted(GObject *output, GAsyncResult *result, gpointer context) {
    finish_write(output, result, "write of the server");
    close_connection(context);
    g_free(context);
    served++;
    stop_if_done();
}

static gboolean serve_greeting(GSocketService *service, GSocketConnection *connection, GObject *source, gpointer context) {
    (void)service, (void)source, (void)context;
    write_all(accepted(connection), "hello", 5, greeted);
    return TRUE;
}

static void receive_greeting(GObject *input, GAsyncResult *result, gpointer context) {
    struct client *client = context;
    GError *error = NULL;
    gssize count = g_input_stream_read_finish(G_INPUT_STREAM(input), result, &error);
    check(error, "read");
    for (gssize i = 0; i < count; i++)
        if (client->received >= 5 || client->bytes[i] != "hello"[client->received++]) fail("another greeting");
    if (count > 0) return read_some(client, receive_greeting);
    if (client->received != 5) fail("%zu bytes of a greeting", client->received);
    close_connection(client);
    ended++;
    stop_if_done();
}

static void connected_greeting(GObject *factory, GAsyncResult *result, gpointer context) {
    finish_connect(factory, result, context);
    read_some(context, receive_greeting);
}

static void storm(void) {
    static struct client clients[client_count];
    expected = client_count;
    serve(G_CALLBACK(serve_greeting));
    for (int i = 0; i < client_count; i++) connect_client(&clients[i], connected_greeting);
    run_to("50");
}

static GSocketListener *listener;

static void refused(GObject *factory, GAsyncResult *result, gpointer context) {
    (void)context;
    GError *error = NULL;
    if (g_socket_client_connect_finish(G_SOCKET_CLIENT(factory), result, &error)) fail("connected to a closed port");
    if (!g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CONNECTION_REFUSED)) check(error, "connect");
    g_main_loop_quit(loop);
}

static void receive_one(GObject *input, GAsyncResult *result, gpointer context) {
    struct client *client = context;
    GError *error = NULL;
    gssize count = g_input_stream_read_finish(G_INPUT_STREAM(input), result, &error);
    check(error, "read");
    for (gssize i = 0; i < count; i++)
        if (client->received >= 5 || client->bytes[i] != "hello"[client->received++]) fail("another greeting");
    if (count > 0) return read_some(client, receive_one);
    if (client->received != 5) fail("%zu bytes of a greeting", client->received);
    close_connection(client);
    g_socket_listener_close(listener);
    connect_client(client, refused);
}

static void connected_one(GObject *factory, GAsyncResult *result, gpointer context) {
    finish_connect(factory, result, context);
    read_some(context, receive_one);
}

static void accept_one(GObject *source, GAsyncResult *result, gpointer context) {
    (void)context;
    GError *error = NULL;
    GSocketConnection *connection = g_socket_listener_accept_finish(G_SOCKET_LISTENER(source), result, NULL, &error);
    check(error, "accept");
    write_all(accepted(connection), "hello", 5, greeted);
    g_object_unref(connection);
}

static void connect_both(void) {
    static struct client client;
    expected = 2; // this listener is no service
    listener = g_socket_listener_new();
    listen_on(listener);
    g_socket_listener_accept_async(listener, NULL, accept_one, NULL);
    connect_client(&client, connected_one);
    run_to("refused");
}

// MARK: - Datagrams

static GSocket *udp_server, *udp_client;
static char udp_number;

static GSocket *open_datagrams(void) {
    GError *error = NULL;
    GSocket *socket = g_socket_new(G_SOCKET_FAMILY_IPV4, G_SOCKET_TYPE_DATAGRAM, G_SOCKET_PROTOCOL_UDP, &error);
    check(error, "g_socket_new");
    g_socket_set_blocking(socket, FALSE);
    return socket;
}

static void watch_datagrams(GSocket *socket, GSocketSourceFunc received) {
    GSource *source = g_socket_create_source(socket, G_IO_IN, NULL);
    g_source_set_callback(source, G_SOURCE_FUNC(received), NULL, NULL);
    g_source_attach(source, NULL);
    g_source_unref(source);
}

/// Whether a datagram is there: a call that would block is repeated when the source fires again.
static bool is_received(gssize count, GError *error, const char *call) {
    if (g_error_matches(error, G_IO_ERROR, G_IO_ERROR_WOULD_BLOCK)) return g_error_free(error), false;
    check(error, call);
    return count > 0;
}

static gboolean send_back(GSocket *socket, GIOCondition condition, gpointer context) {
    (void)condition, (void)context;
    GError *error = NULL;
    GSocketAddress *peer = NULL;
    char byte;
    gssize count = g_socket_receive_from(socket, &peer, &byte, 1, NULL, &error);
    if (!is_received(count, error, "receive of the server")) return G_SOURCE_CONTINUE;
    g_socket_send_to(socket, peer, &byte, 1, NULL, &error);
    check(error, "send of the server");
    g_object_unref(peer);
    return G_SOURCE_CONTINUE;
}

static void send_datagram(void) {
    GError *error = NULL;
    g_socket_send(udp_client, &udp_number, 1, NULL, &error);
    check(error, "send");
}

static gboolean receive_back(GSocket *socket, GIOCondition condition, gpointer context) {
    (void)condition, (void)context;
    GError *error = NULL;
    char byte;
    gssize count = g_socket_receive(socket, &byte, 1, NULL, &error);
    if (!is_received(count, error, "receive")) return G_SOURCE_CONTINUE;
    if (byte != udp_number) fail("datagram %d in place of %d", byte, udp_number);
    if (++udp_number < 20) send_datagram();
    else g_main_loop_quit(loop);
    return G_SOURCE_CONTINUE;
}

static void udp(void) {
    GError *error = NULL;
    udp_server = open_datagrams();
    udp_client = open_datagrams();
    GSocketAddress *any = g_inet_socket_address_new_from_string("127.0.0.1", 0);
    g_socket_bind(udp_server, any, FALSE, &error);
    check(error, "bind");
    GSocketAddress *bound = g_socket_get_local_address(udp_server, &error);
    check(error, "g_socket_get_local_address");
    g_socket_connect(udp_client, bound, NULL, &error);
    check(error, "connect");
    g_socket_set_timeout(udp_client, 1);
    watch_datagrams(udp_server, send_back);
    watch_datagrams(udp_client, receive_back);
    send_datagram();
    g_main_loop_run(loop);
    if (!g_socket_close(udp_server, &error) || !g_socket_close(udp_client, &error)) check(error, "close");
    right("20");
}

// MARK: - A child

static bool is_signalled, has_ended, has_line;
static char *line;

static void end_child_if_done(void) {
    if (is_signalled && has_ended && has_line) g_main_loop_quit(loop);
}

static gboolean signalled(gpointer context) {
    (void)context;
    is_signalled = true;
    end_child_if_done();
    return G_SOURCE_REMOVE;
}

static void waited(GObject *source, GAsyncResult *result, gpointer context) {
    (void)context;
    GSubprocess *child = G_SUBPROCESS(source);
    GError *error = NULL;
    g_subprocess_wait_finish(child, result, &error);
    check(error, "wait");
    if (!g_subprocess_get_if_exited(child) || g_subprocess_get_exit_status(child) != 3)
        reported("the child has ended with %d", g_subprocess_get_status(child));
    has_ended = true;
    end_child_if_done();
}

static void read_line(GObject *input, GAsyncResult *result, gpointer context) {
    (void)context;
    GError *error = NULL;
    line = g_data_input_stream_read_line_finish(G_DATA_INPUT_STREAM(input), result, NULL, &error);
    check(error, "read");
    g_input_stream_close(G_INPUT_STREAM(input), NULL, &error);
    check(error, "close");
    has_line = true;
    end_child_if_done();
}

static void spawn_child(void) {
    GError *error = NULL;
    g_unix_signal_add(SIGUSR1, signalled, NULL);
    GSubprocess *child = g_subprocess_new(G_SUBPROCESS_FLAGS_STDOUT_PIPE, &error, "/bin/sh", "-c",
                                          "echo hello; kill -USR1 $PPID; exit 3", NULL);
    check(error, "g_subprocess_new");
    g_subprocess_wait_async(child, NULL, waited, NULL);
    GDataInputStream *lines = g_data_input_stream_new(g_subprocess_get_stdout_pipe(child));
    g_data_input_stream_read_line_async(lines, G_PRIORITY_DEFAULT, NULL, read_line, NULL);
    g_main_loop_run(loop);
    if (g_strcmp0(line, "hello") != 0) fail("%s", line ? line : "no line");
    right("3");
}

// MARK: - A file that is watched

static GFile *file;
static int line_count;

static void append_line(void) {
    GError *error = NULL;
    char line[8];
    gsize size = (gsize)snprintf(line, sizeof line, "%d\n", line_count++);
    GFileOutputStream *output = g_file_append_to(file, G_FILE_CREATE_NONE, NULL, &error);
    check(error, "g_file_append_to");
    g_output_stream_write_all(G_OUTPUT_STREAM(output), line, size, NULL, NULL, &error);
    check(error, "write");
    g_output_stream_close(G_OUTPUT_STREAM(output), NULL, &error);
    check(error, "close");
    g_object_unref(output);
}

static void change_file(GFileMonitor *monitor, GFile *changed, GFile *other, GFileMonitorEvent event, gpointer context) {
    (void)monitor, (void)changed, (void)other, (void)event, (void)context;
    GError *error = NULL;
    char *text;
    g_file_load_contents(file, NULL, &text, NULL, NULL, &error);
    check(error, "g_file_load_contents");
    char *expected = g_strndup("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", (gsize)line_count * 2);
    if (strcmp(text, expected) == 0) {
        if (line_count == 10) g_main_loop_quit(loop);
        else append_line();
    } else if (!g_str_has_prefix(expected, text)) {
        fail("%s", text);
    }
    g_free(expected);
    g_free(text);
}

static void tail(void) {
    GError *error = NULL;
    char path[64];
    snprintf(path, sizeof path, "/tmp/hostile-%d", getpid());
    file = g_file_new_for_path(path);
    GFileOutputStream *output = g_file_replace(file, NULL, FALSE, G_FILE_CREATE_NONE, NULL, &error);
    check(error, "g_file_replace");
    g_output_stream_close(G_OUTPUT_STREAM(output), NULL, &error);
    check(error, "close");
    g_object_unref(output);
    GFileMonitor *monitor = g_file_monitor_file(file, G_FILE_MONITOR_NONE, NULL, &error);
    check(error, "g_file_monitor_file");
    g_file_monitor_set_rate_limit(monitor, 10);
    g_signal_connect(monitor, "changed", G_CALLBACK(change_file), NULL);
    append_line();
    g_main_loop_run(loop);
    g_file_monitor_cancel(monitor);
    g_object_unref(monitor);
    g_file_delete(file, NULL, &error);
    check(error, "g_file_delete");
    right("10");
}

// MARK: - Posts

static int taken;

static gboolean take(gpointer number) {
    if (GPOINTER_TO_INT(number) != taken) fail("block %d in place of %d", GPOINTER_TO_INT(number), taken);
    if (++taken == 1000) g_main_loop_quit(loop);
    return G_SOURCE_REMOVE;
}

static gpointer post(gpointer none) {
    for (int i = 0; i < 1000; i++) g_idle_add_full(G_PRIORITY_DEFAULT, take, GINT_TO_POINTER(i), NULL);
    return none;
}

static void posts(void) {
    GError *error = NULL;
    GThread *thread = g_thread_try_new("posting", post, NULL, &error);
    check(error, "g_thread_try_new");
    g_main_loop_run(loop);
    g_thread_join(thread);
    right("1000");
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } workloads[] = {
        {"timer", timer}, {"timers", timers}, {"nested", nested}, {"ring", ring}, {"echo", echo}, {"storm", storm},
        {"connect", connect_both}, {"udp", udp}, {"child", spawn_child}, {"tail", tail}, {"posts", posts}};
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--version") == 0)
        return printf("GLib %u.%u.%u\n", glib_major_version, glib_minor_version, glib_micro_version) < 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        if (strcmp(name, "--list") == 0) printf("%s ", workloads[i].name);
        if (strcmp(name, workloads[i].name) != 0) continue;
        mark(true);
        begin = now();
        loop = g_main_loop_new(NULL, FALSE);
        workloads[i].run();
    }
    return 0;
}
