// epoll with a timeout of 10 ms, and the end.

#include <sys/epoll.h>

int main(void) {
    struct epoll_event event;
    return epoll_wait(epoll_create1(EPOLL_CLOEXEC), &event, 1, 10);
}
