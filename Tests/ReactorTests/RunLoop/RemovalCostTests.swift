import CReactorLinux
import Glibc
import Reactor
import ReactorTesting
import Testing

/// Something of which many leave together.
enum Crowd: CaseIterable, Sendable {
    case invalidatedInCallout, removedWhileSignalled, invalidatedByOne, signalledAgain, ordered,
        cancelledOrdered
    case delayed, observers, blocks, mailboxes

    private func makeSources(_ count: Int, _ perform: @escaping @Sendable (RunLoop.Source) -> Void)
        -> [RunLoop.Source]
    {
        let sources = Shared<[RunLoop.Source]>([])
        sources.value = (0..<count).map { index in
            RunLoop.Source(order: index) { perform(sources.update { $0[index] }) }
        }
        for source in sources.value {
            for mode in [RunLoop.Mode.common, .custom] { RunLoop.current.add(source, forMode: mode) }
            source.signal()
        }
        return sources.value
    }

    /// Makes `count` of them come and go.
    func comeAndGo(_ count: Int) {
        let loop = RunLoop.current
        switch self {
        case .invalidatedInCallout: _ = makeSources(count) { $0.invalidate() }
        case .removedWhileSignalled:
            for source in makeSources(count, { _ in }) {
                for mode in [RunLoop.Mode.common, .custom] { loop.remove(source, forMode: mode) }
            }
        case .invalidatedByOne:
            let sources = makeSources(count) { _ in }
            loop.perform { for source in sources { source.invalidate() } }
        case .signalledAgain:
            let sources = makeSources(count) { $0.signal() }
            loop.poll()
            for source in sources { source.invalidate() }
        case .ordered: for order in 0..<count { loop.perform(order: -order) {} }
        case .cancelledOrdered:
            let tokens = (0..<count).map { loop.perform(order: -$0, inModes: [.common, .custom]) {} }
            for token in tokens { token.invalidate() }
        case .delayed: for _ in 0..<count { loop.perform(after: .zero, inModes: [.common, .custom]) {} }
        case .observers:
            let observers = (0..<count).map { RunLoop.Observer(order: -$0) { _, _ in } }
            for observer in observers { loop.add(observer, forMode: .default) }
            for observer in observers { loop.remove(observer, forMode: .default) }
        case .blocks: for _ in 0..<count { loop.perform(inModes: [.common, .custom]) {} }
        case .mailboxes:
            let mailboxes = (0..<count).map { _ in Mailbox<Int> { mailbox, _ in mailbox.close() } }
            for mailbox in mailboxes { mailbox.post(1) }
            loop.poll()
        }
        for _ in 0..<2 { loop.poll() }
    }
}

/// The processor's time that `body` takes on this thread.
private func processorTime(_ body: () -> Void) -> Duration {
    func now() -> Duration { .nanoseconds(reactor_clock_nanoseconds(CLOCK_THREAD_CPUTIME_ID)) }
    let start = now()
    body()
    return now() - start
}

@Suite(.runLoop) struct RemovalCostTests {
    /// What is quadratic takes sixteen times as long for four times as many.
    @Test(arguments: Crowd.allCases)
    func `four times as many that leave together take about four times as long`(crowd: Crowd) async throws {
        let ratio = try await onItsOwnThread {
            func ratio() -> Double {
                let time = { count in processorTime { crowd.comeAndGo(count) } }
                return time(4_000) / time(1_000)
            }
            _ = processorTime { crowd.comeAndGo(100) }
            // Caches that others have emptied make a ratio worse now and then; what is quadratic always is.
            return (0..<20).lazy.map { _ in ratio() }.first { $0 < 8 }
        }
        #expect(ratio != nil)
    }
}
