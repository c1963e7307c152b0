import Synchronization

extension Resolver {
    /// A lookup under way, whose answer is for a run loop.
    public final class Lookup: Sendable {
        private struct State {
            var completion: LoopOwned<(Answer) -> Void>?
            /// Keeps the modes from being empty, and brings the answer.
            var source: RunLoop.Source?
            var request: ResolverRequest?
            var answer: Answer?
        }

        private let state: Mutex<State>

        init(
            _ query: ResolverQuery, on loop: RunLoop, _ modes: [RunLoop.Mode],
            completion: @escaping (Answer) -> Void
        ) {
            precondition(!modes.isEmpty, "a lookup in no mode would never be answered")
            state = Mutex(State(completion: LoopOwned(completion, on: loop)))
            // Taken out of a mode by the end of the loop's thread, or of this.
            let source = RunLoop.Source(
                cancelled: { _, _ in self.cancel() }, perform: { self.deliver() })
            let request = ResolverRequest(query) { answer in
                self.state.withLock { $0.answer = answer }
                source.signal()
                loop.wakeUp()
            }
            state.withLock { ($0.source, $0.request) = (source, request) }
            for mode in modes { loop.add(source, forMode: mode) }
            if !source.isInLoop {
                cancel()  // the loop's thread is ending
            } else if let answer = query.numericAnswer {
                request.give(.success(answer))
            } else {
                ResolverQueue.shared.add(request)
            }
        }

        /// Ends the lookup, if it has not been answered, and lets go of its closure; from any thread, more than
        /// once.
        ///
        /// On the loop's thread the completion is not called after this. From another thread, a call may be under
        /// way. A question that has been put is not taken back: its answer goes unheard.
        public func cancel() { _ = end() }

        private func deliver() {
            let ended = end()
            if let completion = ended.completion, let answer = ended.answer { completion.value(answer) }
        }

        /// Takes out what there is, so that it is done once; what is let go of, is so outside the lock.
        private func end() -> State {
            let ended = state.withLock { state in
                let ended = state
                state = State()
                return ended
            }
            ended.request?.cancel()
            ended.source?.invalidate()
            return ended
        }
    }
}
