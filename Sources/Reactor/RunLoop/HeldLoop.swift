import CReactorLinux

/// A run loop that somebody else holds meanwhile: what is asked of it counts no references, which would be a good part
/// of what a timer costs.
@safe
struct HeldLoop: Sendable {
    private let reference: Unmanaged<RunLoop>

    /// - Parameter loop: Whoever keeps the value answers for it that the loop lives.
    init(_ loop: RunLoop) { unsafe reference = .passUnretained(loop) }

    /// The calling thread's loop, which the thread holds; nil if it has none yet.
    static var current: HeldLoop? {
        guard let pointer = unsafe reactor_current_loop_object() else { return nil }
        return unsafe HeldLoop(.fromOpaque(pointer))
    }

    private init(_ reference: Unmanaged<RunLoop>) { unsafe self.reference = unsafe reference }

    /// The loop, to be held by whoever asks.
    var loop: RunLoop { unsafe reference.takeUnretainedValue() }

    var identity: LoopIdentity { use { $0.identity } }

    var isCurrent: Bool { use { $0.isCurrent } }

    var isAtItsEnd: Bool { use { $0.inbox.isClosed } }

    // MARK: On its thread

    @inline(__always)
    func state(of mode: RunLoop.Mode) -> ModeState { useCore { $0.state(of: mode) } }

    @inline(__always)
    func nextSequence() -> UInt64 { useCore { $0.nextSequence() } }

    // MARK: Not counting

    @inline(__always)
    private func use<Answer>(_ body: (RunLoop) -> Answer) -> Answer {
        unsafe reference._withUnsafeGuaranteedRef(body)
    }

    @inline(__always)
    private func useCore<Answer>(_ body: (RunLoop.Core) -> Answer) -> Answer {
        let core = unsafe use { unsafe Unmanaged.passUnretained($0.core) }
        return unsafe core._withUnsafeGuaranteedRef(body)
    }
}
