// hostile-dispatch WORKLOAD  The workloads on libdispatch's main queue: sources for timers, signals and sockets, and channels.
//                            The program itself opens, connects and accepts; a timer of one second ends a client.

#include "hostile.h"

#include <Block.h>
#include <arpa/inet.h>
#include <dispatch/dispatch.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/wait.h>

/// What is open. The program ends when everything is closed.
static dispatch_group_t open_items;

static dispatch_queue_t main_queue(void) { return dispatch_get_main_queue(); }

static int check(int result, const char *call) {
    if (result < 0) reported("%s: %s", call, strerror(errno));
    return result;
}

static void *need(void *result, const char *call) {
    if (!result) reported("%s has failed", call);
    return result;
}

static void check_error(int error, const char *what) {
    if (error) reported("%s: %s", what, strerror(error));
}

/// Runs the main queue until everything is closed.
static _Noreturn void run(const char *result, bool (^is_right)(void)) {
    dispatch_group_notify(open_items, main_queue(), ^{
        if (!is_right()) fail("ended before its time");
        right(result);
    });
    dispatch_main();
}

/// A source whose handlers run on the main queue.
static dispatch_source_t make_source(dispatch_source_type_t type, int handle, dispatch_block_t handler,
                                     dispatch_block_t cancelled) {
    dispatch_source_t source = need(dispatch_source_create(type, (uintptr_t)handle, 0, main_queue()), "dispatch_source_create");
    dispatch_group_enter(open_items);
    dispatch_source_set_event_handler(source, handler);
    dispatch_source_set_cancel_handler(source, ^{
        if (cancelled) cancelled();
        dispatch_release(source);
        dispatch_group_leave(open_items);
    });
    return source;
}

static dispatch_source_t start_timer(int first, int interval, dispatch_block_t handler) {
    dispatch_source_t source = make_source(DISPATCH_SOURCE_TYPE_TIMER, 0, handler, NULL);
    uint64_t repeat = interval ? (uint64_t)interval * NSEC_PER_MSEC : DISPATCH_TIME_FOREVER;
    dispatch_source_set_timer(source, dispatch_time(DISPATCH_TIME_NOW, first * (int64_t)NSEC_PER_MSEC), repeat, 0);
    dispatch_activate(source);
    return source;
}

/// Watches for bytes, or connections. The source closes its descriptor when it is cancelled.
static dispatch_source_t watch(int descriptor, dispatch_block_t handler, dispatch_block_t closed) {
    dispatch_source_t source = make_source(DISPATCH_SOURCE_TYPE_READ, descriptor, handler, ^{
        close(descriptor);
        if (closed) closed();
    });
    dispatch_activate(source);
    return source;
}

// MARK: - Timers

static int64_t begin;
static int fired;

static void timer(void) {
    __block dispatch_source_t first, second;
    first = start_timer(20, 0, ^{
        if (now() - begin < 20000000) fail("early");
        fired++;
        dispatch_source_cancel(first);
        second = start_timer(20, 0, ^{
            if (now() - begin < 40000000) fail("early");
            fired++;
            dispatch_source_cancel(second);
        });
    });
    run("2", ^{ return (bool)(fired == 2); });
}

static void timers(void) {
    static const int intervals[] = {2, 3, 5};
    static dispatch_source_t sources[3];
    static int counts[3];
    for (int i = 0; i < 3; i++)
        sources[i] = start_timer(intervals[i], intervals[i], ^{
            // Firings that the queue was too late for are counted together.
            counts[i] += (int)dispatch_source_get_data(sources[i]);
            if (dispatch_source_testcancel(sources[i])) fail("fired after its end");
            if (now() - begin < counts[i] * intervals[i] * 1000000ll) fail("early");
            if (counts[i] >= 20) dispatch_source_cancel(sources[i]);
        });
    run("60", ^{ return (bool)(counts[0] >= 20 && counts[1] >= 20 && counts[2] >= 20); });
}

// MARK: - Bytes

/// A channel that closes its descriptor, and delivers what is there.
static dispatch_io_t open_channel(int descriptor) {
    dispatch_group_enter(open_items);
    dispatch_io_t channel = dispatch_io_create(DISPATCH_IO_STREAM, descriptor, main_queue(), ^(int error) {
        check_error(error, "dispatch_io_create");
        close(descriptor);
        dispatch_group_leave(open_items);
    });
    need(channel, "dispatch_io_create");
    dispatch_io_set_low_water(channel, 1);
    return channel;
}

static void close_channel(dispatch_io_t channel) {
    dispatch_io_close(channel, 0);
    dispatch_release(channel);
}

/// Calls `received` for each byte, and `ended` at the end.
static void read_bytes(dispatch_io_t channel, void (^received)(char), dispatch_block_t ended) {
    dispatch_io_read(channel, 0, SIZE_MAX, main_queue(), ^(bool is_done, dispatch_data_t data, int error) {
        check_error(error, "read");
        dispatch_data_apply(data, ^(dispatch_data_t region, size_t offset, const void *bytes, size_t size) {
            (void)region, (void)offset;
            for (size_t i = 0; i < size; i++) received(((const char *)bytes)[i]);
            return (bool)true;
        });
        if (is_done) ended();
    });
}

static void write_bytes(dispatch_io_t channel, const void *bytes, size_t size, dispatch_block_t written) {
    dispatch_data_t data = dispatch_data_create(bytes, size, NULL, DISPATCH_DATA_DESTRUCTOR_DEFAULT);
    dispatch_io_write(channel, 0, data, main_queue(), ^(bool is_done, dispatch_data_t rest, int error) {
        (void)rest;
        check_error(error, "write");
        if (is_done && written) written();
    });
    dispatch_release(data);
}

static struct { dispatch_io_t input, output; } links[ring_size];
static int hops;

static void ring(void) {
    int ends[ring_size][2];
    for (int i = 0; i < ring_size; i++) {
        check(pipe2(ends[i], O_CLOEXEC), "pipe2");
        links[(i + 1) % ring_size].input = open_channel(ends[i][0]);
        links[i].output = open_channel(ends[i][1]);
    }
    for (int i = 0; i < ring_size; i++)
        read_bytes(links[i].input, ^(char byte) {
            if (byte != hops || i != hops % ring_size) fail("byte %d", byte);
            byte = (char)++hops;
            if (hops < hop_count) return write_bytes(links[i].output, &byte, 1, NULL);
            for (int j = 0; j < ring_size; j++) close_channel(links[j].output);
        }, ^{
            if (hops < hop_count) fail("an end");
            close_channel(links[i].input);
        });
    write_bytes(links[ring_size - 1].output, "", 1, NULL);
    run("100", ^{ return (bool)(hops == hop_count); });
}

// MARK: - Sockets

static struct sockaddr_in address = {.sin_family = AF_INET};

static int make_socket(int type) { return check(socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket"); }

static void bind_to(int descriptor) {
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(bind(descriptor, (struct sockaddr *)&address, size), "bind");
    check(getsockname(descriptor, (struct sockaddr *)&address, &size), "getsockname");
}

static bool is_transient(int error) {
    return error == EAGAIN || error == EINTR || error == ECONNABORTED || error == EPROTO;
}

static dispatch_source_t listen_for(void (^accepted)(int descriptor), dispatch_block_t closed) {
    int listener = make_socket(SOCK_STREAM);
    bind_to(listener);
    check(listen(listener, 4096), "listen");
    return watch(listener, ^{
        int descriptor = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0 && is_transient(errno)) return;
        accepted(check(descriptor, "accept4"));
    }, closed);
}

/// A timer that ends the program when it is not set again for a second.
static dispatch_source_t start_limit(void) {
    return start_timer(1000, 0, ^{ reported("no byte for a second"); });
}

static void extend(dispatch_source_t limit) {
    dispatch_source_set_timer(limit, dispatch_time(DISPATCH_TIME_NOW, NSEC_PER_SEC), DISPATCH_TIME_FOREVER, 0);
}

/// Calls `connected` with the socket, or with an error.
static void connect_client(void (^connected)(int descriptor, int error)) {
    int descriptor = make_socket(SOCK_STREAM);
    if (connect(descriptor, (struct sockaddr *)&address, sizeof address) == 0) return connected(descriptor, 0);
    if (errno != EINPROGRESS) {
        int error = errno;
        close(descriptor);
        return connected(-1, error);
    }
    __block dispatch_source_t source = make_source(DISPATCH_SOURCE_TYPE_WRITE, descriptor, ^{
        dispatch_source_cancel(source);
    }, ^{ // the source has released the descriptor, which a channel may own now
        int error = 0;
        socklen_t size = sizeof error;
        check(getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size), "getsockopt");
        if (error) close(descriptor);
        connected(error ? -1 : descriptor, error);
    });
    dispatch_activate(source);
}

static void echo(void) {
    static char bytes[echo_size];
    static size_t received;
    __block dispatch_source_t listener = listen_for(^(int descriptor) {
        dispatch_io_t channel = open_channel(descriptor);
        dispatch_io_read(channel, 0, SIZE_MAX, main_queue(), ^(bool is_done, dispatch_data_t data, int error) {
            check_error(error, "read of the server");
            if (dispatch_data_get_size(data))
                dispatch_io_write(channel, 0, data, main_queue(), ^(bool is_done, dispatch_data_t rest, int error) {
                    (void)is_done, (void)rest;
                    check_error(error, "write of the server");
                });
            if (is_done) close_channel(channel); // after the writes
        });
    }, NULL);
    dispatch_source_t limit = start_limit();
    for (size_t i = 0; i < echo_size; i++) bytes[i] = byte_at(i);
    connect_client(^(int descriptor, int error) {
        check_error(error, "connect");
        dispatch_io_t channel = open_channel(descriptor);
        write_bytes(channel, bytes, echo_size, ^{ check(shutdown(descriptor, SHUT_WR), "shutdown"); });
        read_bytes(channel, ^(char byte) {
            if (received % 4096 == 0) extend(limit);
            if (byte != byte_at(received++)) fail("byte %zu is another one", received - 1);
        }, ^{
            if (received != echo_size) fail("%zu bytes", received);
            close_channel(channel);
            dispatch_source_cancel(limit);
            dispatch_source_cancel(listener);
        });
    });
    run("262144", ^{ return (bool)(received == echo_size); });
}

static void greet(int descriptor) {
    dispatch_io_t channel = open_channel(descriptor);
    write_bytes(channel, "hello", 5, ^{ close_channel(channel); });
}

/// Connects, and calls `ended` after the greeting and the end.
static void receive_greeting(dispatch_block_t ended) {
    __block size_t count = 0;
    dispatch_source_t limit = start_limit();
    ended = Block_copy(ended);
    connect_client(^(int descriptor, int error) {
        check_error(error, "connect");
        dispatch_io_t channel = open_channel(descriptor);
        read_bytes(channel, ^(char byte) {
            if (count >= 5 || byte != "hello"[count++]) fail("another greeting");
        }, ^{
            if (count != 5) fail("%zu bytes of a greeting", count);
            close_channel(channel);
            dispatch_source_cancel(limit);
            ended();
            Block_release(ended);
        });
    });
}

static void storm(void) {
    static int ended;
    dispatch_source_t listener = listen_for(^(int descriptor) { greet(descriptor); }, NULL);
    for (int i = 0; i < client_count; i++)
        receive_greeting(^{
            if (++ended == client_count) dispatch_source_cancel(listener);
        });
    run("50", ^{ return (bool)(ended == client_count); });
}

static void connect_both(void) {
    static bool is_refused;
    dispatch_source_t listener = listen_for(^(int descriptor) { greet(descriptor); }, ^{
        connect_client(^(int descriptor, int error) {
            if (descriptor >= 0) fail("connected to a closed port");
            if (error != ECONNREFUSED) check_error(error, "connect");
            is_refused = true;
        });
    });
    receive_greeting(^{ dispatch_source_cancel(listener); });
    run("refused", ^{ return is_refused; });
}

static void udp(void) {
    static char number;
    int server = make_socket(SOCK_DGRAM), client = make_socket(SOCK_DGRAM);
    bind_to(server);
    check(connect(client, (struct sockaddr *)&address, sizeof address), "connect");
    dispatch_source_t serving = watch(server, ^{
        char byte;
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        ssize_t count = recvfrom(server, &byte, 1, 0, (struct sockaddr *)&peer, &size);
        if (count < 0 && is_transient(errno)) return;
        check((int)count, "recvfrom");
        check((int)sendto(server, &byte, 1, 0, (struct sockaddr *)&peer, size), "sendto");
    }, NULL);
    dispatch_source_t limit = start_limit();
    __block dispatch_source_t receiving = watch(client, ^{
        char byte;
        ssize_t count = recv(client, &byte, 1, 0);
        if (count < 0 && is_transient(errno)) return;
        check((int)count, "recv");
        if (byte != number) fail("datagram %d in place of %d", byte, number);
        extend(limit);
        if (++number < 20) {
            check((int)send(client, &number, 1, 0), "send");
            return;
        }
        dispatch_source_cancel(serving);
        dispatch_source_cancel(receiving);
        dispatch_source_cancel(limit);
    }, NULL);
    check((int)send(client, &number, 1, 0), "send");
    run("20", ^{ return (bool)(number == 20); });
}

// MARK: - A child. libdispatch spawns none, and has no source for processes on Linux: the program forks, and waits for SIGCHLD.

static dispatch_source_t watch_signal(int number, dispatch_block_t handler) {
    dispatch_source_t source = make_source(DISPATCH_SOURCE_TYPE_SIGNAL, number, handler, NULL);
    dispatch_activate(source);
    return source;
}

static void spawn_child(void) {
    static char line[16];
    static size_t size;
    static bool has_ended;
    int ends[2];
    sigset_t signals, old;
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &signals, &old); // of the threads of libdispatch as well, which reads them with signalfd(2)
    check(pipe2(ends, O_CLOEXEC), "pipe2");
    pid_t child = check(fork(), "fork");
    if (child == 0) {
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        while (dup2(ends[1], 1) < 0)
            if (errno != EINTR && errno != EBUSY) _exit(126);
        execl("/bin/sh", "sh", "-c", "echo hello; kill -USR1 $PPID; exit 3", (char *)NULL);
        fprintf(stderr, "reported: execl: %s\n", strerror(errno));
        kill(getppid(), SIGTERM);
        _exit(127);
    }
    close(ends[1]);
    __block dispatch_source_t usr1 = watch_signal(SIGUSR1, ^{ dispatch_source_cancel(usr1); });
    __block dispatch_source_t sigchld = watch_signal(SIGCHLD, ^{
        int status;
        pid_t ended = check(waitpid(child, &status, WNOHANG), "waitpid");
        if (ended == 0) return;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) reported("the child has ended with %d", status);
        has_ended = true;
        dispatch_source_cancel(sigchld);
    });
    dispatch_io_t channel = open_channel(ends[0]);
    read_bytes(channel, ^(char byte) {
        if (size == sizeof line) fail("a long line");
        line[size++] = byte;
    }, ^{ close_channel(channel); });
    run("3", ^{ return (bool)(has_ended && size == 6 && memcmp(line, "hello\n", 6) == 0); });
}

// MARK: - Posts

static void posts(void) {
    static int taken;
    dispatch_group_enter(open_items);
    dispatch_async(dispatch_get_global_queue(DISPATCH_QUEUE_PRIORITY_DEFAULT, 0), ^{
        for (int i = 0; i < 1000; i++)
            dispatch_async(main_queue(), ^{
                if (i != taken) fail("block %d in place of %d", i, taken);
                if (++taken == 1000) dispatch_group_leave(open_items);
            });
    });
    run("1000", ^{ return (bool)(taken == 1000); });
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } workloads[] = {
        {"timer", timer}, {"timers", timers}, {"ring", ring}, {"echo", echo}, {"storm", storm}, {"connect", connect_both},
        {"udp", udp}, {"child", spawn_child}, {"posts", posts}};
    const char *name = count > 1 ? arguments[1] : "";
    if (strcmp(name, "--version") == 0) return puts("libdispatch of the Swift toolchain") < 0;
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads; i++) {
        if (strcmp(name, "--list") == 0) printf("%s ", workloads[i].name);
        if (strcmp(name, workloads[i].name) != 0) continue;
        mark(true);
        open_items = need(dispatch_group_create(), "dispatch_group_create");
        begin = now();
        workloads[i].run();
    }
    return 0;
}
