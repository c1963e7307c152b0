// Scenarios that need a program's main thread. Each prints what happens, and a test compares the output.
@preconcurrency import Glibc
import Reactor

let scenarios: [String: () throws -> Void] = [
    "a drain ends an activation": drainEndsActivation,
    "only common modes drain": onlyCommonModesDrain,
    "nested in a drain": nestedInDrain,
    "nested in a timer": nestedInTimer,
    "main actor": mainActor,
    "a terminal in a mode": terminalInMode,
    "sizes of a terminal": terminalSizes,
    "sockets of a manager": takesSocketsOfManager,
    "hosted": hostedMainLoop,
    "a hosting's descriptor": hostingDescriptor,
    "hosted without descriptors": hostedWithoutDescriptors,
    "never empty": neverEmpty,
    "what is loaded": loadedLibraries,
    "run never returns": runNeverReturns,
    "asleep after a drain": asleepAfterDrain,
    "a queue that never ends": endlessQueue,
    "from another thread": fromAnotherThread,
    "a refused descriptor": refusedDescriptor,
    "out of descriptors for connections": outOfDescriptorsForConnections,
    "leaving during a back-off": leavingDuringBackoff,
    "draining without descriptors": drainingWithoutDescriptors,
    "a listener that is shut down": shutDownListener,
    "descriptors beside connections": descriptorsBesideConnections,
    "fewer descriptors beside connections": fewerDescriptorsBesideConnections,
    "security without TLS": securityWithoutTLS,
    "loops in a child": loopsInChild,
    "fork in a handler": forkInHandler,
    "a parent's file in a child": inheritedFileInChild,
    "a parent's paths in a child": boundPathsInChild,
    "a stream that the parent reads in a child": readStreamInChild,
    "connecting streams in a child": connectingStreamsInChild,
    "a parent's hand-off in a child": handoffInChild,
    "signals in a child": signalsInChild,
    "a parent's pressure source in a child": pressureSourceInChild,
    "a fresh loop in a child": freshLoopInChild,
    "a parent's streams in a child": inheritedStreamsInChild,
    "a child's own streams": ownStreamsInChild,
    "a parent's pending output": inheritedOutput,
    "few descriptors": fewDescriptors,
    "streams with few descriptors": streamsWithFewDescriptors,
    "a late main queue": lateMainQueue,
    "a missing main queue": missingMainQueue,
    "a missing worker": missingWorker,
    "a trap of Dispatch": trapOfDispatch,
    "an unwatched main queue": unwatchedMainQueue,
    "descriptors of modes": descriptorsOfModes,
    "first uses of Dispatch": firstUsesOfDispatch,
    "refused Dispatch": refusedDispatch,
    "iterations without threads": iterationsWithoutThreads,
    "left in modes": leftInModes,
    "left in loops": leftInLoops,
    "main actor in callbacks": mainActorInCallbacks,
    "asynchronous work": runsAsynchronousWork,
    "asynchronous work and a nested run": endsOnlyItsActivation,
    "cancelled by a signal": cancelledBySignal,
    "an ended child that is traced": tracedChild,
    "traces a process": tracesProcess,
    "few watches": fewWatches,
    "few watches after an overflow": fewWatchesAfterOverflow,
    "a main queue that waits": waitingMainQueue,
    "a main actor that hangs": hangingMainActor,
    "exit in a timer": {
        LoopDiagnostics.slowCallback = .seconds(100)  // a sanitizer makes exit(3) slow
        Timer.scheduled(after: .zero, label: "last") { _ in
            RunLoop.main.perform {}
            exit(0)
        }
        Timer.scheduled(after: .zero, label: "due as well") { _ in }
        RunLoop.main.run()
    },
    "debugging that begins late": {
        Timer.scheduled(after: .seconds(100), label: "forgotten") { _ in }
        LoopDiagnostics.isDebugging = true
    },
    "left at exit": { Timer.scheduled(after: .seconds(100), label: "forgotten") { _ in } },
]

setvbuf(stdout, nil, _IONBF, 0)
guard let scenario = scenarios[CommandLine.arguments.last ?? ""] else { exit(2) }
try scenario()
