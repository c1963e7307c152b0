#pragma once

// Called by the handlers of fork(2), on the forking thread.

/// Removes the thread's loop.
void reactor_forget_loop_in_child(void);
/// Blocks subscriptions to signals until one of the two functions below is called.
void reactor_signals_before_fork(void);
void reactor_signals_after_fork(void);
/// Restores the dispositions that the first subscribers found, and drops all subscriptions.
void reactor_signals_in_child(void);
