public import Foundation
public import Reactor

// A literal such as `.distantFuture` fits a Date and a Deadline. The compiler prefers these overloads.

extension Reactor.RunLoop {
    /// The calling thread's loop. Unlike `Reactor`'s, it may be used in asynchronous code, as in Foundation, where it is
    /// the loop of the thread that happens to run the task.
    public static var current: Reactor.RunLoop { ofCallingThread }

    /// Runs in the default mode until it has nothing left to run for: on the main thread, forever. Unlike `Reactor`'s, it
    /// may be called in asynchronous code, whose thread it then blocks.
    ///
    /// - Precondition: Called on the loop's own thread.
    public func run() {
        while run(mode: .default, before: Date.distantFuture) {}
    }

    /// Runs in the default mode until `limitDate`, making at least one pass; returns at once if the mode is
    /// empty.
    ///
    /// - Precondition: Called on the loop's own thread.
    public func run(until limitDate: Date) { run(until: Deadline(limitDate)) }

    /// Runs once in `mode`, until a source has been handled or `limitDate` has passed. Any number of timers
    /// may fire before that.
    ///
    /// - Returns: Whether the loop ran: false for an empty mode, for `Mode.common`, and on another thread
    ///   than the loop's.
    @discardableResult
    public func run(mode: Mode, before limitDate: Date) -> Bool {
        run(mode: mode, before: Deadline(limitDate))
    }

    /// Polls `mode` once and returns the date of its next timer.
    ///
    /// - Returns: The fire date of the mode's earliest timer; `Date.distantFuture` if the mode has no timers;
    ///   nil if it is empty, or on another thread than the loop's.
    public func limitDate(forMode mode: Mode) -> Date? {
        let deadline: Deadline? = limitDate(forMode: mode)
        return deadline.map { Date($0) }
    }

    /// Does the same as `Reactor`'s `perform(inModes:_:)`.
    @_disfavoredOverload
    public func perform(inModes modes: [Mode], block: @escaping @Sendable () -> Void) {
        perform(inModes: modes, block)
    }

    /// Runs once in `mode`, like ``run(mode:before:)``.
    public func acceptInput(forMode mode: Mode, before limitDate: Date) {
        run(mode: mode, before: limitDate)
    }
}

// MARK: - Swift 3 and 4 names

/// The Swift 3 name of `RunLoop.Mode`.
public typealias RunLoopMode = Reactor.RunLoop.Mode

extension Reactor.RunLoop.Mode {
    /// `default`.
    public static var defaultRunLoopMode: Self { .default }

    /// `common`.
    public static var commonModes: Self { .common }

    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// `tracking`.
    public static var UITrackingRunLoopMode: Self { .tracking }

    /// `eventTracking`.
    public static var eventTrackingRunLoopMode: Self { .eventTracking }

    /// `modalPanel`.
    public static var modalPanelRunLoopMode: Self { .modalPanel }
}
