import Glibc
public import SystemPackage

/// Calls a closure on a run loop's thread while a descriptor is ready to be read or written, or its peer has ended.
///
/// Any descriptor that epoll(7) supports can be watched: sockets, pipes, FIFOs, terminals, eventfds, timerfds, other epolls.
/// Adding one that it does not support, such as a regular file's, throws ``IOError`` with `Errno.notPermitted`: open such a
/// file as a stream.
///
/// The handler is called once in each pass of the loop while the descriptor is ready, so it should read or write, or call
/// ``setInterest(_:)`` or ``EventSource/cancel()``. It is not called again before it has returned, however deep activations
/// nest. It is called and destroyed on the loop's thread, so it may capture what is not `Sendable`.
///
/// Use a non-blocking descriptor (`O_NONBLOCK`), and expect `Errno.wouldBlock` if other code may read or write it too:
/// readiness is what the kernel has reported last, and another handler of the same pass may have consumed it. If an
/// activation ends before everything that was ready has been served, as with `run(mode:before:)`, the next one asks the
/// kernel again before it calls the handlers that are left.
///
/// In async code, use ``RunLoop/readiness(of:for:inModes:)``. For ``Readiness/peerEnded`` the loop needs one descriptor more in
/// each mode.
///
/// The source does not own the descriptor: cancel the source first, then close the descriptor. A source and its loop belong
/// to one thread; while it is in a loop, every method traps on another.
///
/// ```swift
/// let source = DescriptorSource(.standardInput, for: .readable) { source, _ in
///     var byte: UInt8 = 0
///     do {
///         let count = try withUnsafeMutableBytes(of: &byte) { try FileDescriptor.standardInput.read(into: $0) }
///         if count == 0 { source.cancel() }
///     } catch Errno.wouldBlock {
///     } catch { source.cancel() }
/// }
/// try RunLoop.current.add(source, forMode: .default)
/// ```
public final class DescriptorSource: EventSource {
    /// Proof: it does not change while the handler is called (see ``ended()``), and one thread uses it.
    @exclusivity(unchecked) private var handler: Handler

    /// The closure. It is not copyable, so that a call borrows it instead of retaining a copy.
    private enum Handler: ~Copyable {
        case closure((DescriptorSource, Readiness) -> Void)
        case none
    }

    /// Creates a source; it does nothing until it is added to a loop.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor, which must stay open until the source is cancelled.
    ///   - interest: What to watch for; empty for nothing yet.
    ///   - label: See ``EventSource/label``.
    ///   - handler: Called with the source and what the descriptor is ready for. An error or a broken connection counts as all
    ///     that it is watched for.
    ///   - file: The file of the call, for reports.
    ///   - line: Its line.
    /// - Precondition: `descriptor` is not negative.
    public init(
        _ descriptor: FileDescriptor, for interest: Readiness, label: String? = nil,
        file: StaticString = #fileID, line: UInt = #line,
        handler: @escaping (DescriptorSource, Readiness) -> Void
    ) {
        require(
            descriptor.rawValue >= 0, "DescriptorSource needs an open descriptor, not \(descriptor.rawValue)."
        )
        unsafe self.handler = .closure(handler)
        super.init(descriptor.rawValue, for: interest, name: .make(label, file, line))
    }

    /// The descriptor that is watched.
    public var descriptor: FileDescriptor { FileDescriptor(rawValue: number) }

    /// Changes what the descriptor is watched for in all the source's modes, with immediate effect.
    ///
    /// - Throws: ``IOError`` with what epoll_ctl(2) does: `Errno.badFileDescriptor` if the descriptor has been closed,
    ///   `Errno.noMemory`, …
    public func setInterest(_ interest: Readiness) throws(IOError) {
        try attempt(.watch, subject, label: label) { () throws(Errno) in try changeInterest(interest) }
    }

    override func serve(_ readiness: Readiness) -> Bool {
        switch unsafe handler {
        case .closure(let closure): closure(self, readiness)
        case .none: break
        }
        return true
    }

    override var kind: String { "descriptor source" }

    override func ended() {
        var handler = Handler.none
        unsafe swap(&handler, &self.handler)
        _ = consume handler
    }
}
