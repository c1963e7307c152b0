#pragma once

// mallinfo2(3) and adjtimex(2), which Swift's Glibc module lacks.
#include <malloc.h>
#include <sys/timex.h>
