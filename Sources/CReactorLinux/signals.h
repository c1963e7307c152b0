#ifndef REACTOR_SIGNALS_H
#define REACTOR_SIGNALS_H

#include <signal.h>

/// Replaces the action `from` of a signal by `to`, also where it is to be restored when the last subscriber leaves. Another
/// action stays.
void reactor_signal_replace(int signal, const struct sigaction *from, const struct sigaction *to);

/// Changes the settings of the terminals again, when the process continues. Async-signal-safe.
void reactor_terminals_resume(void);

#endif
