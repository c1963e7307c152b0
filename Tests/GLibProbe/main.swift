// Scenarios that need the process's main thread. Each prints what happens, and a test compares the output.
import CReactorGLib
import Dispatch
@preconcurrency import Glibc
import Reactor
import ReactorGLib

/// A stream delegate that prints what it reads, and then continues with a timer.
@MainActor final class Reader: @MainActor StreamDelegate {
    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
        print(String(decoding: input.read(upTo: 64), as: UTF8.self))
        Timer.scheduled(after: .milliseconds(1)) { _ in
            print("timer")
            RunLoop.main.stop()
        }
    }
}

@MainActor func hosted() throws {
    let main = g_main_loop_new(nil, 0)!
    let (input, output) = Stream.boundPair(bufferSize: 64)
    let reader = Reader()
    input.delegate = reader
    input.schedule(in: .main, forMode: .default)
    input.open()
    output.open()
    try RunLoop.main.attach(toGLib: main)
    let task = Task { @MainActor in
        print("main actor")
        try await Task.sleep(for: .milliseconds(1))
        print("after a sleep")
        DispatchQueue.main.async { print("main queue") }
        DispatchQueue.main.async { MainActor.assumeIsolated { _ = output.write(Array("stream".utf8)) } }
    }
    g_main_loop_run(main)
    print("stopped")
    withExtendedLifetime((reader, task)) {}
}

@MainActor func guest() throws {
    try RunLoop.main.addGLibContext()
    g_timeout_add(
        1,
        { _ in
            print("timeout")
            Task { @MainActor in
                print("main actor")
                DispatchQueue.main.async {
                    print("main queue")
                    g_idle_add(
                        { _ in
                            print("idle")
                            RunLoop.main.stop()
                            return 0
                        }, nil)
                }
            }
            return 0
        }, nil)
    RunLoop.main.run(in: .default)
    print("stopped")
}

setvbuf(stdout, nil, _IONBF, 0)
switch CommandLine.arguments.last {
case "hosted": try hosted()
case "guest": try guest()
default: exit(2)
}
