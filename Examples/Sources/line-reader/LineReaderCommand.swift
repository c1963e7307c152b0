import ArgumentParser
import ExampleSupport
import Reactor

/// Reads files line by line on a worker queue, without blocking the main run loop.
@main
struct LineReaderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "line-reader",
        abstract: "Reads files line by line on a worker queue, without blocking the main run loop.",
        discussion: """
            Lines may be of any length: memory use does not depend on it. With --strings, --long-lines or --limit, whole \
            lines are kept in memory, and their length is limited.

            With --json, the last line of the output is an object with these members:
              files               the number of files read, completely or in part
              lines, bytes        the totals of all files
              longest_line_bytes, invalid_utf8_lines
              seconds, peak_heap_bytes, ticks, tick_lateness_p99_us
              interrupted         whether SIGINT or SIGTERM ended the program
              inputs              an array with an object for each file, in order:
                path
                whole             whether the file was read to its end
                error             the error that ended reading, or null
                lines, bytes, longest_line_bytes, invalid_utf8_lines

            The exit status is 0 if all files were read, 1 if an error occurred, and 128 plus the signal's number \
            after a signal.
            """)

    @Argument(help: "The files to read, in order. With no file, or for -, reads standard input.")
    var files: [String] = []

    @Option(help: "Print every Nth line, with its number.")
    var every: Int?

    @Flag(help: "Convert each line to a String, repairing invalid UTF-8.")
    var strings = false

    @Option(help: "The maximum size of a read, in bytes; accepts the suffixes K, M and G.")
    var chunkSize = ByteCount(65_536)

    @Option(help: "The maximum number of bytes that have been read and not yet processed.")
    var inFlight = ByteCount(HandoffLimits().bytesInFlight)

    @Option(
        help:
            "The maximum length of a line, without its terminator. (default: none; 1M with --strings or --long-lines)"
    )
    var limit: ByteCount?

    @Option(help: "The treatment of lines longer than the limit. (default: fail)")
    var longLines: LongLines?

    @Option(help: "The line terminator; newline is LF or CR LF.")
    var terminator = Terminator.newline

    @Option(
        name: .customLong("sleep"), help: "Microseconds for which the worker sleeps after every 1000 lines.")
    var microsecondsOfSleep: UInt32 = 0

    @Flag(help: "Print the totals as one JSON object.")
    var json = false

    func validate() throws {
        guard every ?? 1 > 0 else { throw ValidationError("--every must be at least 1.") }
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        let session = try ReadingSession(self)
        for file in files.isEmpty ? ["-"] : files {
            if session.shouldContinue { session.read(file) } else { session.skip(file) }
        }
        let code = session.finish()
        if code != 0 { throw ExitCode(code) }
    }

    /// Nil if lines of any length are read, in parts.
    var lineLimit: Int? {
        if let limit { return limit.value }
        return strings || longLines != nil ? LineFramer.defaultLimit : nil
    }

    var framer: LineFramer {
        LineFramer(
            terminator: terminator.value, limit: lineLimit ?? Self.partSize,
            overflow: lineLimit == nil ? .split : longLines?.value ?? .fail, checksUTF8: true)
    }

    var limits: HandoffLimits {
        HandoffLimits(chunkSize: chunkSize.value, bytesInFlight: inFlight.value)
    }

    /// A quarter of the default chunk size. Lines of ordinary text have a single part.
    private static let partSize = 16_384
}
