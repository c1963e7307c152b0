// idle-asio [SECONDS]  One timer.

extern "C" {
#include "workloads.h"
}

#include <boost/asio.hpp>

int main(int argc, char **argv) {
    boost::asio::io_context context{1};
    boost::asio::steady_timer timer{context, std::chrono::milliseconds(idle_milliseconds(argc, argv))};
    timer.async_wait([](auto) {});
    context.run();
}
