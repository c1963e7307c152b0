import CReactorLinux
import Glibc
public import SystemPackage

/// A terminal: its settings and its size.
///
/// ```swift
/// try await Terminal().withMode(.cbreak) {
///     for try await key in InputStream(descriptor: .standardInput).bytes { print(key) }
/// }
/// ```
///
/// Usually that of standard input and output; any other works, too, such as a pseudo-terminal.
public struct Terminal: Sendable, Hashable {
    /// How a terminal delivers input.
    @nonexhaustive public enum Mode: Sendable, Hashable {
        /// Each key at once, without an echo. Control-C, Control-Z and Control-\ still send signals.
        case cbreak
        /// Each key at once, without an echo, and all as bytes: no signals, no flow control. A line feed that is written does
        /// not return to the first column (cfmakeraw(3)).
        case raw
    }

    /// The size of a terminal, in characters.
    public struct Size: Sendable, Hashable {
        /// The number of lines.
        public var rows: UInt16
        /// The number of characters in a line.
        public var columns: UInt16

        /// A size in characters.
        public init(rows: UInt16 = 24, columns: UInt16 = 80) { (self.rows, self.columns) = (rows, columns) }
    }

    /// Where keys are read, and whose settings are changed.
    package let input: FileDescriptor
    /// Where the program writes, and whose size is asked for.
    package let output: FileDescriptor

    /// Describes a terminal by its descriptors, which the caller owns.
    public init(input: FileDescriptor = .standardInput, output: FileDescriptor = .standardOutput) {
        (self.input, self.output) = (input, output)
    }

    /// The present size of the window; zeros if the terminal does not know it. See ``RunLoop/sizes(of:inModes:)``.
    ///
    /// - Throws: ``IOError`` with `Errno(rawValue: ENOTTY)` if `output` is no terminal; with `Errno.badFileDescriptor`.
    public func size() throws(IOError) -> Terminal.Size {
        let size = try attempt(.measure, descriptorName(output.rawValue)) { () throws(Errno) in
            try SystemCall.make { reactor_terminal_size(output.rawValue) }
        }
        return .init(rows: UInt16(truncatingIfNeeded: size >> 16), columns: UInt16(truncatingIfNeeded: size))
    }

    /// Runs `body` with other settings, and restores those from before, however it ends.
    ///
    /// The settings are restored when `body` returns or throws, by exit(3), when a signal ends the process, and when it traps.
    /// While Control-Z has stopped it they are those from before, and when it continues in the foreground those of `mode`
    /// again; draw again then (``RunLoop/sizes(of:inModes:)``). Only SIGKILL, SIGSTOP, real-time signals, a stack overflow,
    /// `_exit` and a signal that other code handles by them leave the terminal as it is. A child of fork(2) restores nothing.
    ///
    /// For this, signals that have their default action are caught until the last such call returns. A ``SignalSource`` takes
    /// precedence, and so do other handlers, except those of faults, which are called afterwards.
    ///
    /// A process in the background is stopped (SIGTTOU) until it is in the foreground. Calls may nest, and overlap in tasks:
    /// the last one to end restores the settings from before the first. Input that `body` has not read remains.
    ///
    /// - Parameters:
    ///   - mode: How keys arrive.
    ///   - entering: Written to `output` when the settings are changed, also after a stop: such as `"\u{1B}[?1049h"`, which
    ///     shows the alternate screen.
    ///   - leaving: Written before they are restored, such as `"\u{1B}[?1049l"`. A terminal that accepts nothing for a second
    ///     gets no more.
    ///   - body: Called with the settings changed.
    /// - Returns: What `body` returns.
    /// - Throws: What `body` throws; ``IOError`` with an error of tcsetattr(3): `Errno(rawValue: ENOTTY)` if the input is no
    ///   terminal.
    public func withMode<Result>(
        _ mode: Mode, entering: String = "", leaving: String = "", _ body: () throws -> Result
    ) throws -> Result {
        let scope = try TerminalScope(self, mode, entering, leaving)
        defer { scope.end() }
        return try body()
    }

    /// Runs `body` with other settings, and restores those from before, as the synchronous form does.
    nonisolated(nonsending) public func withMode<Result>(
        _ mode: Mode, entering: String = "", leaving: String = "",
        _ body: nonisolated(nonsending) () async throws -> Result
    ) async throws -> Result {
        let scope = try TerminalScope(self, mode, entering, leaving)
        defer { scope.end() }
        return try await body()
    }
}

/// Changed settings of a terminal.
///
/// `@safe`: the token is set once, belongs to this value alone, and ``end()`` is called once.
@safe
private struct TerminalScope {
    @safe private let token: UnsafeMutableRawPointer

    init(_ terminal: Terminal, _ mode: Terminal.Mode, _ entering: String, _ leaving: String) throws(IOError) {
        let (input, output) = (terminal.input.rawValue, terminal.output.rawValue)
        guard let token = unsafe reactor_terminal_begin(input, output, mode == .raw, entering, leaving) else {
            throw IOError(.configure, descriptorName(input), Errno(rawValue: errno))
        }
        self.token = unsafe token
    }

    func end() { unsafe reactor_terminal_end(token) }
}

extension RunLoop {
    /// The size of a terminal's window: the present one, and one whenever it has changed, or the process continues after a
    /// stop.
    ///
    /// ```swift
    /// for try await size in try RunLoop.main.sizes(of: Terminal()) { draw(size) }
    /// ```
    ///
    /// Sizes that come while none is awaited are one, the latest. From any thread. A handler uses a ``SignalSource`` of
    /// ``Signal/windowSizeChange``, and one of ``Signal/resume``. The kernel sends the signals of this process's controlling
    /// terminal; for that of a child there are none.
    ///
    /// - Parameters:
    ///   - terminal: The terminal that controls this process.
    ///   - modes: Where the loop serves the signals: the common modes unless others are named.
    /// - Throws: ``IOError`` as ``signals(_:inModes:)``, and with the error of ``Terminal/size()``.
    public func sizes(
        of terminal: Terminal, inModes modes: [Mode] = [.common]
    ) throws(IOError) -> Events<Terminal.Size, any Error> {
        try Events(on: self, inModes: modes, "terminal") { continuation throws(IOError) in
            var sources: [SignalSource] = []
            for signal in [.windowSizeChange, .resume] as [Signal] {
                sources.append(
                    try SignalSource(signal) { _, _ in
                        if let size = try? terminal.size() { continuation.yield(size) { _ in true } }
                    })
            }
            continuation.yield(try terminal.size())
            return (sources, nil)
        }
    }
}
