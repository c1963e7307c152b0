// Scenarios that need a program's main thread. Each prints what happens, and a test compares the output.
@preconcurrency import Glibc

let scenarios: [String: () throws -> Void] = [
    "main queues": mainQueues,
    "operations in the main queue": operationsInMainQueue,
    "operations on the main loop": operationsOnMainLoop,
    "notification queue": notificationQueue,
    "file handles": fileHandles,
    "requests leak no descriptors": requestsLeakNoDescriptors,
    "ports leak no descriptors": portsLeakNoDescriptors,
    "echo port": echoPort,
]

setvbuf(stdout, nil, _IONBF, 0)
guard let scenario = scenarios[CommandLine.arguments.last ?? ""] else { exit(2) }
try scenario()
