// What only a program's main thread can do, with Foundation: each scenario prints what happened, and a test compares
// it.
@preconcurrency import Glibc

let scenarios: [String: () throws -> Void] = [
    "main queues": mainQueues,
    "operations in the main queue": operationsInMainQueue,
    "operations on the main loop": operationsOnMainLoop,
    "notification queue": notificationQueue,
    "file handles": fileHandles,
    "requests leave no descriptors": requestsLeaveNoDescriptors,
    "ports leave no descriptors": portsLeaveNoDescriptors,
    "echo port": echoPort,
]

setvbuf(stdout, nil, _IONBF, 0)
guard let scenario = scenarios[CommandLine.arguments.last ?? ""] else { exit(2) }
try scenario()
