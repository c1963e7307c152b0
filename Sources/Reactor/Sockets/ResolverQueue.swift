import Dispatch
import Synchronization

/// Carries out lookups, each of which blocks a thread, a few at a time.
final class ResolverQueue: Sendable {
    /// How many lookups go side by side.
    ///
    /// One whose server is silent takes many seconds (resolv.conf(5): five for each try). So there are more than
    /// there would be for work that takes a processor, that the quick ones need not wait for a few of the slow;
    /// and yet few enough that a burst of names does not take a thread for each.
    static let width = 8

    static let shared = ResolverQueue(width: width)

    private struct State {
        var waiting: [ResolverRequest] = []
        var idleLanes: [DispatchQueue]
    }

    private let state: Mutex<State>

    /// A serial queue for each lookup under way: Dispatch gives those a thread at once. Blocks of a concurrent
    /// queue get one for each processor, and more only after a second.
    init(width: Int) {
        state = Mutex(State(idleLanes: (1...width).map { DispatchQueue(label: "Resolver \($0)") }))
    }

    /// Has `request` carried out, after those that came before it have at least been begun.
    func add(_ request: ResolverRequest) {
        let lane = state.withLock { state in
            state.waiting.append(request)
            return state.idleLanes.popLast()
        }
        if let lane { DispatchWorkers.run(on: lane) { self.carryOut(on: lane) } }
    }

    private func carryOut(on lane: DispatchQueue) {
        while let request = next(for: lane) { request.carryOut() }
    }

    private func next(for lane: DispatchQueue) -> ResolverRequest? {
        state.withLock { state in
            guard state.waiting.isEmpty else { return state.waiting.removeFirst() }
            state.idleLanes.append(lane)
            return nil
        }
    }
}
