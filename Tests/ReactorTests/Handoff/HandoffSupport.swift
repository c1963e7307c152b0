import Dispatch
import Glibc
import Reactor
import SystemPackage
import Testing

/// Keeps all bytes, and performs the test's action before each chunk.
struct Collector: ChunkProcessor {
    var output: [UInt8] = []
    var before: @Sendable (_ taken: Int) throws -> Void = { _ in }
    var atFinish: @Sendable () throws -> Void = {}

    mutating func process(_ chunk: RawSpan) throws {
        try before(output.count)
        chunk.withUnsafeBytes { output.append(contentsOf: $0) }
    }

    mutating func finish() throws { try atFinish() }
}

typealias CollectorReport = HandoffReport<[UInt8]>

extension HandoffEnding {
    /// The error that the hand-off has failed with.
    var error: (any Error)? { if case .failed(let error) = self { error } else { nil } }
    var errno: Errno? { (error as? IOError)?.errno ?? error as? Errno }

    /// The case.
    var name: String {
        switch self {
        case .finished: "finished"
        case .stopped: "stopped"
        case .cancelled: "cancelled"
        case .failed: "failed"
        }
    }
}

/// Bytes that differ from place to place.
func sample(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
}

/// Runs the calling thread's loop until its mode is empty. Returns false if that did not happen.
func runToTheEnd(in mode: RunLoop.Mode = .default) -> Bool {
    RunLoop.current.run(in: mode, until: .now.advanced(by: .seconds(900))) == .finished
}

/// Hands off `stream`, runs the loop to the end, and returns the report, which must have come once.
func collect(
    _ stream: InputStream, _ collector: sending Collector = Collector(),
    on queue: DispatchQueue = DispatchQueue(label: "collector"), limits: HandoffLimits = HandoffLimits(),
    then action: (ChunkHandoff<Collector.Output>) -> Void = { _ in }
) -> CollectorReport? {
    var reports: [CollectorReport] = []
    let handoff = ChunkHandoff(stream, to: collector, on: queue, limits: limits)
    handoff.start { reports.append($0) }
    action(handoff)
    return runToTheEnd() && reports.count == 1 ? reports[0] : nil
}

/// Hands off `stream`, and performs an action before each chunk, with the hand-off.
func collect(
    _ stream: InputStream, on queue: DispatchQueue = DispatchQueue(label: "collector"), limits: HandoffLimits,
    before: @escaping @Sendable (_ taken: Int, ChunkHandoff<Collector.Output>) throws -> Void
) -> CollectorReport? {
    let handle = Shared<ChunkHandoff<Collector.Output>?>(nil)
    defer { handle.value = nil }
    let collector = Collector(before: { try before($0, handle.wait { $0 }) })
    return collect(stream, collector, on: queue, limits: limits) { handle.value = $0 }
}

/// Waits until all of `budget` is released: a cancelled hand-off may do that later.
func waitUntilUnused(_ budget: ByteBudget) { waitUntil { budget.inUse == 0 } }

/// Has no source: delivers its bytes one by one, and then its end or `error`, which only a read finds.
final class ByteByByte: InputStream {
    private var rest: [UInt8]
    private let error: (any Error)?
    private weak var listener: (any StreamDelegate)?

    init(_ bytes: [UInt8], error: (any Error)? = nil) {
        (rest, self.error) = (bytes, error)
        super.init()
    }

    override var delegate: (any StreamDelegate)? {
        get { listener }
        set { listener = newValue }
    }
    override var streamStatus: Stream.Status { streamError == nil ? .open : .error }
    override var streamError: (any Error)? { rest.isEmpty ? error : nil }
    override func open() {}
    override func close() {}
    override func schedule(in aRunLoop: RunLoop, forMode mode: RunLoop.Mode) {
        aRunLoop.perform(after: .zero, inModes: [mode]) { [self] in
            listener?.stream(self, handle: .hasBytesAvailable)
            if listener != nil { schedule(in: aRunLoop, forMode: mode) }
        }
    }
    override func read(_ buffer: UnsafeMutablePointer<UInt8>, maxLength len: Int) -> Int {
        guard !rest.isEmpty else { return error == nil ? 0 : -1 }
        buffer[0] = rest.removeFirst()
        return 1
    }
}

/// The kinds of stream that differ for a hand-off.
let handedKinds: [StreamKind] = [.bytes, .file, .pipe, .socket]

extension InputStream {
    /// A stream that fails when it is opened or read.
    static func failing(_ kind: StreamKind) throws -> InputStream {
        switch kind {
        case .file: return InputStream(path: "/nowhere/at/all")
        case .pipe:
            let pipe = try FileDescriptor.pipe()
            try pipe.readEnd.close()
            return InputStream(descriptor: pipe.writeEnd, closeWhenDone: true)
        default: return Connection(to: try SocketAddress(unixPath: "/nowhere/at/all")).streams.input
        }
    }

    /// Reads until the stream ends or fails, without a loop.
    func drain() {
        open()
        while !read(upTo: 100).isEmpty {}
    }

    /// Reads by a delegate on the calling thread's loop, until the delegate receives `last`.
    func deliver(until last: Stream.Event) {
        let recorder = Recorder()
        recorder.onEvent = { [unowned self] _, event in if event == .hasBytesAvailable { _ = read(upTo: 100) }
        }
        start(recorder)
        RunLoop.current.serve { recorder.events.last == last }
    }

    func closeElsewhere() {
        let handed = Carrier(self)
        onThreads(1) { _ in handed.value.close() }
    }
}
