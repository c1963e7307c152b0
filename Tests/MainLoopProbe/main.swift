// Scenarios that need a program's main thread. Each prints what happens, and a test compares the output.
@preconcurrency import Glibc

let scenarios: [String: () throws -> Void] = [
    "a drain ends an activation": drainEndsActivation,
    "only common modes drain": onlyCommonModesDrain,
    "a drain is a snapshot": drainIsSnapshot,
    "nested in a drain": nestedInDrain,
    "nested in a timer": nestedInTimer,
    "main actor": mainActor,
    "never empty": neverEmpty,
    "what is loaded": loadedLibraries,
    "run never returns": runNeverReturns,
    "asleep after a drain": asleepAfterDrain,
    "a queue that never ends": endlessQueue,
    "from another thread": fromAnotherThread,
    "out of descriptors": outOfDescriptors,
    "a refused descriptor": refusedDescriptor,
    "threads leave no descriptors": threadsLeaveNoDescriptors,
    "out of descriptors for connections": outOfDescriptorsForConnections,
    "leaving during a back-off": leavingDuringBackoff,
    "a listener that is shut down": shutDownListener,
    "many clients": manyClients,
    "loops in a child": loopsInChild,
    "fork in a handler": forkInHandler,
    "a parent's file in a child": inheritedFileInChild,
    "a parent's paths in a child": boundPathsInChild,
    "connecting streams in a child": connectingStreamsInChild,
    "a parent's hand-off in a child": handoffInChild,
    "signals in a child": signalsInChild,
    "a fresh loop in a child": freshLoopInChild,
    "a parent's streams in a child": inheritedStreamsInChild,
    "a child's own streams": ownStreamsInChild,
    "a parent's pending output": inheritedOutput,
    "few descriptors": fewDescriptors,
    "streams with few descriptors": streamsWithFewDescriptors,
    "a late main queue": lateMainQueue,
    "descriptors of modes": descriptorsOfModes,
    "left in modes": leftInModes,
    "left in loops": leftInLoops,
    "main actor in callbacks": mainActorInCallbacks,
    "asynchronous work": runsAsynchronousWork,
    "asynchronous work and a nested run": endsOnlyItsActivation,
    "cancelled by a signal": cancelledBySignal,
]

setvbuf(stdout, nil, _IONBF, 0)
guard let scenario = scenarios[CommandLine.arguments.last ?? ""] else { exit(2) }
try scenario()
