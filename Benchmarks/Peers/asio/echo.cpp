// echo-asio [PORT]  Asio's sockets, each with its own buffer. Prints the port that it listens on.

extern "C" {
#include "workloads.h"
}

#include <boost/asio.hpp>
#include <memory>

using boost::asio::ip::tcp;

struct connection : std::enable_shared_from_this<connection> {
    tcp::socket socket;
    std::unique_ptr<char[]> buffer{new char[echo_buffer_size]}; // uninitialized, so that unused pages take no memory

    explicit connection(tcp::socket accepted) : socket{std::move(accepted)} {}

    void read() {
        socket.async_read_some(boost::asio::buffer(buffer.get(), echo_buffer_size),
                               [self = shared_from_this()](auto error, size_t count) {
                                   if (!error) self->write(count);
                               });
    }

    void write(size_t count) {
        boost::asio::async_write(socket, boost::asio::buffer(buffer.get(), count),
                                 [self = shared_from_this()](auto error, size_t) {
                                     if (!error) self->read();
                                 });
    }
};

static void accept(tcp::acceptor &acceptor) {
    acceptor.async_accept([&](auto error, tcp::socket socket) {
        if (!error) {
            socket.set_option(tcp::no_delay(true));
            std::make_shared<connection>(std::move(socket))->read();
        }
        accept(acceptor);
    });
}

int main(int argc, char **argv) {
    boost::asio::io_context context{1};
    tcp::acceptor acceptor{context, tcp::v4(), echo_listen(argc, argv)};
    accept(acceptor);
    context.run();
}
