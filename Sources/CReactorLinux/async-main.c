#include "CReactorLinux.h"

#include <stddef.h>

// What the Swift runtime calls on the process's main thread once an asynchronous main function is suspended for the first
// time (swift/Runtime/Concurrency.h). Weak, for programs without Swift Concurrency.
extern void *swift_task_asyncMainDrainQueue_hook __attribute__((weak));

typedef __attribute__((swiftcall)) void drain_function(void);

// Returns if the main loop is not to run.
void reactor_run_main_loop(void) __attribute__((weak));

__attribute__((swiftcall)) static void drain(drain_function *original, void *override) {
    (void)override;
    if (reactor_run_main_loop) reactor_run_main_loop();
    original();
}

// A constructor, because only what is set before the first suspension has an effect. A hook of another library stays.
__attribute__((constructor)) static void install_hook(void) {
    if (&swift_task_asyncMainDrainQueue_hook == NULL || swift_task_asyncMainDrainQueue_hook != NULL) return;
    swift_task_asyncMainDrainQueue_hook = (void *)drain;
}
