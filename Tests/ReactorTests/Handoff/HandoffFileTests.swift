import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Files, which the worker reads itself.
@Suite(.runLoop) final class HandoffFileTests {
    private static let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 400)
    private let path: FilePath
    private let file: TemporaryFile
    private let descriptor: FileDescriptor

    init() throws {
        file = try TemporaryFile(sample(1000))
        path = file.path
        descriptor = try FileDescriptor.open(path, .readWrite)
    }

    deinit { try? descriptor.close() }

    @Test(arguments: [450, 1500])
    func `a file that changes its size while it is read is read to its new end`(size: Int) {
        let collector = Collector(before: { [descriptor] taken in
            guard taken == 300 else { return }
            ftruncate(descriptor.rawValue, min(size, 1000))
            if size > 1000 { _ = try descriptor.writeAll(toAbsoluteOffset: 1000, sample(size)[1000...]) }
        })
        let report = collect(InputStream(path: path), collector, limits: Self.limits)
        #expect(report?.ending.name == "finished" && report?.output == sample(size))
    }

    /// A mapping of two pages of a one-page file: `/proc/self/mem` has the bytes of the first, and fails at
    /// the second.
    @Test func `bytes of a file before an error are processed before it`() throws {
        let page = Int(sysconf(Int32(_SC_PAGESIZE)))
        try descriptor.writeAll(toAbsoluteOffset: 0, sample(page))
        let mapping = try #require(mmap(nil, 2 * page, PROT_READ, MAP_SHARED, descriptor.rawValue, 0))
        defer { munmap(mapping, 2 * page) }
        let memory = InputStream(path: "/proc/self/mem")
        #expect(memory.setProperty(Int(bitPattern: mapping), forKey: .fileCurrentOffsetKey))
        let report = collect(memory, limits: HandoffLimits(chunkSize: page - 1))
        #expect(report?.ending.error as? IOError == IOError(.read, "/proc/self/mem", .ioError))
        #expect(report?.output == sample(page))
    }

    @Test(arguments: [true, false])
    func `a stream that has been read in part is handed off from there`(isSought: Bool) {
        let stream = InputStream(path: path)
        stream.open()
        if isSought {
            #expect(stream.setProperty(300, forKey: .fileCurrentOffsetKey))
        } else {
            #expect(stream.read(upTo: 300) == Array(sample(300)))
        }
        #expect(collect(stream, limits: Self.limits)?.output == Array(sample(1000)[300...]))
    }

    @Test func `the descriptor's offset is left where the last chunk ended`() throws {
        let stop = Collector(before: { if $0 == 300 { throw StopProcessing() } })
        #expect(collect(InputStream(descriptor: descriptor), stop, limits: Self.limits)?.byteCount == 300)
        #expect(try descriptor.seek(offset: 0, from: .current) == 400)  // the chunk it stopped in was read
        #expect(collect(InputStream(descriptor: descriptor), limits: Self.limits)?.byteCount == 600)
        #expect(try descriptor.seek(offset: 0, from: .current) == 1000)
    }

    @Test func `closing a file that waits for room ends its hand-off`() throws {
        let budget = ByteBudget(limit: 100)
        let limits = HandoffLimits(chunkSize: 100, bytesInFlight: 100, budget: budget)
        let (still, asked) = (DispatchQueue(label: "still"), DispatchQueue(label: "asked"))
        still.suspend()
        defer { still.resume() }
        var endings: [HandoffEnding] = []
        let first = ChunkHandoff(InputStream(data: [1]), to: Collector(), on: still, limits: limits)
        first.start { _ in }
        RunLoop.current.serve { budget.inUse == 100 }
        let stream = Carrier(InputStream(path: path))
        let second = ChunkHandoff(stream.value, to: Collector(), on: asked, limits: limits)
        second.start { endings.append($0.ending) }
        asked.sync {}  // the worker has asked the budget
        onThreads(1) { _ in stream.value.close() }
        RunLoop.current.serve { !endings.isEmpty }
        #expect(endings.map(\.errno) == [.badFileDescriptor])
        first.cancel()
        #expect(runToTheEnd())
    }

    /// Cancelled at many moments, because a chunk is read and not yet processed only briefly.
    @Test func `cancelling leaves the descriptor's offset behind the last processed chunk`() throws {
        for count in 1...50 {
            try descriptor.seek(offset: 0, from: .start)
            let report = collect(InputStream(descriptor: descriptor), limits: HandoffLimits(chunkSize: 1)) {
                handoff in
                waitUntil { handoff.progress.byteCount >= count }
                handoff.cancel()
            }
            #expect(try descriptor.seek(offset: 0, from: .current) == report.map { Int64($0.byteCount) })
        }
    }

    @Test func `a file is read one chunk at a time`() {
        let stream = Carrier(InputStream(descriptor: descriptor))
        let collector = Collector(before: { taken in
            #expect(stream.value.property(forKey: .fileCurrentOffsetKey) as? Int == taken + 100)
        })
        #expect(collect(stream.value, collector, limits: Self.limits)?.byteCount == 1000)
    }
}

@Suite(.runLoop) struct HandoffLifetimeTests {
    private let loop = RunLoop.current

    @Test func `the completion is called in the requested modes only`() {
        var modes: [RunLoop.Mode?] = []
        let done = Countdown(1)
        let handoff = ChunkHandoff(
            InputStream(path: "/proc/self/status"), to: Collector(atFinish: { done.count() }),
            on: DispatchQueue(label: "modes"))
        handoff.start(inModes: [.custom]) { [loop] _ in modes.append(loop.currentMode) }
        done.wait()  // the file is read although no loop runs
        #expect(loop.run(in: .default) == .finished && modes.isEmpty)
        #expect(runToTheEnd(in: .custom) && modes == [.custom])
    }

    @Test func `a completion may start the next hand-off, and run the loop`() throws {
        let (file, queue) = (try TemporaryFile(sample(1000)), DispatchQueue(label: "next"))
        var counts: [Int] = []
        func next(_ left: Int) {
            ChunkHandoff(InputStream(path: file.path), to: Collector(), on: queue).start { report in
                counts.append(report.byteCount)
                if left > 0 { next(left - 1) }
                #expect(runToTheEnd())
            }
        }
        next(3)
        #expect(runToTheEnd() && counts == [1000, 1000, 1000, 1000])
    }

    @Test func `a progress closure may run the loop, and more is read inside`() throws {
        let (pipe, isLast) = (try FileDescriptor.pipe(), Shared(false))
        try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(sample(5000)) }
        let collector = Collector(atFinish: { [loop] in
            isLast.value = true
            loop.wakeUp()
        })
        var report: CollectorReport?
        let handoff = ChunkHandoff(
            InputStream(descriptor: pipe.readEnd, closeWhenDone: true), to: collector,
            on: DispatchQueue(label: "nested"), limits: HandoffLimits(chunkSize: 10, bytesInFlight: 10))
        handoff.start(
            progress: { [loop] _ in
                while !isLast.value { loop.run(in: .default, until: .after(milliseconds: 1)) }
                #expect(report == nil)
            }, completion: { report = $0 })
        #expect(runToTheEnd() && report?.byteCount == 5000)
    }

    @Test(arguments: [true, false])
    func `a hand-off that has completed or is never started leaves nothing behind`(starts: Bool) throws {
        let file = try TemporaryFile(sample(100_000))
        var fates: [Fate] = []
        weak var stream: InputStream?
        let handoff: ChunkHandoff<Collector.Output>?
        do {
            let (inProcessor, inCompletion) = (Witness(), Witness())
            fates = [Fate(inProcessor), Fate(inCompletion)]
            let input = InputStream(path: file.path)
            stream = input
            let started = ChunkHandoff(
                input, to: Collector(before: { _ in _ = inProcessor }), on: DispatchQueue(label: "leaks"))
            if starts {
                started.start(progress: { _ in _ = inCompletion }, completion: { _ in _ = inCompletion })
            }
            handoff = starts ? started : nil
        }
        #expect(runToTheEnd() && fates.allSatisfy { $0.isFreed } && stream == nil)
        #expect(handoff?.progress.byteCount == (starts ? 100_000 : nil))
    }

    @Test(arguments: [true, false])
    func `the end of the loop's thread cancels a hand-off and releases everything`(isSuspended: Bool) throws {
        let gone = Countdown(2)
        try onAThread {
            let (inProcessor, inCompletion) = (AtEnd { gone.count() }, AtEnd { gone.count() })
            let handoff = ChunkHandoff(
                InputStream(path: "/dev/zero"), to: Collector(before: { _ in _ = inProcessor }),
                on: DispatchQueue(label: "ending"), limits: HandoffLimits(chunkSize: 100, bytesInFlight: 100))
            if isSuspended { handoff.suspend() }
            handoff.start(progress: { _ in _ = inCompletion }) { _ in
                Issue.record("completed without a loop")
            }
        }
        gone.wait()
    }

    @Test func `a processor that reads the file that was handed off traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let input = Carrier(InputStream(path: "/dev/zero"))
                let handoff = ChunkHandoff(
                    input.value, to: Collector(before: { _ in _ = input.value.read(upTo: 1) }),
                    on: DispatchQueue(label: "own"))
                handoff.start { _ in }
                RunLoop.current.run(in: .default)
            }
        }
        #expect(result.message.contains("must neither read the stream"))
    }

    @Test func `starting a hand-off twice traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            try onAThread {
                let handoff = ChunkHandoff(
                    InputStream(data: [1]), to: Collector(), on: DispatchQueue(label: "twice"))
                handoff.start { _ in }
                handoff.start { _ in }
            }
        }
        #expect(result.message.contains("must be called only once"))
    }
}
