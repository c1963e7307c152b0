import Dispatch
import Glibc
import Reactor
import Synchronization
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

    /// Writes `bytes` when there is space, and closes the stream after them.
    func writes(_ bytes: [UInt8], by size: Int = .max) {
        var rest = bytes[...]
        onEvent = { stream, event in
            guard event == .hasSpaceAvailable, let output = stream as? OutputStream else { return }
            rest = rest.dropFirst(output.writeOnce(rest.prefix(size)))
            if rest.isEmpty { output.close() }
        }
    }

    func count(_ event: Stream.Event) -> Int { events.count { $0 == event } }
}

/// A delegate for any thread: counts its events, and records whether two calls overlapped.
final class Counter: StreamDelegate, Sendable {
    let events = Shared<[UInt]>([])
    let threads = Shared<Set<UInt>>([])
    private let overlaps = Atomic(0)
    private let depth = Atomic(0)
    let onEvent: @Sendable (Stream, Stream.Event) -> Void

    init(_ onEvent: @escaping @Sendable (Stream, Stream.Event) -> Void = { _, _ in }) {
        self.onEvent = onEvent
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        if depth.add(1, ordering: .sequentiallyConsistent).oldValue > 0 {
            overlaps.add(1, ordering: .sequentiallyConsistent)
        }
        _ = threads.update { $0.insert(UInt(pthread_self())).inserted }
        events.update { $0.append(eventCode.rawValue) }
        onEvent(aStream, eventCode)
        depth.subtract(1, ordering: .sequentiallyConsistent)
    }

    var hasOverlapped: Bool { overlaps.load(ordering: .sequentiallyConsistent) > 0 }

    /// Waits until the events that were handled satisfy `condition`.
    func wait(until condition: ([UInt]) -> Bool) { events.wait { condition($0) ? () : nil } }

    func waitForEnd() { wait { $0.last == Stream.Event.endEncountered.rawValue } }
}

extension Stream {
    /// Delivers the stream's events to `delegate` on `loop`, and opens it.
    func start(_ delegate: any StreamDelegate & Sendable, on loop: RunLoop, mode: RunLoop.Mode = .default) {
        self.delegate = delegate
        schedule(in: loop, forMode: mode)
        open()
    }

    /// Delivers the stream's events to `delegate` on `queue`, and opens it.
    func start(_ delegate: any StreamDelegate & Sendable, on queue: DispatchQueue) {
        self.delegate = delegate
        setDispatchQueue(queue)
        open()
    }

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

    /// Serves what is ready, and what becomes ready by that.
    func settle(in mode: Mode = .default) { poll(mode, passes: 5) }

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
func content(of path: FilePath) throws -> [UInt8] { try #require(content(of: path.string)) }

/// How many of the process's descriptors are of the file at `path`.
func openDescriptors(of path: FilePath) -> Int { openPaths().count { $0 == path.string } }

func openPaths() -> [String] {
    entries(of: "/proc/self/fd").map { name in
        var buffer = [CChar](repeating: 0, count: 4096)
        let length = readlink("/proc/self/fd/" + name, &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(length, 0)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
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

extension FileDescriptor {
    func setNonBlocking(_ isNonBlocking: Bool) {
        let flags = fcntl(rawValue, F_GETFL)
        _ = fcntl(rawValue, F_SETFL, isNonBlocking ? flags | O_NONBLOCK : flags & ~O_NONBLOCK)
    }
}

private let longPattern: [UInt8] = {
    // A prime number of bytes, doubled: no chunk has a multiple of its period.
    var bytes = Array(UInt8(0)..<251)
    while bytes.count < 4_000_000 { bytes += bytes }
    return bytes
}()
