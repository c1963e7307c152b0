// Asio's timers. The handler of a cancelled timer is called in the loop's next pass, which is not measured.

extern "C" {
#include "workloads.h"
}

#include <boost/asio.hpp>
#include <deque>

static boost::asio::io_context context{1};
static std::deque<boost::asio::steady_timer> timers;

static void prepare(size_t) {}

static void wait(size_t index, bool repeats) {
    timers[index].async_wait([index, repeats](auto error) {
        if (error) return;
        timer_fired(index);
        if (!repeats) return;
        timers[index].expires_at(timers[index].expiry() + std::chrono::nanoseconds(timer_period));
        wait(index, true);
    });
}

static void add(size_t index, int64_t delay) {
    timers.emplace_back(context, std::chrono::nanoseconds(delay));
    wait(index, false);
}

static void add_repeating(size_t index) {
    timers.emplace_back(context, std::chrono::nanoseconds(timer_period));
    wait(index, true);
}

static void cancel(size_t index) { timers[index].cancel(); }
static void run() { context.run(); }
static void stop() { context.stop(); }

int main(int argc, char **argv) {
    timer_peer peer = {prepare, add, add_repeating, cancel, run, stop, nullptr};
    int status = run_timers(&peer, argc, argv);
    fflush(nullptr);
    _exit(status); // like the other programs, without destroying objects
}
