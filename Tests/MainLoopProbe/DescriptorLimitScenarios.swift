import Dispatch
import Glibc
import Reactor
import SystemPackage

// MARK: Running out of descriptors

/// Opens descriptors until the process reaches its limit. `@unchecked Sendable` is correct: a scenario uses it on one
/// thread after another.
final class ExhaustedDescriptors: @unchecked Sendable {
    private var numbers: [CInt] = []

    var count: Int { numbers.count }

    /// - Parameter spare: The number of descriptors that remain available.
    init(sparing spare: Int) {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = min(limit.rlim_cur, 64)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        while case let number = dup(STDIN_FILENO), number >= 0 { numbers.append(number) }
        free(spare)
    }

    func free(_ count: Int = .max) {
        for number in numbers.suffix(count) { close(number) }
        numbers = numbers.dropLast(count)
    }
}

/// Creates loops with few descriptors available. Each runs a timer and adds a readable descriptor.
@MainActor func fewDescriptors() throws {
    let pipe = try FileDescriptor.pipe()
    _ = try pipe.writeEnd.writeAll([1])
    for spare in 0...8 {
        let exhausted = ExhaustedDescriptors(sparing: spare)
        let thread = try RunLoopThread(name: "few descriptors")
        thread.runLoop.performAndWait {
            Timer.scheduled(after: .milliseconds(1), forMode: .custom) { _ in RunLoop.current.stop() }
            let result = RunLoop.current.run(in: .custom)
            do throws(Errno) {
                let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel() }
                try RunLoop.current.add(source, forMode: .custom)
                print(spare, result, RunLoop.current.run(in: .custom))
            } catch { print(spare, result, error == .tooManyOpenFiles ? "refused" : "\(error)") }
        }
        thread.stop()
        exhausted.free()
    }
}

/// Hosts a loop with more and more descriptors available, and prints how many it needs, and how many are open after it.
@MainActor func hostedWithoutDescriptors() throws {
    let exhausted = ExhaustedDescriptors(sparing: 0)
    for spare in 0...16 {
        do throws(Errno) {
            let hosting = try RunLoop.Hosting(.main)
            print("hosted with", spare > 0)
            hosting.end()
            break
        } catch {
            guard error == .tooManyOpenFiles else { throw error }
            exhausted.free(1)
        }
    }
    RunLoop.main.perform { print("runs itself") }
    RunLoop.main.run(in: .default, until: .distantPast)
}

/// Opens streams that need no descriptor, or fail without one, on loops created with few descriptors available.
@MainActor func streamsWithFewDescriptors() throws {
    for spare in 0...5 {
        let exhausted = ExhaustedDescriptors(sparing: spare)
        let thread = try RunLoopThread(name: "few descriptors")
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
        exhausted.free()
    }
}

/// Reads available bytes, and stops the loop at the sixth event, the last one.
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

/// Starts the main loop's first activation with few descriptors available. Later another thread frees them and adds a
/// block to the main queue.
@MainActor func lateMainQueue() throws {
    let thread = try RunLoopThread(name: "frees")
    while !thread.runLoop.isWaiting { sched_yield() }
    let exhausted = ExhaustedDescriptors(sparing: Int(CommandLine.arguments[1]) ?? 0)
    Timer.scheduled(after: .milliseconds(1)) { _ in
        print("timer")
        thread.runLoop.perform {
            exhausted.free()
            DispatchQueue.main.async {
                print("block")
                MainActor.assumeIsolated { RunLoop.main.stop() }
            }
        }
    }
    print(RunLoop.main.run(in: .default))
}

/// Uses libdispatch for the first time, with few descriptors available: to resolve a name, to flush a file, and to
/// deliver events on a queue.
@MainActor func firstUsesOfDispatch() throws {
    RunLoop.main.run {
        let path = FilePath("/tmp/reactor-probe-\(getpid())")
        let output = OutputStream(path: path)
        output.open()
        defer { unlink(path.string) }
        let exhausted = ExhaustedDescriptors(sparing: Int(CommandLine.arguments[1]) ?? 0)
        defer { exhausted.free() }
        do {
            print(
                try await Resolver.resolve(host: "localhost", port: 7, family: .ipv4, timeout: .seconds(600)))
        } catch { print(error) }
        do {
            try await output.writeAll("text")
            try await output.flush(timeout: .seconds(600))
            print("flushed")
        } catch { print(error) }
        let input = InputStream(data: [1])
        input.setDispatchQueue(DispatchQueue(label: "first"))
        input.open()
        print(input.streamError.map { "\($0)" } ?? "open")
    }
}

/// Prints the numbers of descriptors that the loop opens for its first mode and for a second one.
@MainActor func descriptorsOfModes() throws {
    func count() -> Int { (0..<1024).count { fcntl(CInt($0), F_GETFD) >= 0 } }
    hold(.custom)
    let before = count()
    RunLoop.main.run(in: .default, until: .now)
    let withOne = count()
    RunLoop.main.run(in: .custom, until: .now)
    print(withOne - before, count() - withOne)
}
