// hostile-asio WORKLOAD [CERTIFICATE KEY]  The workloads on Boost.Asio: asynchronous operations, whose errors are checked, and a
//                                          timer of one second for each client, as in Asio's examples.

#include "hostile.h"

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <functional>
#include <memory>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using namespace std::chrono_literals;

static asio::io_context *context;
static int64_t begin;

/// Ends the program when an operation has failed.
static void check(error_code error, const char *operation) {
    if (error) reported("%s: %s", operation, error.message().c_str());
}

// MARK: - Timers

static const char *timer() {
    asio::steady_timer timer{*context, 20ms};
    timer.async_wait([&](error_code error) {
        check(error, "timer");
        if (now() - begin < 20000000) fail("early");
        timer.expires_after(20ms);
        timer.async_wait([](error_code error) {
            check(error, "timer");
            if (now() - begin < 40000000) fail("early");
        });
    });
    context->run();
    return "2";
}

struct periodic {
    asio::steady_timer timer;
    std::chrono::milliseconds interval;
    std::function<bool()> fire; // whether the timer continues

    void start() {
        timer.async_wait([this](error_code error) {
            if (error == asio::error::operation_aborted) return;
            check(error, "timer");
            if (!fire()) return;
            timer.expires_at(timer.expiry() + interval);
            start();
        });
    }
};

static const char *timers() {
    std::vector<std::unique_ptr<periodic>> timers;
    int fired = 0;
    for (int milliseconds : {2, 3, 5}) {
        std::chrono::milliseconds interval{milliseconds};
        auto fire = [&fired, milliseconds, count = 0]() mutable {
            fired++;
            if (++count > 20) fail("fired after its end");
            if (now() - begin < count * milliseconds * 1000000ll) fail("early");
            return count < 20;
        };
        timers.emplace_back(new periodic{asio::steady_timer{*context, interval}, interval, fire})->start();
    }
    context->run();
    if (fired != 60) fail("fired %d times", fired);
    return "60";
}

/// A context of its own is what Asio has for a loop that serves only some timers.
static const char *nested() {
    bool is_nested = false;
    int outer = 0, inner = 0, before = 0;
    periodic other{asio::steady_timer{*context, 2ms}, 2ms, [&] {
        if (is_nested) fail("a timer of another context fired");
        outer++;
        return true;
    }};
    other.start();
    asio::steady_timer timer{*context, 20ms};
    timer.async_wait([&](error_code error) {
        check(error, "timer");
        is_nested = true;
        asio::io_context context{1};
        periodic ticks{asio::steady_timer{context, 2ms}, 2ms, [&] { return ++inner < 5; }};
        ticks.start();
        context.run();
        is_nested = false;
        before = outer;
        timer.expires_after(20ms);
        timer.async_wait([&](error_code error) {
            check(error, "timer");
            if (inner != 5 || outer == before) fail("%d and %d", inner, outer);
            other.timer.cancel();
        });
    });
    context->run();
    return "5";
}

// MARK: - A ring of pipes

struct node {
    asio::posix::stream_descriptor input{*context}, output{*context};
    unsigned char received = 0, sent = 0;
};

struct ring {
    std::vector<node> nodes{ring_size};
    int hops = 0;

    void send(node &node, unsigned char byte) {
        node.sent = byte;
        async_write(node.output, asio::buffer(&node.sent, 1), [](error_code error, size_t) { check(error, "write"); });
    }

    void receive(node &node) {
        async_read(node.input, asio::buffer(&node.received, 1), [&](error_code error, size_t) {
            if (error == asio::error::operation_aborted && hops == hop_count) return;
            check(error, "read");
            if (node.received != hops || &node != &nodes[hops % ring_size]) fail("byte %d", node.received);
            if (++hops == hop_count) return close();
            send(node, static_cast<unsigned char>(hops));
            receive(node);
        });
    }

    void close() {
        for (auto &node : nodes) node.input.close(), node.output.close();
    }
};

static const char *run_ring() {
    ring ring;
    for (int i = 0; i < ring_size; i++) {
        int ends[2];
        auto &next = ring.nodes[(i + 1) % ring_size];
        if (pipe2(ends, O_CLOEXEC)) reported("pipe2: %s", strerror(errno));
        next.input.assign(ends[0]);
        ring.nodes[i].output.assign(ends[1]);
        ring.receive(next);
    }
    ring.send(ring.nodes[ring_size - 1], 0);
    context->run();
    if (ring.hops != hop_count) fail("%d hops", ring.hops);
    return "100";
}

// MARK: - Sockets

static tcp::acceptor listen() { return {*context, {asio::ip::address_v4::loopback(), 0}}; }

/// Calls a handler when a duration has passed in which it was not started again.
struct limit {
    asio::steady_timer timer{*context};

    void start() {
        timer.expires_after(1s);
        timer.async_wait([](error_code error) {
            if (!error) reported("no byte for a second");
        });
    }
};

/// Sends 256 KiB, and checks that they come back. The stream is a socket, or TLS on one.
template <class Stream> struct echo_client {
    Stream stream;
    std::function<void()> sent, received; // all bytes
    limit time{};
    std::vector<char> bytes = std::vector<char>(echo_size), buffer = std::vector<char>(65536);
    size_t count = 0;

    void start() {
        for (size_t i = 0; i < echo_size; i++) bytes[i] = byte_at(i);
        async_write(stream, asio::buffer(bytes), [this](error_code error, size_t) {
            check(error, "write");
            if (sent) sent();
        });
        read();
    }

    void read() {
        time.start();
        stream.async_read_some(asio::buffer(buffer), [this](error_code error, size_t size) {
            for (size_t i = 0; i < size; i++)
                if (buffer[i] != byte_at(count++)) fail("byte %zu is another one", count - 1);
            if (!error && !(received && count == echo_size)) return read();
            time.timer.cancel();
            if (error != asio::error::eof) check(error, "read");
            if (count != echo_size) fail("%zu bytes", count);
            if (received) received();
        });
    }
};

template <class Stream> struct echo_server {
    Stream stream;
    std::function<void()> ended{};
    std::vector<char> buffer = std::vector<char>(65536);

    void read() {
        stream.async_read_some(asio::buffer(buffer), [this](error_code error, size_t count) {
            if (error == asio::error::eof) return ended();
            check(error, "read of the server");
            async_write(stream, asio::buffer(buffer, count), [this](error_code error, size_t) {
                check(error, "write of the server");
                read();
            });
        });
    }
};

static const char *echo() {
    auto acceptor = listen();
    echo_server<tcp::socket> server{tcp::socket{*context}};
    echo_client<tcp::socket> client{
        tcp::socket{*context}, [&] { client.stream.shutdown(tcp::socket::shutdown_send); }, nullptr};
    server.ended = [&] { server.stream.close(); };
    acceptor.async_accept(server.stream, [&](error_code error) {
        check(error, "accept");
        server.read();
    });
    client.time.start();
    client.stream.async_connect(acceptor.local_endpoint(), [&](error_code error) {
        check(error, "connect");
        client.start();
    });
    context->run();
    if (client.count != echo_size) fail("%zu bytes", client.count);
    return "262144";
}

static char **arguments;

static const char *tls() {
    using stream = asio::ssl::stream<tcp::socket>;
    asio::ssl::context server_settings{asio::ssl::context::tls_server}, client_settings{asio::ssl::context::tls_client};
    server_settings.use_certificate_chain_file(arguments[2]);
    server_settings.use_private_key_file(arguments[3], asio::ssl::context::pem);
    client_settings.load_verify_file(arguments[2]);
    client_settings.set_verify_mode(asio::ssl::verify_peer);
    client_settings.set_verify_callback(asio::ssl::host_name_verification{"localhost"});
    auto acceptor = listen();
    echo_server<stream> server{{*context, server_settings}};
    bool has_ended = false;
    echo_client<stream> client{{*context, client_settings}, nullptr, [&] {
        client.time.start();
        client.stream.async_shutdown([&](error_code error) {
            client.time.timer.cancel();
            check(error, "shutdown");
            has_ended = true;
        });
    }};
    server.ended = [&] {
        server.stream.async_shutdown([](error_code error) { check(error, "shutdown of the server"); });
    };
    acceptor.async_accept(server.stream.lowest_layer(), [&](error_code error) {
        check(error, "accept");
        server.stream.async_handshake(stream::server, [&](error_code error) {
            check(error, "handshake of the server");
            server.read();
        });
    });
    client.time.start();
    client.stream.lowest_layer().async_connect(acceptor.local_endpoint(), [&](error_code error) {
        check(error, "connect");
        client.stream.async_handshake(stream::client, [&](error_code error) {
            check(error, "handshake");
            client.start();
        });
    });
    context->run();
    if (!has_ended) fail("no end");
    return "262144";
}

/// Receives a greeting and the end.
struct greeted_client {
    tcp::socket socket{*context};
    limit time{};
    std::string greeting{};
    std::function<void()> ended{};

    void connect(tcp::endpoint endpoint) {
        time.start();
        socket.async_connect(endpoint, [this](error_code error) {
            check(error, "connect");
            async_read(socket, asio::dynamic_buffer(greeting), [this](error_code error, size_t) {
                time.timer.cancel();
                if (error != asio::error::eof) check(error, "read");
                if (greeting != "hello") fail("%zu bytes of a greeting", greeting.size());
                socket.close();
                ended();
            });
        });
    }
};

static void greet(tcp::socket accepted) {
    auto socket = std::make_shared<tcp::socket>(std::move(accepted));
    async_write(*socket, asio::buffer("hello", 5), [socket](error_code error, size_t) { check(error, "write of the server"); });
}

static void accept_all(tcp::acceptor &acceptor) {
    acceptor.async_accept([&](error_code error, tcp::socket socket) {
        if (error == asio::error::operation_aborted) return;
        check(error, "accept");
        greet(std::move(socket));
        accept_all(acceptor);
    });
}

static const char *storm() {
    auto acceptor = listen();
    accept_all(acceptor);
    std::vector<greeted_client> clients{client_count};
    int ended = 0;
    for (auto &client : clients) {
        client.ended = [&] {
            if (++ended == client_count) acceptor.close();
        };
        client.connect(acceptor.local_endpoint());
    }
    context->run();
    if (ended != client_count) fail("%d clients", ended);
    return "50";
}

static const char *connect_both() {
    auto acceptor = listen();
    auto endpoint = acceptor.local_endpoint();
    tcp::socket second{*context};
    limit time{};
    bool is_refused = false;
    acceptor.async_accept([](error_code error, tcp::socket socket) {
        check(error, "accept");
        greet(std::move(socket));
    });
    greeted_client client;
    client.ended = [&] {
        acceptor.close();
        time.start();
        second.async_connect(endpoint, [&](error_code error) {
            time.timer.cancel();
            if (!error) fail("connected to a closed port");
            if (error != asio::error::connection_refused) check(error, "connect");
            is_refused = true;
        });
    };
    client.connect(endpoint);
    context->run();
    if (!is_refused) fail("no refusal");
    return "refused";
}

// MARK: - Datagrams

struct datagram_server {
    udp::socket socket{*context, {asio::ip::address_v4::loopback(), 0}};
    udp::endpoint peer{};
    char byte = 0;

    void receive() {
        socket.async_receive_from(asio::buffer(&byte, 1), peer, [this](error_code error, size_t) {
            if (error == asio::error::operation_aborted) return;
            check(error, "receive of the server");
            socket.async_send_to(asio::buffer(&byte, 1), peer, [this](error_code error, size_t) {
                check(error, "send of the server");
                receive();
            });
        });
    }
};

struct datagram_client {
    udp::socket socket{*context};
    limit time{};
    char number = 0, byte = 0;
    std::function<void()> ended{};

    void exchange() {
        time.start();
        socket.async_send(asio::buffer(&number, 1), [this](error_code error, size_t) {
            check(error, "send");
            socket.async_receive(asio::buffer(&byte, 1), [this](error_code error, size_t) {
                check(error, "receive");
                if (byte != number) fail("datagram %d in place of %d", byte, number);
                if (++number < 20) return exchange();
                time.timer.cancel();
                ended();
            });
        });
    }
};

static const char *exchange_datagrams() {
    datagram_server server;
    datagram_client client;
    client.socket.connect(server.socket.local_endpoint());
    client.ended = [&] { server.socket.close(); };
    server.receive();
    client.exchange();
    context->run();
    if (client.number != 20) fail("%d datagrams", client.number);
    return "20";
}

// MARK: - A child. Asio spawns none: the program forks, and waits for SIGCHLD, as Asio's examples do.

static const char *spawn_child() {
    asio::signal_set usr1{*context, SIGUSR1}, sigchld{*context, SIGCHLD};
    asio::posix::stream_descriptor output{*context};
    std::string text;
    int status = 0, ends[2];
    usr1.async_wait([](error_code error, int) { check(error, "SIGUSR1"); });
    if (pipe2(ends, O_CLOEXEC)) reported("pipe2: %s", strerror(errno));
    output.assign(ends[0]);
    context->notify_fork(asio::io_context::fork_prepare);
    pid_t child = fork();
    if (child < 0) reported("fork: %s", strerror(errno));
    if (child == 0) {
        context->notify_fork(asio::io_context::fork_child);
        while (dup2(ends[1], 1) < 0)
            if (errno != EINTR && errno != EBUSY) _exit(126);
        execl("/bin/sh", "sh", "-c", "echo hello; kill -USR1 $PPID; exit 3", static_cast<char *>(nullptr));
        fprintf(stderr, "reported: execl: %s\n", strerror(errno));
        kill(getppid(), SIGTERM);
        _exit(127);
    }
    context->notify_fork(asio::io_context::fork_parent);
    close(ends[1]);
    std::function<void(error_code, int)> wait = [&](error_code error, int) {
        check(error, "SIGCHLD");
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended < 0) reported("waitpid: %s", strerror(errno));
        if (ended == 0) return sigchld.async_wait(wait);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 3) reported("the child has ended with %d", status);
    };
    sigchld.async_wait(wait);
    async_read(output, asio::dynamic_buffer(text), [&](error_code error, size_t) {
        if (error != asio::error::eof) check(error, "read");
    });
    context->run();
    if (text != "hello\n") fail("a line of %zu bytes", text.size());
    return "3";
}

// MARK: - Posts

static const char *posts() {
    int taken = 0;
    auto work = asio::make_work_guard(*context);
    std::thread thread{[&] {
        for (int i = 0; i < 1000; i++)
            asio::post(*context, [&, i] {
                if (i != taken) fail("block %d in place of %d", i, taken);
                if (++taken == 1000) work.reset();
            });
    }};
    context->run();
    thread.join();
    if (taken != 1000) fail("%d blocks", taken);
    return "1000";
}

int main(int count, char **values) {
    static const struct { const char *name, *(*run)(); } workloads[] = {
        {"timer", timer}, {"timers", timers}, {"nested", nested}, {"ring", run_ring}, {"echo", echo}, {"storm", storm},
        {"connect", connect_both}, {"tls", tls}, {"udp", exchange_datagrams}, {"child", spawn_child}, {"posts", posts}};
    arguments = values;
    std::string name = count > 1 ? values[1] : "";
    if (name == "--version")
        return printf("Boost.Asio %d.%d\n", BOOST_ASIO_VERSION / 100000, BOOST_ASIO_VERSION / 100 % 1000) < 0;
    signal(SIGPIPE, SIG_IGN);
    for (auto &workload : workloads) {
        if (name == "--list") printf("%s ", workload.name);
        if (name != workload.name) continue;
        mark(true);
        try {
            const char *result;
            {
                asio::io_context own;
                context = &own;
                begin = now();
                result = workload.run();
            }
            right(result);
        } catch (const std::exception &error) { reported("%s", error.what()); }
    }
}
