import Dispatch
import Glibc
import Reactor
import SystemPackage

// MARK: Descriptors that run out

/// Takes all descriptors that the process may still open, but for some.
final class TakenDescriptors: @unchecked Sendable {
    private var numbers: [CInt] = []

    /// - Parameter spare: How many descriptors are left free.
    init(butFor spare: Int) {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = 64
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        while case let number = dup(STDIN_FILENO), number >= 0 { numbers.append(number) }
        free(spare)
    }

    func free(_ count: Int = .max) {
        for number in numbers.suffix(count) { close(number) }
        numbers = numbers.dropLast(count)
    }
}

/// Loops that are made with few descriptors left: each adds a descriptor that is readable, and runs a timer.
@MainActor func fewDescriptors() throws {
    let pipe = try FileDescriptor.pipe()
    _ = try pipe.writeEnd.writeAll([1])
    for spare in 0...8 {
        let taken = TakenDescriptors(butFor: spare)
        let thread = try RunLoopThread(name: "with few")
        thread.runLoop.performAndWait {
            Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in RunLoop.current.stop() }
            let answer = RunLoop.current.run(in: .custom)
            do throws(Errno) {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
                try RunLoop.current.add(source, forMode: .custom)
                print(spare, answer, RunLoop.current.run(in: .custom))
            } catch { print(spare, answer, error == .tooManyOpenFiles ? "refused" : "\(error)") }
        }
        thread.stop()
        taken.free()
    }
}

/// Streams that need no descriptor, or fail for want of one, on loops that are made with few descriptors left.
@MainActor func streamsWithFewDescriptors() throws {
    for spare in 0...5 {
        let taken = TakenDescriptors(butFor: spare)
        let thread = try RunLoopThread(name: "with few")
        thread.runLoop.performAndWait {
            let record = EventRecord()
            let streams = [
                InputStream(data: [1]), InputStream(path: "/nowhere/at/all"), InputStream(data: []),
            ]
            for stream in streams {
                stream.delegate = record
                stream.schedule(in: RunLoop.current, forMode: .custom)
                stream.open()
            }
            RunLoop.current.run(in: .custom, until: .now.advanced(by: .seconds(60)))
            print(spare, record.events.sorted().joined(separator: " "))
            for stream in streams { stream.close() }
        }
        thread.stop()
        taken.free()
    }
}

/// Reads what there is, and stops the loop with the last of the events.
private final class EventRecord: StreamDelegate {
    private(set) var events: [String] = []

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .openCompleted: events.append("opened")
        case .hasBytesAvailable:
            events.append("bytes")
            _ = (stream as? InputStream)?.read(upTo: 2)
        case .endEncountered: events.append("end")
        case .errorOccurred: events.append("error")
        default: events.append("other")
        }
        if events.count == 6 { RunLoop.current.stop() }
    }
}

/// The main loop's first activation begins with few descriptors left. Later another thread frees them all, and hands work
/// to the main queue.
@MainActor func lateMainQueue() throws {
    let thread = try RunLoopThread(name: "frees")
    while !thread.runLoop.isWaiting { sched_yield() }
    let taken = TakenDescriptors(butFor: Int(CommandLine.arguments[1]) ?? 0)
    Timer.scheduled(after: .milliseconds(1)) { _ in
        print("timer")
        thread.runLoop.perform {
            taken.free()
            DispatchQueue.main.async {
                print("block")
                MainActor.assumeIsolated { RunLoop.main.stop() }
            }
        }
    }
    print(RunLoop.main.run(in: .default))
}

/// How many descriptors the loop takes for its first mode, and for a further one.
@MainActor func descriptorsOfModes() throws {
    func count() -> Int { (0..<1024).count { fcntl(CInt($0), F_GETFD) >= 0 } }
    hold(.custom)
    let before = count()
    RunLoop.main.run(in: .default, until: .now)
    let withOne = count()
    RunLoop.main.run(in: .custom, until: .now)
    print(withOne - before, count() - withOne)
}
