import Glibc
import Reactor
import SystemPackage
import Testing

/// A delegate that records its events, and then performs the test's action.
final class Recorder: StreamDelegate {
    var events: [Stream.Event] = []
    /// The bytes that it has read.
    var bytes: [UInt8] = []
    var onEvent: (Stream, Stream.Event) -> Void = { _, _ in }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        events.append(eventCode)
        onEvent(aStream, eventCode)
    }

    /// Reads up to `size` bytes at every event for bytes, and closes at the end or an error.
    func readsEverything(by size: Int = 65_536) {
        onEvent = { [unowned self] stream, event in
            if event == .hasBytesAvailable { bytes += (stream as! InputStream).read(upTo: size) }
            if event == .endEncountered || event == .errorOccurred { stream.close() }
        }
    }

    func count(_ event: Stream.Event) -> Int { events.count { $0 == event } }
}

extension Stream {
    /// Schedules the stream on the calling thread's loop, with `delegate`, and opens it.
    func start(_ delegate: (any StreamDelegate)?, mode: RunLoop.Mode = .default) {
        self.delegate = delegate
        schedule(in: .current, forMode: mode)
        open()
    }
}

extension RunLoop {
    /// How long a test waits for something that must happen, before it fails. No test passes by waiting.
    static var testPatience: Duration { .seconds(900) }

    /// Runs, one source at a time, until `condition` is true.
    func serve(in mode: Mode = .default, until condition: () -> Bool) {
        let deadline = Deadline.now.advanced(by: Self.testPatience)
        while !condition() {
            let result = run(in: mode, until: deadline, returnAfterSourceHandled: true)
            guard result == .handledSource || condition() else {
                Issue.record("the loop ended (\(result)) before what the test waits for")
                return
            }
        }
    }

    /// Makes passes that do not wait, and serve what is ready.
    func poll(_ mode: Mode = .default, passes: Int = 5) {
        for _ in 0..<passes { run(in: mode, until: .distantPast) }
    }

    /// The number of passes that the loop makes in 20 ms in which nothing should wake it. A loop that spins
    /// makes thousands.
    func passesInAWhile(in mode: Mode = .default) -> Int {
        var passes = 0
        let observer = Observer(for: .beforeTimers) { _, _ in passes += 1 }
        add(observer, forMode: mode)
        run(in: mode, until: .now.advanced(by: .milliseconds(20)))
        observer.invalidate()
        return passes
    }
}

/// The content of a file.
func content(of path: FilePath) throws -> [UInt8] {
    let descriptor = try FileDescriptor.open(path, .readOnly)
    return try descriptor.closeAfter {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = try buffer.withUnsafeMutableBytes { try descriptor.read(into: $0) }
            if count == 0 { return bytes }
            bytes += buffer[..<count]
        }
    }
}

/// How many of the process's descriptors are of the file at `path`.
func openDescriptors(of path: FilePath) -> Int { openPaths().count { $0 == path.string } }

/// How many of the process's descriptors are of files, pipes, terminals and devices. Those that Dispatch
/// opens when it is first used have no name, and don't count.
func openFiles() -> Int { openPaths().count { !$0.hasPrefix("anon_inode") && !$0.hasPrefix("/proc") } }

func openPaths() -> [String] {
    entries(of: "/proc/self/fd").map { name in
        var buffer = [CChar](repeating: 0, count: 4096)
        let length = readlink("/proc/self/fd/" + name, &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(length, 0)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// Whether everything that could write to the pipe of `descriptor` has been closed.
func isAtEnd(_ descriptor: FileDescriptor) -> Bool {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return poll(&request, 1, 0) == 1 && CInt(request.revents) & CInt(POLLHUP) != 0
}

/// Whether everything that could read from the pipe of `descriptor` has been closed.
func isBroken(_ descriptor: FileDescriptor) -> Bool {
    var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLOUT), revents: 0)
    return poll(&request, 1, 0) == 1 && CInt(request.revents) & CInt(POLLERR) != 0
}

/// A pseudoterminal in raw mode: bytes written to one end are read from the other.
func makeTerminal() throws -> (master: FileDescriptor, slave: FileDescriptor) {
    let (unlock, getPeer): (UInt, UInt) = (0x4004_5431, 0x5441)  // TIOCSPTLCK, TIOCGPTPEER: macros
    let master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var locked: CInt = 0
    try #require(master >= 0 && ioctl(master, unlock, &locked) == 0)
    let slave = ioctl(master, getPeer, O_RDWR | O_NOCTTY | O_CLOEXEC)
    try #require(slave >= 0)
    var settings = termios()
    tcgetattr(slave, &settings)
    cfmakeraw(&settings)
    tcsetattr(slave, TCSANOW, &settings)
    return (FileDescriptor(rawValue: master), FileDescriptor(rawValue: slave))
}

/// Bytes that show when a piece of them is missing, repeated or misplaced.
func pattern(_ count: Int) -> [UInt8] { Array(longPattern.prefix(count)) }

private let longPattern: [UInt8] = {
    // A prime number of bytes, doubled: no chunk has a multiple of its period.
    var bytes = Array(UInt8(0)..<251)
    while bytes.count < 4_000_000 { bytes += bytes }
    return bytes
}()
