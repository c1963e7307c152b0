#include "CReactorLinux.h"

// Hooks of the Swift runtime (swift/Runtime/Concurrency.h) that the standard library does not export. Weak, for programs
// without Swift Concurrency.

// MARK: Asynchronous main functions

// Called on the main thread once an asynchronous main function is suspended for the first time.
extern void *swift_task_asyncMainDrainQueue_hook __attribute__((weak));

typedef __attribute__((swiftcall)) void drain_function(void);

// In Swift. Returns if the main loop is not to run.
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

// MARK: Cancellation: what `withTaskCancellationHandler` is made of

typedef __attribute__((swiftcall)) void cancellation_handler(__attribute__((swift_context)) void *context);
__attribute__((swiftcall)) void *swift_task_addCancellationHandler(cancellation_handler *handler, void *context)
    __attribute__((weak));
__attribute__((swiftcall)) void swift_task_removeCancellationHandler(void *registration) __attribute__((weak));

__attribute__((swiftcall)) static void unpark(__attribute__((swift_context)) void *parker) { reactor_unpark(parker); }

void *reactor_unpark_on_cancellation(void *parker) { return swift_task_addCancellationHandler(unpark, parker); }

void reactor_forget_cancellation(void *registration) { swift_task_removeCancellationHandler(registration); }
