// idle-raw [SECONDS]  epoll with a timeout of 10 ms, or of SECONDS.

#include "workloads.h"

#include <sys/epoll.h>

int main(int argc, char **argv) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(EPOLL_CLOEXEC), &event, 1, idle_milliseconds(argc, argv));
}
