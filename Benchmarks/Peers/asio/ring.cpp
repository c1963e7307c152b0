// Asio's stream descriptors, which read the bytes themselves.

extern "C" {
#include "workloads.h"
}

#include <boost/asio.hpp>
#include <deque>

static boost::asio::io_context context{1};

struct link {
    boost::asio::posix::stream_descriptor descriptor;
    size_t index;
    char buffer[64];

    void read() {
        descriptor.async_read_some(boost::asio::buffer(buffer, 1), [this](auto error, size_t count) {
            if (error) return;
            ring_read(index, count);
            read();
        });
    }
};

static std::deque<struct link> links;

static void prepare(size_t) {}

static void watch(size_t index, int descriptor) {
    links.push_back({boost::asio::posix::stream_descriptor{context, descriptor}, index, {}});
    links.back().read();
}

static void run() { context.run(); }

int main(int argc, char **argv) {
    ring_peer peer = {prepare, watch, run};
    return run_ring(&peer, argc, argv);
}
