#pragma once

// HostedLines, a library in Swift. All functions belong to the main thread.

#include <stdbool.h>

/// Begins to read lines from `input` and calls `handler` for each. Returns a descriptor, to call lines_dispatch whenever it is
/// readable; or the negative of an errno value.
int lines_begin(int input, void (*handler)(const char *line));

/// Does what is ready, without waiting. Returns false once the last line has been read.
bool lines_dispatch(void);

void lines_end(void);
