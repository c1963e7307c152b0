#pragma once

// mallinfo2(3), which Swift's Glibc module lacks.
#include <malloc.h>
