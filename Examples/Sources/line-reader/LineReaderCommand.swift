import ArgumentParser
import Reactor

/// Reads files line by line on a worker queue, while the main run loop stays free.
@main
struct LineReaderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "line-reader",
        abstract: "Reads files line by line on a worker queue, while the main run loop stays free.",
        discussion: """
            Lines may have any length: memory does not grow with them. Only --strings holds a line whole, and so has a \
            limit.

            With --json the last line of output is an object of these members:
              files               how many files were read, or begun
              lines, bytes        what was read of them all
              longest_line_bytes, invalid_utf8_lines
              seconds, peak_heap_bytes, ticks, tick_lateness_p99_us
              interrupted         whether SIGINT or SIGTERM ended the reading
              inputs              an object for each file, in order
            and each object of inputs of these:
              path
              whole               whether the file was read to its end
              error               why it was not, or null
              lines, bytes, longest_line_bytes, invalid_utf8_lines

            The exit code is 0 if all files were read, 1 if one failed, and 128 and the signal's number after a \
            signal.
            """)

    @Argument(help: "The files to read, one after another; standard input for none, or for -.")
    var files: [String] = []

    @Option(help: "Print every Nth line, with its number.")
    var every: Int?

    @Flag(help: "Make a String of each line, which repairs what is not UTF-8.")
    var strings = false

    @Option(help: "The most bytes that one read takes; K, M and G are understood.")
    var chunkSize = ByteCount(65_536)

    @Option(help: "The most bytes that are being read, waiting or being processed.")
    var inFlight = ByteCount(HandoffLimits().bytesInFlight)

    @Option(
        help:
            "The most bytes of a line, without its terminator. (default: none; 1M with --strings or --long-lines)"
    )
    var limit: ByteCount?

    @Option(help: "What becomes of a line that has more than the limit. (default: fail)")
    var longLines: LongLines?

    @Option(help: "What ends a line; newline is LF or CR LF.")
    var terminator = Terminator.newline

    @Option(name: .customLong("sleep"), help: "Microseconds that the worker sleeps after every 1000 lines.")
    var microsecondsOfSleep: UInt32 = 0

    @Flag(help: "Print the totals as one JSON object.")
    var json = false

    func validate() throws {
        guard every ?? 1 > 0 else { throw ValidationError("--every takes a number from one on.") }
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        let reading = try Reading(self)
        for file in files.isEmpty ? ["-"] : files {
            if reading.goesOn { reading.read(file) } else { reading.leaveOut(file) }
        }
        let code = reading.finish()
        if code != 0 { throw ExitCode(code) }
    }

    /// Nil if lines of any length are read, a piece at a time.
    var lineLimit: Int? {
        if let limit { return limit.value }
        return strings || longLines != nil ? LineFramer.defaultLimit : nil
    }

    var options: LineReader<LineVisitor>.Options {
        LineReader.Options(
            terminator: terminator.value, lineLimit: lineLimit ?? Self.pieceSize,
            overflow: lineLimit == nil ? .split : longLines?.value ?? .fail,
            limits: HandoffLimits(chunkSize: chunkSize.value, bytesInFlight: inFlight.value),
            checksUTF8: true)
    }

    /// A quarter of a chunk of the default size: most lines of any text are one piece.
    private static let pieceSize = 16_384
}
