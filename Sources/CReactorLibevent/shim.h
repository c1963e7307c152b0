#pragma once

// Included before libevent's header, which defines _GNU_SOURCE: otherwise `fd_set` would have another layout than in
// Swift's Glibc module.
#include <sys/select.h>

#include <event2/event.h>
