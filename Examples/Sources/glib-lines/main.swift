// Prints the lines of standard input, with a GLib timeout, a timer and a task of the main actor on the same thread:
// glib-lines [guest]
//
// GLib's main loop runs the run loop; with `guest` the run loop runs GLib's main context.

import CReactorGLib
import ExampleSupport
import Reactor
import ReactorGLib

/// The program, which does not know which of the two loops runs the other.
@MainActor final class Program: @MainActor StreamDelegate {
    private let input = InputStream(descriptor: .standardInput)
    private var rest: [UInt8] = []
    private var lineCount = 0
    /// How often each has been called.
    private(set) var timeouts = 0, ticks = 0, turns = 0
    private var isAtEnd = false
    private let end: () -> Void

    init(end: @escaping () -> Void) { self.end = end }

    func start() {
        input.delegate = self
        input.schedule(in: .main, forMode: .default)
        input.open()
        Timer.scheduled(every: .milliseconds(5)) { [self] _ in count(\.ticks) }
        Task {
            while true {
                try await Task.sleep(for: .milliseconds(5))
                count(\.turns)
            }
        }
        let call: GSourceFunc = { program in
            unsafe Unmanaged<Program>.fromOpaque(program!).takeUnretainedValue().timeoutFired()
            return 1
        }
        unsafe g_timeout_add(5, call, Unmanaged.passUnretained(self).toOpaque())
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable: printLines(input.read(upTo: 4096))
        case .endEncountered, .errorOccurred:
            input.close()
            isAtEnd = true
        default: break
        }
    }

    private func printLines(_ bytes: [UInt8]) {
        rest += bytes
        while let index = rest.firstIndex(of: UInt8(ascii: "\n")) {
            lineCount += 1
            MainProgram.printLine("\(lineCount): \(String(decoding: rest[..<index], as: UTF8.self))")
            rest.removeFirst(index + 1)
        }
    }

    /// GLib calls this on the main thread.
    private nonisolated func timeoutFired() { MainActor.assumeIsolated { count(\.timeouts) } }

    private func count(_ calls: ReferenceWritableKeyPath<Program, Int>) {
        self[keyPath: calls] += 1
        if isAtEnd, timeouts > 0, ticks > 0, turns > 0 { end() }
    }
}

do {
    if MainProgram.argument("guest", otherwise: false, { $0 == "guest" ? true : nil }) {
        let program = Program { RunLoop.main.stop() }
        program.start()
        try unsafe RunLoop.main.addGLibContext()
        RunLoop.main.run(in: .default)
    } else {
        let mainLoop = unsafe g_main_loop_new(nil, 0)!
        let program = Program { unsafe g_main_loop_quit(mainLoop) }
        program.start()
        try unsafe RunLoop.main.attach(toGLib: mainLoop)
        unsafe g_main_loop_run(mainLoop)
    }
} catch {
    MainProgram.end("\(error)")
}
MainProgram.printLine("GLib's timeout, the timer and the task were called.")
