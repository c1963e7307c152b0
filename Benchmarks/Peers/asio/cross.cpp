// Asio's way to call a function on another thread's context.

extern "C" {
#include "workloads.h"
}

#include <boost/asio.hpp>

struct loop {
    boost::asio::io_context context;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{context.get_executor()};
};

static void *make() { return new loop; }
static void run(void *context) { static_cast<loop *>(context)->context.run(); }

static void post(void *context, posted_function function, void *argument) {
    boost::asio::post(static_cast<loop *>(context)->context, [=] { function(argument); });
}

int main(int argc, char **argv) {
    cross_peer peer = {make, run, post};
    return run_cross(&peer, argc, argv);
}
