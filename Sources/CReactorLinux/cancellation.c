#include "CReactorLinux.h"

// What `withTaskCancellationHandler` is made of (swift/Runtime/Concurrency.h). Declared in C because the standard
// library does not export it.
typedef __attribute__((swiftcall)) void cancellation_handler(__attribute__((swift_context)) void *context);
__attribute__((swiftcall)) void *swift_task_addCancellationHandler(cancellation_handler *handler, void *context)
    __attribute__((weak));
__attribute__((swiftcall)) void swift_task_removeCancellationHandler(void *registration) __attribute__((weak));

__attribute__((swiftcall)) static void open_gate(__attribute__((swift_context)) void *gate) {
    reactor_open_gate(gate);
}

void *reactor_open_gate_on_cancellation(void *gate) { return swift_task_addCancellationHandler(open_gate, gate); }

void reactor_forget_cancellation(void *registration) { swift_task_removeCancellationHandler(registration); }
