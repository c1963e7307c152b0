#include "CReactorLinux.h"
#include <signal.h>
#include <unistd.h>

// libdispatch ends the process by a trap where the kernel refuses it a descriptor, and says nothing.

static const int traps[] = {SIGILL, SIGTRAP};
enum { trap_count = sizeof traps / sizeof *traps };
static struct sigaction former[trap_count];

static void explain(int signal) {
    static const char text[] = "Reactor: The kernel refuses libdispatch a descriptor, so libdispatch ends the process.\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
    // Now the instruction that has trapped is repeated.
    for (int i = 0; i < trap_count; i++)
        if (traps[i] == signal) sigaction(signal, &former[i], NULL);
}

void reactor_explain_traps(bool begins) {
    struct sigaction action = {.sa_handler = explain, .sa_flags = SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < trap_count; i++) {
        if (begins) sigaction(traps[i], &action, &former[i]);
        else sigaction(traps[i], &former[i], NULL);
    }
}
