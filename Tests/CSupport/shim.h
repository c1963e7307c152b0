#pragma once

// mallinfo2(3), adjtimex(2) and unshare(2), which Swift's Glibc module lacks.
#include <malloc.h>
#include <sys/timex.h>

int unshare(int flags);
#ifndef CLONE_NEWUSER
#define CLONE_NEWUSER 0x10000000
#endif
