public import Foundation
public import Reactor

// Cocoa's spellings, with a date. Where a `Deadline` would do as well, as for `.distantFuture`, these are meant.

extension Reactor.RunLoop {
    /// Runs in the default mode until `limitDate`, making at least one pass; returns at once if the mode is empty.
    ///
    /// - Precondition: Called on the loop's own thread.
    public func run(until limitDate: Date) { run(until: Deadline(limitDate)) }

    /// Runs once in `mode`, until a source has been handled or `limitDate` has passed; any number of timers fire
    /// meanwhile.
    ///
    /// - Returns: Whether it ran: false for an empty mode, for ``Mode/common``, and on a thread that is not the loop's.
    @discardableResult
    public func run(mode: Mode, before limitDate: Date) -> Bool {
        run(mode: mode, before: Deadline(limitDate))
    }

    /// Polls `mode` once, and says when its next timer is due.
    ///
    /// - Returns: The date of the mode's earliest timer, `Date.distantFuture` if it has other things only, and nil if it
    ///   is empty or the thread is not the loop's.
    public func limitDate(forMode mode: Mode) -> Date? {
        let deadline: Deadline? = limitDate(forMode: mode)
        return deadline.map { Date($0) }
    }

    /// Runs once in `mode`, as ``run(mode:before:)`` does.
    public func acceptInput(forMode mode: Mode, before limitDate: Date) {
        run(mode: mode, before: limitDate)
    }
}
