import CLibevent
import Glibc
import SystemPackage

/// One descriptor's registration in one poller, and its place among those that wait to be served.
///
/// A handle: whoever makes it frees it, before the poller and before what it stands for end. Not a class,
/// because every event goes through here, and a class would count references and check each access for
/// overlapping ones. There is nothing to find: one thread uses it, and no access calls user code.
///
/// Reading and writing are registered apart, so that changing one of them is one system call. Most descriptors
/// are watched for one of the two: where that is known from the start, its event is in the same piece of memory.
@safe
struct Watch {
    @unsafe struct Contents {
        let poller: Poller
        /// What its maker knows it by.
        let context: UnsafeRawPointer
        var descriptor: CInt
        /// The round of serving in which it was queued.
        var round: UInt32 = 0
        /// What was recorded and has not been served yet. While it is not empty the watch is in the queue.
        var readiness: Readiness = []
        var isQueued = false
        let hasRoom: Bool
        /// Whether what was recorded is confirmed by the kernel when it is served late. A maker that asks the kernel
        /// itself has no need of that.
        let isConfirmed: Bool
        /// The neighbours in the queue.
        var previous: Watch?
        var next: Watch?
        /// The next registration of the same descriptor, in another poller.
        var sibling: Watch?
        var readEvent: OpaquePointer?
        var writeEvent: OpaquePointer?
    }

    /// Room for an event follows, or none.
    let contents: UnsafeMutablePointer<Contents>

    init(
        _ descriptor: CInt, on poller: Poller, context: UnsafeRawPointer, hasRoom: Bool, isConfirmed: Bool
    ) {
        let size = unsafe MemoryLayout<Contents>.stride + (hasRoom ? Poller.eventSize : 0)
        let alignment = unsafe MemoryLayout<Contents>.alignment
        let memory = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: alignment)
        unsafe contents = memory.bindMemory(to: Contents.self, capacity: 1)
        unsafe contents.initialize(
            to: Contents(
                poller: poller, context: context, descriptor: descriptor, hasRoom: hasRoom,
                isConfirmed: isConfirmed))
    }

    /// What libevent hands back.
    fileprivate init(_ context: UnsafeMutableRawPointer) {
        unsafe contents = context.assumingMemoryBound(to: Contents.self)
    }

    /// Ends the registration, drops what was recorded, and ends what this and all its copies stand for.
    func free() {
        endEvents()
        poller.ready.remove(self)
        unsafe contents.deinitialize(count: 1)
        unsafe contents.deallocate()
    }

    func isSame(as other: Watch) -> Bool { unsafe contents == other.contents }

    var poller: Poller { unsafe contents.pointee.poller }

    @unsafe var context: UnsafeRawPointer { unsafe contents.pointee.context }

    var sibling: Watch? {
        get { unsafe contents.pointee.sibling }
        nonmutating set { unsafe contents.pointee.sibling = newValue }
    }
}

// MARK: - What is watched

extension Watch {
    /// Takes another descriptor; what was watched is watched no longer.
    func adopt(_ descriptor: CInt) {
        endEvents()
        unsafe contents.pointee.descriptor = descriptor
    }

    /// Makes `interest` what the kernel watches for. On an error nothing that was watched before is lost.
    func setInterest(_ interest: Readiness) throws(Errno) {
        unsafe contents.pointee.readEvent = try unsafe change(
            contents.pointee.readEvent, EV_READ, isWanted: interest.contains(.readable))
        unsafe contents.pointee.writeEvent = try unsafe change(
            contents.pointee.writeEvent, EV_WRITE, isWanted: interest.contains(.writable))
    }

    private func change(_ event: OpaquePointer?, _ kind: CInt, isWanted: Bool) throws(Errno) -> OpaquePointer?
    {
        guard isWanted else {
            unsafe end(event)
            return nil
        }
        if let event = unsafe event { return unsafe event }
        return try unsafe poller.register(
            contents.pointee.descriptor, kind, recordReadiness, context: contents, in: freeRoom)
    }

    private func endEvents() {
        unsafe end(contents.pointee.readEvent)
        unsafe end(contents.pointee.writeEvent)
        unsafe (contents.pointee.readEvent, contents.pointee.writeEvent) = (nil, nil)
    }

    private func end(_ event: OpaquePointer?) {
        guard let event = unsafe event, !poller.isOfParent else { return }
        guard unsafe event == room else { return unsafe event_free(event) }
        unsafe event_del(event)
        unsafe event_debug_unassign(event)
    }

    private var room: OpaquePointer { unsafe OpaquePointer(contents + 1) }

    private var freeRoom: OpaquePointer? {
        let isTaken = unsafe contents.pointee.readEvent == room || contents.pointee.writeEvent == room
        return unsafe contents.pointee.hasRoom && !isTaken ? room : nil
    }
}

// MARK: - What is ready

extension Watch {
    /// Keeps `readiness` for the loop to serve.
    @inline(__always)
    func record(_ readiness: Readiness) {
        unsafe contents.pointee.readiness.formUnion(readiness)
        poller.ready.append(self)
    }

    /// Keeps only what is still wanted of what was recorded.
    func narrow(to interest: Readiness) { unsafe contents.pointee.readiness.formIntersection(interest) }

    /// Drops what the kernel had told and does not say any more, of a watch that wants to know.
    @inline(never)
    func confirm() {
        guard unsafe contents.pointee.isConfirmed, unsafe contents.pointee.readiness != .raised else {
            return
        }
        var state = unsafe pollfd(
            fd: contents.pointee.descriptor, events: Int16(POLLIN | POLLOUT), revents: 0)
        guard unsafe Glibc.poll(&state, 1, 0) >= 0 else { return }
        narrow(to: Readiness(poll: state.revents).union(.raised))
    }

    /// Takes what was recorded, so that it is not served once more.
    func takeReadiness() -> Readiness {
        let readiness = unsafe contents.pointee.readiness
        unsafe contents.pointee.readiness = []
        return readiness
    }
}

/// libevent's callback: records, and leaves the serving to the loop.
@inline(__always)
private func recordReadiness(_: CInt, _ events: Int16, _ context: UnsafeMutableRawPointer?) {
    guard let context = unsafe context else { return }
    unsafe Watch(context).record(Readiness(libevent: events))
}
