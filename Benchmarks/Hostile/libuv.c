// hostile-libuv WORKLOAD  The workloads on libuv, with each result checked as its documentation says. libuv has no timeouts for
//                         connections: the clients have timers of one second.

#include "hostile.h"

#include <signal.h>
#include <uv.h>

static uv_loop_t *loop;

/// Ends the program when a call has failed.
static void check(int result, const char *call) {
    if (result < 0) reported("%s: %s", call, uv_strerror(result));
}

static void finish(const char *result) {
    uv_run(loop, UV_RUN_DEFAULT); // what is being closed
    right(result);
}

static void lend(uv_handle_t *handle, size_t size, uv_buf_t *buffer) {
    (void)handle, (void)size;
    static char bytes[65536];
    *buffer = uv_buf_init(bytes, sizeof bytes);
}

// MARK: - Timers

static int64_t begin;
static int fired;

/// The clock of the loop has milliseconds.
enum { clock_step = 1000000 };

static void fire_once(uv_timer_t *timer) {
    if (now() - begin < (fired + 1) * 20000000ll - clock_step) fail("early");
    if (++fired == 1) return check(uv_timer_start(timer, fire_once, 20, 0), "uv_timer_start");
    uv_close((uv_handle_t *)timer, NULL);
}

static void timer(void) {
    uv_timer_t timer;
    check(uv_timer_init(loop, &timer), "uv_timer_init");
    check(uv_timer_start(&timer, fire_once, 20, 0), "uv_timer_start");
    uv_run(loop, UV_RUN_DEFAULT);
    if (fired != 2) fail("fired %d times", fired);
    right("2");
}

static void tick(uv_timer_t *timer) {
    int *count = timer->data, interval = (int)uv_timer_get_repeat(timer);
    if (++*count > 20) fail("fired after its end");
    fired++;
    if (now() - begin < *count * interval * 1000000ll - clock_step) fail("early");
    if (*count == 20) uv_close((uv_handle_t *)timer, NULL);
}

static void timers(void) {
    static const int intervals[] = {2, 3, 5};
    static uv_timer_t timers[3];
    static int counts[3];
    for (int i = 0; i < 3; i++) {
        check(uv_timer_init(loop, &timers[i]), "uv_timer_init");
        timers[i].data = &counts[i];
        check(uv_timer_start(&timers[i], tick, intervals[i], intervals[i]), "uv_timer_start");
    }
    uv_run(loop, UV_RUN_DEFAULT);
    if (fired != 60) fail("fired %d times", fired);
    right("60");
}

// MARK: - A ring of pipes

static struct link {
    uv_pipe_t input, output;
    uv_write_t request;
    char byte;
} links[ring_size];
static int hops;

static void passed(uv_write_t *request, int status) {
    (void)request;
    if (status != UV_ECANCELED) check(status, "uv_write");
}

static void send_byte(struct link *link, char byte) {
    link->byte = byte;
    uv_buf_t buffer = uv_buf_init(&link->byte, 1);
    check(uv_write(&link->request, (uv_stream_t *)&link->output, &buffer, 1, passed), "uv_write");
}

static void pass(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    struct link *link = (struct link *)stream;
    check((int)count, "read");
    for (ssize_t i = 0; i < count; i++) {
        if ((unsigned char)buffer->base[i] != hops || link != &links[hops % ring_size]) fail("byte %d", buffer->base[i]);
        if (++hops < hop_count) send_byte(link, (char)hops);
    }
    if (hops < hop_count) return;
    for (int i = 0; i < ring_size; i++) {
        uv_close((uv_handle_t *)&links[i].input, NULL);
        uv_close((uv_handle_t *)&links[i].output, NULL);
    }
}

static void ring(void) {
    for (int i = 0; i < ring_size; i++) {
        uv_file ends[2];
        struct link *next = &links[(i + 1) % ring_size];
        check(uv_pipe(ends, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE), "uv_pipe");
        check(uv_pipe_init(loop, &next->input, 0), "uv_pipe_init");
        check(uv_pipe_init(loop, &links[i].output, 0), "uv_pipe_init");
        check(uv_pipe_open(&next->input, ends[0]), "uv_pipe_open");
        check(uv_pipe_open(&links[i].output, ends[1]), "uv_pipe_open");
        check(uv_read_start((uv_stream_t *)&next->input, lend, pass), "uv_read_start");
    }
    send_byte(&links[ring_size - 1], 0);
    uv_run(loop, UV_RUN_DEFAULT);
    if (hops != hop_count) fail("%d hops", hops);
    right("100");
}

// MARK: - Sockets

static uv_tcp_t listener;
static struct sockaddr_in address;

static void listen_for(uv_connection_cb called) {
    int size = sizeof address;
    check(uv_ip4_addr("127.0.0.1", 0, &address), "uv_ip4_addr");
    check(uv_tcp_init(loop, &listener), "uv_tcp_init");
    check(uv_tcp_bind(&listener, (struct sockaddr *)&address, 0), "uv_tcp_bind");
    check(uv_listen((uv_stream_t *)&listener, 4096, called), "uv_listen");
    check(uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &size), "uv_tcp_getsockname");
}

static uv_tcp_t *accept_next(uv_stream_t *stream, int status) {
    static uv_tcp_t accepted[client_count + 1];
    static int count;
    check(status, "accept");
    uv_tcp_t *tcp = &accepted[count++];
    check(uv_tcp_init(loop, tcp), "uv_tcp_init");
    check(uv_accept(stream, (uv_stream_t *)tcp), "uv_accept");
    return tcp;
}

struct client {
    uv_tcp_t tcp;
    uv_timer_t timer;
    uv_connect_t connect;
    uv_write_t write;
    uv_shutdown_t shutdown;
    size_t received;
};

static void time_out(uv_timer_t *timer) {
    (void)timer;
    reported("no byte for a second");
}

static void connect_client(struct client *client, uv_connect_cb connected) {
    check(uv_tcp_init(loop, &client->tcp), "uv_tcp_init");
    check(uv_timer_init(loop, &client->timer), "uv_timer_init");
    check(uv_timer_start(&client->timer, time_out, 1000, 0), "uv_timer_start");
    check(uv_tcp_connect(&client->connect, &client->tcp, (struct sockaddr *)&address, connected), "uv_tcp_connect");
}

static void close_client(struct client *client) {
    uv_close((uv_handle_t *)&client->tcp, NULL);
    uv_close((uv_handle_t *)&client->timer, NULL);
}

struct reply {
    uv_write_t request;
    char bytes[65536];
};

static void replied(uv_write_t *request, int status) {
    check(status, "write of the server");
    free(request);
}

static void reply(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    if (count == 0) return;
    if (count == UV_EOF) return uv_close((uv_handle_t *)stream, NULL);
    check((int)count, "read of the server");
    struct reply *reply = malloc(sizeof *reply);
    memcpy(reply->bytes, buffer->base, (size_t)count);
    uv_buf_t bytes = uv_buf_init(reply->bytes, (unsigned)count);
    check(uv_write(&reply->request, stream, &bytes, 1, replied), "uv_write");
}

static void serve_echo(uv_stream_t *stream, int status) {
    uv_tcp_t *tcp = accept_next(stream, status);
    check(uv_read_start((uv_stream_t *)tcp, lend, reply), "uv_read_start");
}

static void receive_echo(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    struct client *client = (struct client *)stream;
    if (count == UV_EOF) {
        if (client->received != echo_size) fail("%zu bytes", client->received);
        uv_close((uv_handle_t *)&listener, NULL);
        return close_client(client);
    }
    check((int)count, "read");
    for (ssize_t i = 0; i < count; i++)
        if (buffer->base[i] != byte_at(client->received++)) fail("byte %zu is another one", client->received - 1);
    check(uv_timer_start(&client->timer, time_out, 1000, 0), "uv_timer_start");
}

static void shut_down(uv_shutdown_t *request, int status) {
    (void)request;
    check(status, "shutdown");
}

static void sent(uv_write_t *request, int status) {
    struct client *client = (struct client *)request->handle;
    check(status, "write");
    check(uv_shutdown(&client->shutdown, (uv_stream_t *)client, shut_down), "uv_shutdown");
}

static void connected_echo(uv_connect_t *request, int status) {
    static char bytes[echo_size];
    check(status, "connect");
    struct client *client = (struct client *)request->handle;
    for (size_t i = 0; i < echo_size; i++) bytes[i] = byte_at(i);
    uv_buf_t buffer = uv_buf_init(bytes, echo_size);
    check(uv_read_start((uv_stream_t *)client, lend, receive_echo), "uv_read_start");
    check(uv_write(&client->write, (uv_stream_t *)client, &buffer, 1, sent), "uv_write");
}

static void echo(void) {
    static struct client client;
    listen_for(serve_echo);
    connect_client(&client, connected_echo);
    finish("262144");
}

static int ended;

static void greeted(uv_write_t *request, int status) {
    check(status, "write of the server");
    uv_close((uv_handle_t *)request->handle, NULL);
}

static void serve_greeting(uv_stream_t *stream, int status) {
    static uv_write_t requests[client_count];
    static int count;
    uv_buf_t buffer = uv_buf_init("hello", 5);
    uv_tcp_t *tcp = accept_next(stream, status);
    check(uv_write(&requests[count++], (uv_stream_t *)tcp, &buffer, 1, greeted), "uv_write");
}

static void receive_greeting(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    struct client *client = (struct client *)stream;
    if (count != UV_EOF) {
        check((int)count, "read");
        if (count && memcmp(buffer->base, "hello" + client->received, (size_t)count) != 0) fail("another greeting");
        client->received += (size_t)count;
        return;
    }
    if (client->received != 5) fail("%zu bytes of a greeting", client->received);
    close_client(client);
    if (++ended == client_count) uv_close((uv_handle_t *)&listener, NULL);
}

static void connected_greeting(uv_connect_t *request, int status) {
    check(status, "connect");
    check(uv_read_start(request->handle, lend, receive_greeting), "uv_read_start");
}

static void storm(void) {
    static struct client clients[client_count];
    listen_for(serve_greeting);
    for (int i = 0; i < client_count; i++) connect_client(&clients[i], connected_greeting);
    finish("50");
}

// MARK: - A child

static uv_pipe_t child_output;
static uv_process_t child;
static uv_signal_t usr1;
static char line[64];
static size_t line_size;
static int64_t exit_status = -1;

static void signalled(uv_signal_t *handle, int number) {
    (void)number;
    uv_close((uv_handle_t *)handle, NULL);
}

static void exited(uv_process_t *process, int64_t status, int number) {
    if (number || status != 3) reported("the child has ended with %d, %d", (int)status, number);
    exit_status = status;
    uv_close((uv_handle_t *)process, NULL);
}

static void read_line(uv_stream_t *stream, ssize_t count, const uv_buf_t *buffer) {
    if (count == UV_EOF) return uv_close((uv_handle_t *)stream, NULL);
    check((int)count, "read");
    if (line_size + (size_t)count > sizeof line) fail("a long line");
    memcpy(line + line_size, buffer->base, (size_t)count);
    line_size += (size_t)count;
}

static void spawn_child(void) {
    char *arguments[] = {"/bin/sh", "-c", "echo hello; kill -USR1 $PPID; exit 3", NULL};
    uv_stdio_container_t outputs[2] = {
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&child_output},
    };
    uv_process_options_t options = {
        .exit_cb = exited, .file = "/bin/sh", .args = arguments, .stdio = outputs, .stdio_count = 2};
    check(uv_signal_init(loop, &usr1), "uv_signal_init");
    check(uv_signal_start(&usr1, signalled, SIGUSR1), "uv_signal_start");
    check(uv_pipe_init(loop, &child_output, 0), "uv_pipe_init");
    check(uv_spawn(loop, &child, &options), "uv_spawn");
    check(uv_read_start((uv_stream_t *)&child_output, lend, read_line), "uv_read_start");
    uv_run(loop, UV_RUN_DEFAULT);
    if (exit_status != 3 || line_size != 6 || memcmp(line, "hello\n", 6) != 0) fail("%d, %zu", (int)exit_status, line_size);
    right("3");
}

// MARK: - Posts

static uv_async_t async;
static uv_mutex_t mutex;
static int posted, taken;

static void post(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        uv_mutex_lock(&mutex);
        posted++;
        uv_mutex_unlock(&mutex);
        check(uv_async_send(&async), "uv_async_send");
    }
}

static void take(uv_async_t *handle) {
    uv_mutex_lock(&mutex);
    taken = posted;
    uv_mutex_unlock(&mutex);
    if (taken == 1000) uv_close((uv_handle_t *)handle, NULL);
}

static void posts(void) {
    uv_thread_t thread;
    check(uv_mutex_init(&mutex), "uv_mutex_init");
    check(uv_async_init(loop, &async, take), "uv_async_init");
    check(uv_thread_create(&thread, post, NULL), "uv_thread_create");
    uv_run(loop, UV_RUN_DEFAULT);
    check(uv_thread_join(&thread), "uv_thread_join");
    right("1000");
}

// MARK: - Datagrams

static uv_udp_t udp_server, udp_client;
static uv_timer_t udp_timer;
static char udp_number;

static void datagram_sent(uv_udp_send_t *request, int status) {
    check(status, "uv_udp_send");
    free(request);
}

static void send_datagram(uv_udp_t *socket, char number, const struct sockaddr *peer) {
    uv_udp_send_t *request = malloc(sizeof *request + 1);
    char *byte = (char *)(request + 1);
    *byte = number;
    uv_buf_t buffer = uv_buf_init(byte, 1);
    check(uv_udp_send(request, socket, &buffer, 1, peer, datagram_sent), "uv_udp_send");
}

static void send_back(uv_udp_t *socket, ssize_t count, const uv_buf_t *buffer, const struct sockaddr *peer, unsigned flags) {
    (void)flags;
    check((int)count, "receive of the server");
    if (count) send_datagram(socket, *buffer->base, peer);
}

static void receive_back(uv_udp_t *socket, ssize_t count, const uv_buf_t *buffer, const struct sockaddr *peer, unsigned flags) {
    (void)peer, (void)flags;
    check((int)count, "receive");
    if (!count) return;
    if (*buffer->base != udp_number) fail("datagram %d in place of %d", *buffer->base, udp_number);
    check(uv_timer_start(&udp_timer, time_out, 1000, 0), "uv_timer_start");
    if (++udp_number < 20) return send_datagram(socket, udp_number, NULL);
    uv_close((uv_handle_t *)&udp_server, NULL);
    uv_close((uv_handle_t *)&udp_client, NULL);
    uv_close((uv_handle_t *)&udp_timer, NULL);
}

static void udp(void) {
    int size = sizeof address;
    check(uv_ip4_addr("127.0.0.1", 0, &address), "uv_ip4_addr");
    check(uv_udp_init(loop, &udp_server), "uv_udp_init");
    check(uv_udp_bind(&udp_server, (struct sockaddr *)&address, 0), "uv_udp_bind");
    check(uv_udp_getsockname(&udp_server, (struct sockaddr *)&address, &size), "uv_udp_getsockname");
    check(uv_udp_recv_start(&udp_server, lend, send_back), "uv_udp_recv_start");
    check(uv_udp_init(loop, &udp_client), "uv_udp_init");
    check(uv_udp_connect(&udp_client, (struct sockaddr *)&address), "uv_udp_connect");
    check(uv_udp_recv_start(&udp_client, lend, receive_back), "uv_udp_recv_start");
    check(uv_timer_init(loop, &udp_timer), "uv_timer_init");
    check(uv_timer_start(&udp_timer, time_out, 1000, 0), "uv_timer_start");
    send_datagram(&udp_client, 0, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    if (udp_number != 20) fail("%d datagrams", udp_number);
    right("20");
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } workloads[] = {
        {"timer", timer}, {"timers", timers}, {"ring", ring}, {"echo", echo}, {"storm", storm}, {"child", spawn_child},
        {"posts", posts}, {"udp", udp}};
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--version") == 0) return printf("libuv %s\n", uv_version_string()) < 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        if (strcmp(name, "--list") == 0) printf("%s ", workloads[i].name);
        if (strcmp(name, workloads[i].name) != 0) continue;
        mark(true);
        static uv_loop_t own;
        check(uv_loop_init(loop = &own), "uv_loop_init");
        begin = now();
        uv_update_time(loop);
        workloads[i].run();
    }
    return 0;
}
