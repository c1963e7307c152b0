import Glibc
public import SystemPackage

/// Calls a closure on a run loop's thread while a descriptor is ready to be read or written.
///
/// Any descriptor that epoll(7) takes can be watched: sockets, pipes, FIFOs, terminals, eventfds, timerfds,
/// other epolls. Adding one that it does not take, such as a regular file's, throws `Errno.notPermitted`:
/// open such a file as a stream.
///
/// The handler is called once in a pass of the loop for as long as the descriptor stays ready, so it should
/// read or write, or change its ``interest``, or ``cancel()``. It is not called again within its own callout,
/// however deep the loop nests. The closure may capture what it likes: it is called and destroyed on the
/// loop's thread.
///
/// Use a non-blocking descriptor (`O_NONBLOCK`) and expect `Errno.wouldBlock` wherever other code may read or write it too:
/// readiness is what the kernel has said last, and another handler of the same pass may have used it up. Where an
/// activation ends before everything that was ready has been served, as `run(mode:before:)` does, the next one asks the
/// kernel again before it calls a handler for what was left over.
///
/// The source does not own the descriptor: cancel first, then close. A source and its loop belong to one
/// thread; every method traps on another.
///
/// ```swift
/// let source = DescriptorSource(.standardInput, for: .readable) { source, _ in
///     var byte: UInt8 = 0
///     let count = withUnsafeMutableBytes(of: &byte) { try? FileDescriptor.standardInput.read(into: $0) }
///     if count == nil || count == 0 { source.cancel() }
/// }
/// try RunLoop.current.add(source, forMode: .default)
/// ```
public final class DescriptorSource: EventSource {
    /// It does not change while a callout is under way, and one thread uses it: accesses need no check.
    @exclusivity(unchecked) private var callee: Callee

    /// The closure. It cannot be copied: a call borrows it, where it would retain a copy.
    private enum Callee: ~Copyable {
        case handler((DescriptorSource, Readiness) -> Void)
        case none
    }

    /// Makes a source; it does nothing until it is added to a loop.
    ///
    /// - Parameters:
    ///   - descriptor: An open descriptor, which must stay open until the source is cancelled.
    ///   - interest: What to watch for; empty means nothing yet.
    ///   - handler: Called with the source and what the descriptor is ready for. An error or a hang-up
    ///     counts as both.
    /// - Precondition: `descriptor` is not negative.
    public init(
        _ descriptor: FileDescriptor, for interest: Readiness,
        handler: @escaping (DescriptorSource, Readiness) -> Void
    ) {
        precondition(descriptor.rawValue >= 0, "a descriptor source needs an open descriptor")
        unsafe callee = .handler(handler)
        super.init(descriptor.rawValue, for: interest)
    }

    /// The descriptor that is watched.
    public var descriptor: FileDescriptor { FileDescriptor(rawValue: number) }

    /// What the descriptor is watched for.
    public override var interest: Readiness { watchedInterest }

    /// Changes what the descriptor is watched for, in all the source's modes; takes effect at once.
    ///
    /// - Throws: What epoll_ctl(2) does: `Errno.badFileDescriptor` if the descriptor has been closed,
    ///   `Errno.noMemory`, …
    public override func setInterest(_ interest: Readiness) throws(Errno) { try super.setInterest(interest) }

    /// Takes the source out of its loop for good and releases its closure. No callout begins after this.
    public func cancel() { end() }

    override func serve(_ readiness: Readiness) {
        switch unsafe callee {
        case .handler(let handler): handler(self, readiness)
        case .none: break
        }
    }

    override func ended() {
        var dropped = Callee.none
        unsafe swap(&dropped, &callee)
        _ = consume dropped
    }
}
