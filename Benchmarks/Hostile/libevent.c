// hostile-libevent WORKLOAD  The workloads on libevent: events for timers, signals and posts, and bufferevents with timeouts of
//                            one second for pipes and sockets. Each result is checked as the documentation says.

#include "hostile.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/thread.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static struct event_base *base;

/// Ends the program when a call has failed.
static void check(int result, const char *call) {
    if (result < 0) reported("%s: %s", call, strerror(errno));
}

static void *need(void *result, const char *call) {
    if (!result) reported("%s: %s", call, strerror(errno));
    return result;
}

static void run(void) {
    if (event_base_dispatch(base) < 0) reported("event_base_dispatch: %s", strerror(errno));
}

static _Noreturn void finish(const char *result) {
    event_base_free(base);
    right(result);
}

// MARK: - Timers

static int64_t begin;
static int fired;

/// The clock that libevent reads, unless it is asked for another, is coarse.
enum { clock_step = 5000000 };

static void fire_once(evutil_socket_t none, short events, void *context) {
    (void)none, (void)events;
    struct event **timer = context;
    if (now() - begin < (fired + 1) * 20000000ll - clock_step) fail("early");
    if (++fired == 1) check(event_add(*timer, &(struct timeval){0, 20000}), "event_add");
}

static void timer(void) {
    static struct event *timer;
    timer = need(evtimer_new(base, fire_once, &timer), "evtimer_new");
    check(event_add(timer, &(struct timeval){0, 20000}), "event_add");
    run();
    if (fired != 2) fail("fired %d times", fired);
    event_free(timer);
    finish("2");
}

struct periodic {
    struct event *event;
    int interval, count;
};

static void tick(evutil_socket_t none, short events, void *context) {
    (void)none, (void)events;
    struct periodic *timer = context;
    if (++timer->count > 20) fail("fired after its end");
    fired++;
    if (now() - begin < timer->count * timer->interval * 1000000ll - clock_step) fail("early");
    if (timer->count == 20) event_free(timer->event);
}

static void timers(void) {
    static struct periodic timers[] = {{.interval = 2}, {.interval = 3}, {.interval = 5}};
    for (int i = 0; i < 3; i++) {
        timers[i].event = need(event_new(base, -1, EV_PERSIST, tick, &timers[i]), "event_new");
        check(event_add(timers[i].event, &(struct timeval){0, timers[i].interval * 1000}), "event_add");
    }
    run();
    if (fired != 60) fail("fired %d times", fired);
    finish("60");
}

// MARK: - A ring of pipes

static struct link {
    struct bufferevent *input, *output;
} links[ring_size];
static int hops;

static void send_byte(struct link *link, char byte) {
    check(bufferevent_write(link->output, &byte, 1), "bufferevent_write");
}

static void pass(struct bufferevent *input, void *context) {
    struct link *link = context;
    unsigned char byte;
    while (bufferevent_read(input, &byte, 1) == 1) {
        if (byte != hops || link != &links[hops % ring_size]) fail("byte %d", byte);
        if (++hops < hop_count) send_byte(link, (char)hops);
    }
    if (hops == hop_count) check(event_base_loopbreak(base), "event_base_loopbreak");
}

static void fault(struct bufferevent *event, short what, void *context) {
    (void)event, (void)context;
    if (what & BEV_EVENT_ERROR) reported("%s: %s", what & BEV_EVENT_READING ? "read" : "write", strerror(errno));
    if (what & BEV_EVENT_TIMEOUT) reported("no byte for a second");
    if (what & BEV_EVENT_EOF) fail("an end");
}

static struct bufferevent *open_buffer(int descriptor, bufferevent_data_cb reading, bufferevent_event_cb fault, void *context) {
    struct bufferevent *event =
        need(bufferevent_socket_new(base, descriptor, BEV_OPT_CLOSE_ON_FREE), "bufferevent_socket_new");
    bufferevent_setcb(event, reading, NULL, fault, context);
    check(bufferevent_enable(event, reading ? EV_READ | EV_WRITE : EV_WRITE), "bufferevent_enable");
    if (!reading) check(bufferevent_disable(event, EV_READ), "bufferevent_disable");
    return event;
}

static void ring(void) {
    for (int i = 0; i < ring_size; i++) {
        int ends[2];
        struct link *next = &links[(i + 1) % ring_size];
        if (pipe2(ends, O_NONBLOCK | O_CLOEXEC)) reported("pipe2: %s", strerror(errno));
        next->input = open_buffer(ends[0], pass, fault, next);
        links[i].output = open_buffer(ends[1], NULL, fault, &links[i]);
    }
    send_byte(&links[ring_size - 1], 0);
    run();
    if (hops != hop_count) fail("%d hops", hops);
    for (int i = 0; i < ring_size; i++) bufferevent_free(links[i].input), bufferevent_free(links[i].output);
    finish("100");
}

// MARK: - Sockets

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct evconnlistener *listener;

static void fail_accept(struct evconnlistener *listener, void *context) {
    (void)listener, (void)context;
    reported("accept: %s", strerror(errno));
}

static void listen_for(evconnlistener_cb called) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = need(evconnlistener_new_bind(base, called, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 4096,
                                            (struct sockaddr *)&address, sizeof address),
                    "evconnlistener_new_bind");
    evconnlistener_set_error_cb(listener, fail_accept);
    socklen_t size = sizeof address;
    check(getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&address, &size), "getsockname");
}

static void limit_time(struct bufferevent *event) {
    check(bufferevent_set_timeouts(event, &(struct timeval){1, 0}, &(struct timeval){1, 0}), "bufferevent_set_timeouts");
}

struct client {
    struct bufferevent *event;
    size_t received;
    bool is_connected;
};

static void connect_client(struct client *client, bufferevent_data_cb reading, bufferevent_event_cb what) {
    client->event = open_buffer(-1, reading, what, client);
    limit_time(client->event);
    check(bufferevent_socket_connect(client->event, (struct sockaddr *)&address, sizeof address), "bufferevent_socket_connect");
}

static void reply(struct bufferevent *event, void *context) {
    (void)context;
    check(bufferevent_write_buffer(event, bufferevent_get_input(event)), "bufferevent_write_buffer");
}

static void free_sent(struct bufferevent *event, void *context) {
    (void)context;
    bufferevent_free(event);
}

static void end_reply(struct bufferevent *event, short what, void *context) {
    if (what & BEV_EVENT_ERROR) reported("server: %s", strerror(errno));
    if (what & BEV_EVENT_TIMEOUT) reported("server: no byte for a second");
    if (!(what & BEV_EVENT_EOF)) return;
    if (evbuffer_get_length(bufferevent_get_output(event)) == 0) return bufferevent_free(event);
    bufferevent_setcb(event, NULL, free_sent, end_reply, context);
}

static void serve_echo(struct evconnlistener *source, evutil_socket_t descriptor, struct sockaddr *peer, int size,
                       void *context) {
    (void)source, (void)peer, (void)size;
    limit_time(open_buffer(descriptor, reply, end_reply, context));
}

static void receive_echo(struct bufferevent *event, void *context) {
    struct client *client = context;
    char bytes[65536];
    for (size_t count; (count = bufferevent_read(event, bytes, sizeof bytes)) > 0;)
        for (size_t i = 0; i < count; i++)
            if (bytes[i] != byte_at(client->received++)) fail("byte %zu is another one", client->received - 1);
}

static void half_close(struct bufferevent *event, void *context) {
    (void)context;
    if (shutdown(bufferevent_getfd(event), SHUT_WR)) reported("shutdown: %s", strerror(errno));
}

static void change_echo(struct bufferevent *event, short what, void *context) {
    struct client *client = context;
    if (what & BEV_EVENT_ERROR) reported("client: %s", strerror(EVUTIL_SOCKET_ERROR()));
    if (what & BEV_EVENT_TIMEOUT) reported("client: no byte for a second");
    if (what & BEV_EVENT_EOF) {
        if (client->received != echo_size) fail("%zu bytes", client->received);
        bufferevent_free(event);
        evconnlistener_free(listener);
    }
    if (!(what & BEV_EVENT_CONNECTED)) return;
    static char bytes[echo_size];
    for (size_t i = 0; i < echo_size; i++) bytes[i] = byte_at(i);
    bufferevent_setcb(event, receive_echo, half_close, change_echo, client);
    check(bufferevent_write(event, bytes, echo_size), "bufferevent_write");
}

static void echo(void) {
    static struct client client;
    listen_for(serve_echo);
    connect_client(&client, receive_echo, change_echo);
    run();
    if (client.received != echo_size) fail("%zu bytes", client.received);
    finish("262144");
}

static int ended;

static void serve_greeting(struct evconnlistener *source, evutil_socket_t descriptor, struct sockaddr *peer, int size,
                           void *context) {
    (void)source, (void)peer, (void)size, (void)context;
    struct bufferevent *event = open_buffer(descriptor, NULL, end_reply, NULL);
    bufferevent_setcb(event, NULL, free_sent, end_reply, NULL);
    check(bufferevent_write(event, "hello", 5), "bufferevent_write");
}

static void receive_greeting(struct bufferevent *event, void *context) {
    struct client *client = context;
    char byte;
    while (bufferevent_read(event, &byte, 1) == 1)
        if (client->received >= 5 || byte != "hello"[client->received++]) fail("another greeting");
}

static void change_greeting(struct bufferevent *event, short what, void *context) {
    struct client *client = context;
    if (what & BEV_EVENT_ERROR) reported("client: %s", strerror(EVUTIL_SOCKET_ERROR()));
    if (what & BEV_EVENT_TIMEOUT) reported("client: no byte for a second");
    if (!(what & BEV_EVENT_EOF)) return;
    if (client->received != 5) fail("%zu bytes of a greeting", client->received);
    bufferevent_free(event);
    if (++ended == client_count) evconnlistener_free(listener);
}

static void storm(void) {
    static struct client clients[client_count];
    listen_for(serve_greeting);
    for (int i = 0; i < client_count; i++) connect_client(&clients[i], receive_greeting, change_greeting);
    run();
    if (ended != client_count) fail("%d clients", ended);
    finish("50");
}

// MARK: - A child. libevent spawns none: the program does, as its documentation shows.

static pid_t child;
static char line[16];
static size_t line_size;
static bool is_signalled, has_ended, has_line;
static struct event *usr1, *sigchld;

static void stop_if_done(void) {
    if (is_signalled && has_ended && has_line) check(event_base_loopbreak(base), "event_base_loopbreak");
}

static void signalled(evutil_socket_t number, short events, void *context) {
    (void)events, (void)context;
    if (number == SIGUSR1) is_signalled = true;
    int status;
    pid_t ended = number == SIGCHLD ? waitpid(child, &status, WNOHANG) : 0;
    if (ended < 0) reported("waitpid: %s", strerror(errno));
    if (ended) has_ended = true;
    if (ended && (!WIFEXITED(status) || WEXITSTATUS(status) != 3)) reported("the child has ended with %d", status);
    stop_if_done();
}

static void end_line(struct bufferevent *event, short what, void *context) {
    (void)context;
    if (what & BEV_EVENT_ERROR) reported("read: %s", strerror(errno));
    if (!(what & BEV_EVENT_EOF)) return;
    line_size = bufferevent_read(event, line, sizeof line);
    bufferevent_free(event);
    has_line = true;
    stop_if_done();
}

static void keep(struct bufferevent *event, void *context) { (void)event, (void)context; }

static void spawn_child(void) {
    int ends[2];
    usr1 = need(evsignal_new(base, SIGUSR1, signalled, NULL), "evsignal_new");
    sigchld = need(evsignal_new(base, SIGCHLD, signalled, NULL), "evsignal_new");
    check(evsignal_add(usr1, NULL), "evsignal_add");
    check(evsignal_add(sigchld, NULL), "evsignal_add");
    if (pipe2(ends, O_NONBLOCK | O_CLOEXEC)) reported("pipe2: %s", strerror(errno));
    open_buffer(ends[0], keep, end_line, NULL);
    check(child = fork(), "fork");
    if (child == 0) {
        while (dup2(ends[1], 1) < 0)
            if (errno != EINTR && errno != EBUSY) _exit(126);
        fcntl(1, F_SETFL, 0);
        execl("/bin/sh", "sh", "-c", "echo hello; kill -USR1 $PPID; exit 3", (char *)NULL);
        fprintf(stderr, "reported: execl: %s\n", strerror(errno));
        kill(getppid(), SIGTERM);
        _exit(127);
    }
    close(ends[1]);
    run();
    if (line_size != 6 || memcmp(line, "hello\n", 6) != 0) fail("a line of %zu bytes", line_size);
    event_free(usr1);
    event_free(sigchld);
    finish("3");
}

// MARK: - Posts

static int taken;

static void take(evutil_socket_t none, short events, void *context) {
    (void)none, (void)events;
    if ((intptr_t)context != taken) fail("block %d in place of %d", (int)(intptr_t)context, taken);
    if (++taken == 1000) check(event_base_loopbreak(base), "event_base_loopbreak");
}

static void *post(void *unused) {
    for (intptr_t i = 0; i < 1000; i++) {
        struct timeval now = {0, 0};
        check(event_base_once(base, -1, EV_TIMEOUT, take, (void *)i, &now), "event_base_once");
    }
    return unused;
}

static void posts(void) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, post, NULL);
    if (error) reported("pthread_create: %s", strerror(error));
    if (event_base_loop(base, EVLOOP_NO_EXIT_ON_EMPTY) < 0) reported("event_base_loop: %s", strerror(errno));
    pthread_join(thread, NULL);
    finish("1000");
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } workloads[] = {
        {"timer", timer}, {"timers", timers}, {"ring", ring}, {"echo", echo}, {"storm", storm}, {"child", spawn_child},
        {"posts", posts}};
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--version") == 0) return printf("libevent %s\n", event_get_version()) < 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        if (strcmp(name, "--list") == 0) printf("%s ", workloads[i].name);
        if (strcmp(name, workloads[i].name) != 0) continue;
        mark(true);
        if (strcmp(name, "posts") == 0) check(evthread_use_pthreads(), "evthread_use_pthreads");
        base = need(event_base_new(), "event_base_new");
        begin = now();
        workloads[i].run();
    }
    return 0;
}
