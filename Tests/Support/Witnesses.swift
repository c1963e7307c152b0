import Testing

/// The events of a test, in order, recorded on any threads.
package final class Trace: Sendable {
    private let events = Shared<[String]>([])

    package init() {}

    package func callAsFunction(_ event: String) { events.update { $0.append(event) } }

    package var all: [String] { events.value }

    /// Removes and returns all events.
    package func take() -> [String] {
        events.update { events in
            defer { events = [] }
            return events
        }
    }
}

/// Calls a closure when its last reference is released, on the thread that releases it.
package final class AtEnd: Sendable {
    private let action: @Sendable () -> Void

    package init(_ action: @escaping @Sendable () -> Void) { self.action = action }

    deinit { action() }
}

/// An object whose deallocation a ``Fate`` observes.
package final class Witness: Sendable {
    package init() {}
}

/// A weak reference to a witness.
package struct Fate: Sendable {
    package weak let witness: Witness?

    package init(_ witness: Witness) { self.witness = witness }

    package var isFreed: Bool { witness == nil }
}

extension ExitTest.Result? {
    /// The message of the trap that ended the process: the first line of its standard error.
    package var message: String {
        let errors = String(decoding: self?.standardErrorContent ?? [], as: UTF8.self)
        return errors.split(separator: "\n").first.map(String.init) ?? ""
    }
}
