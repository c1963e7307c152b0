import ArgumentParser
import Reactor

/// Reads files line by line on a worker queue, while the main run loop stays free.
@main
struct LineReaderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "line-reader",
        abstract: "Reads files line by line on a worker queue, while the main run loop stays free.")

    @Argument(help: "The files to read, one after another; standard input for none, or for -.")
    var files: [String] = []

    @Option(help: "Print every Nth line, with its number.")
    var every: Int?

    @Flag(help: "Make a String of each line, which repairs what is not UTF-8.")
    var strings = false

    @Option(help: "The most bytes that one read takes; K, M and G are understood.")
    var chunkSize = ByteCount(HandoffLimits().chunkSize)

    @Option(help: "The most bytes that are being read, waiting or being processed.")
    var inFlight = ByteCount(HandoffLimits().bytesInFlight)

    @Option(help: "The most bytes of a line, without its terminator.")
    var limit = ByteCount(LineFramer.defaultLimit)

    @Option(help: "What becomes of a line that has more.")
    var longLines = LongLines.fail

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
        for file in files.isEmpty ? ["-"] : files where reading.goesOn { reading.read(file) }
        let code = reading.finish()
        if code != 0 { throw ExitCode(code) }
    }

    var options: LineReader<LineVisitor>.Options {
        LineReader.Options(
            terminator: terminator.value, lineLimit: limit.value, overflow: longLines.value,
            limits: HandoffLimits(chunkSize: chunkSize.value, bytesInFlight: inFlight.value))
    }
}
