#pragma once

// What the handlers of fork(2) have others do, in the thread that forks.

/// Makes the thread one without a loop.
void reactor_forget_loop_in_child(void);
/// Holds up subscriptions to signals until one of the two below is called.
void reactor_signals_before_fork(void);
void reactor_signals_after_fork(void);
/// Restores the dispositions that the first subscribers found, and forgets all subscriptions.
void reactor_signals_in_child(void);
