#pragma once

// Before libevent's own header, which defines _GNU_SOURCE: otherwise `fd_set` here has another shape than in Swift's Glibc module.
#include <sys/select.h>

#include <event2/event.h>
