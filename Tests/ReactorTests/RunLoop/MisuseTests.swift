import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// A use of a loop or of its items on the wrong thread, or of a loop that has ended.
enum Misuse: String, CaseIterable, Codable {
    case running, addingObserver, invalidatingObserver, askingObserver, movingObserver
    case cancellingDescriptor, askingDescriptor, askingInterest, describingDescriptor, addingDescriptor
    case removingDescriptor, lookingForDescriptor
    case waitingInNoMode, waitingForEndedLoop, mailboxOfNoMode
    case delayingElsewhere, dispatchingHosting, endingHostingNested, watchingNothing

    /// What the message names.
    var subject: String {
        switch self {
        case .running: "RunLoop.run("
        case .addingObserver: "RunLoop.add(_:forMode:)"
        case .askingObserver, .movingObserver: "Observer"
        case .invalidatingObserver: "'elsewhere'"
        case .waitingInNoMode: "performAndWait"
        case .waitingForEndedLoop: "has ended"
        case .mailboxOfNoMode: "mailbox"
        case .delayingElsewhere: "RunLoop.perform(after:"
        case .dispatchingHosting: "RunLoop.Hosting.dispatch()"
        case .endingHostingNested: "RunLoop.Hosting"
        default: "DescriptorSource"
        }
    }

    /// Whether the thread is what is wrong.
    var isOfThread: Bool {
        switch self {
        case .waitingInNoMode, .waitingForEndedLoop, .mailboxOfNoMode, .endingHostingNested, .watchingNothing:
            false
        default: true
        }
    }

    /// Ends the process.
    func commit() throws {
        try onAThread {
            let home = RunLoop.current
            let observer = Carrier(RunLoop.Observer { _, _ in })
            let pipe = try TestPipe()
            let source = Carrier(DescriptorSource(pipe, Trace(), ""))
            home.add(observer.value, forMode: .default)
            try home.add(source.value, forMode: .default)
            try JoinableThread(name: "elsewhere") { abuse(home, observer.value, source.value) }.join()
            withExtendedLifetime(pipe) {}
        }
    }

    private func abuse(_ home: RunLoop, _ observer: RunLoop.Observer, _ source: DescriptorSource) {
        switch self {
        case .running: home.run(in: .default, until: .distantPast)
        case .addingObserver: home.add(RunLoop.Observer { _, _ in }, forMode: .default)
        case .invalidatingObserver: observer.invalidate()
        case .askingObserver: _ = observer.isValid
        case .movingObserver: RunLoop.current.add(observer, forMode: .default)
        case .cancellingDescriptor: source.cancel()
        case .askingDescriptor: _ = source.isValid
        case .askingInterest: _ = source.interest
        case .describingDescriptor: _ = source.description
        case .addingDescriptor: try? RunLoop.current.add(source, forMode: .default)
        case .removingDescriptor: RunLoop.current.remove(source, forMode: .default)
        case .lookingForDescriptor: _ = RunLoop.current.contains(source, forMode: .default)
        case .waitingInNoMode: home.performAndWait(inModes: []) {}
        case .waitingForEndedLoop:
            let ended = Answer<RunLoop>()
            try? onAThread { ended.give(.current) }
            ended.wait().performAndWait {}
        case .mailboxOfNoMode: _ = Mailbox<Int>(inModes: []) { _, _ in }
        case .delayingElsewhere: home.perform(after: .zero) {}
        case .dispatchingHosting:
            let hosting = Carrier(try! RunLoop.Hosting(.current))
            onThreads(1) { _ in hosting.value.dispatch() }
        case .endingHostingNested:
            let hosting = Carrier(try! RunLoop.Hosting(.current))
            RunLoop.current.perform(inModes: [.tracking]) { hosting.value.end() }
            RunLoop.current.run(in: .tracking)
        case .watchingNothing:
            _ = DescriptorSource(FileDescriptor(rawValue: -1), for: .readable) { _, _ in }
        }
    }
}

@Suite(.runLoop) struct MisuseTests {
    @Test(arguments: Misuse.allCases)
    func `misuse traps, and the message names what was misused`(misuse: Misuse) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [misuse = misuse as Misuse] in
            try misuse.commit()
        }
        #expect(result.message.contains(misuse.subject), "\(result.message)")
        #expect(!misuse.isOfThread || result.message.contains("the loop's own thread"), "\(result.message)")
    }

    @Test(arguments: [[RunLoop.Mode.custom], [.custom, .tracking]])
    func `waiting for a block of a loop that ends without running it traps`(modes: [RunLoop.Mode]) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [names = modes.map(\.rawValue) as [String]] in
            let ending = Answer<RunLoop>()
            _ = try JoinableThread(name: "ending") {
                let loop = RunLoop.current
                loop.hold(.default)
                loop.observe(.afterWaiting) { _ in loop.stop() }
                ending.give(loop)
                loop.run(in: .default)
            }
            ending.wait().untilAsleep()
            ending.wait().performSynchronously(inModes: names.map { RunLoop.Mode(rawValue: $0) }) {}
        }
        #expect(result.message.contains("has ended"))
    }

    @Test(arguments: ["eventfd", "timerfd"])
    func `a loop whose descriptor other code has closed traps`(kind: String) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind = kind as String] in
            alarm(10)
            try onAThread {
                let loop = RunLoop.current
                loop.hold(.default)
                let before = Set(descriptors(of: kind))
                loop.poll()
                // Begun before, as a thread that begins opens a file, which could get the number.
                let (begun, closed) = (Answer<Void>(), Answer<Void>())
                _ = try JoinableThread(name: "waker") {
                    begun.give(())
                    closed.wait()
                    // Only a wake-up of a loop that sleeps writes the event counter, and this one may come before that.
                    while true {
                        loop.untilAsleep()
                        loop.wakeUp()
                    }
                }
                begun.wait()
                for number in descriptors(of: kind) where !before.contains(number) { close(number) }
                if kind == "timerfd" { Timer.scheduled(after: .milliseconds(1)) { _ in } }
                closed.give(())
                loop.run(in: .default, until: .minutesAway)
            }
        }
        #expect(result.message.contains("closed"), "\(result.message)")
    }
}

/// The process's descriptors of a kind that has no file, such as eventfd(2).
private func descriptors(of kind: String) -> [CInt] {
    (3..<1024).filter { number in
        var target = [CChar](repeating: 0, count: 256)
        readlink("/proc/self/fd/\(number)", &target, 255)
        return strstr(target, "[\(kind)]") != nil
    }
}
