import CLibevent
import SystemPackage

/// Whoever serves a watch that became ready.
protocol WatchTarget: AnyObject {
    /// Serves `readiness`. Returns whether that has handled a source: whether anybody was called.
    func serve(_ readiness: Readiness, of watch: Watch) -> Bool
}

/// One descriptor's registration in one poller, and its place among those that wait to be served.
///
/// A handle: the target makes what it stands for, and must `free()` it before it ends itself. Not a class,
/// because every event goes through here, and a class would count references and check each access for
/// overlapping ones. There is nothing to find: one thread uses it, and no access calls user code.
///
/// Reading and writing are registered apart, so that changing one of them is one system call.
@safe
struct Watch {
    @unsafe struct Contents {
        unowned(unsafe) let target: any WatchTarget
        let poller: Poller
        var descriptor: CInt
        /// What was recorded and has not been served yet. While it is not empty the watch is in the queue.
        var readiness: Readiness = []
        var isQueued = false
        /// The round of serving in which it was queued.
        var round: UInt32 = 0
        /// The neighbours in the queue.
        var previous: Watch?
        var next: Watch?
        /// The next registration of the same target, in another poller.
        var sibling: Watch?
        var readEvent: OpaquePointer?
        var writeEvent: OpaquePointer?
    }

    let contents: UnsafeMutablePointer<Contents>

    init(_ descriptor: CInt, on poller: Poller, target: any WatchTarget) {
        unsafe contents = .allocate(capacity: 1)
        unsafe contents.initialize(to: Contents(target: target, poller: poller, descriptor: descriptor))
    }

    /// What libevent hands back.
    fileprivate init(_ context: UnsafeMutableRawPointer) {
        unsafe contents = context.assumingMemoryBound(to: Contents.self)
    }

    /// Ends the registration, drops what was recorded, and ends what this and all its copies stand for.
    func free() {
        freeEvents()
        unsafe contents.pointee.poller.ready.remove(self)
        unsafe contents.deinitialize(count: 1)
        unsafe contents.deallocate()
    }

    func isSame(as other: Watch) -> Bool { unsafe contents == other.contents }

    var target: any WatchTarget { unsafe contents.pointee.target }

    var poller: Poller { unsafe contents.pointee.poller }

    var sibling: Watch? {
        get { unsafe contents.pointee.sibling }
        nonmutating set { unsafe contents.pointee.sibling = newValue }
    }

    /// Takes another descriptor; what was watched is watched no longer.
    func adopt(_ descriptor: CInt) {
        freeEvents()
        unsafe contents.pointee.descriptor = descriptor
    }

    /// Makes `interest` what the kernel watches for. On an error nothing that was watched before is lost.
    func setInterest(_ interest: Readiness) throws(Errno) {
        try unsafe change(&contents.pointee.readEvent, to: interest.contains(.readable), EV_READ)
        try unsafe change(&contents.pointee.writeEvent, to: interest.contains(.writable), EV_WRITE)
    }

    private func change(_ event: inout OpaquePointer?, to wanted: Bool, _ kind: CInt) throws(Errno) {
        if !wanted {
            if let old = unsafe event { unsafe event_free(old) }
            unsafe event = nil
        } else if unsafe event == nil {
            let (poller, number) = unsafe (contents.pointee.poller, contents.pointee.descriptor)
            unsafe event = try unsafe poller.register(
                number, kind | EV_PERSIST, recordReadiness, context: UnsafeMutableRawPointer(contents))
        }
    }

    private func freeEvents() {
        if let event = unsafe contents.pointee.readEvent { unsafe event_free(event) }
        if let event = unsafe contents.pointee.writeEvent { unsafe event_free(event) }
        unsafe (contents.pointee.readEvent, contents.pointee.writeEvent) = (nil, nil)
    }
}

// MARK: - What is ready

extension Watch {
    /// Keeps `readiness` for the loop to serve.
    func record(_ readiness: Readiness) {
        unsafe contents.pointee.readiness.formUnion(readiness)
        unsafe contents.pointee.poller.ready.append(self)
    }

    /// Keeps only what the target still wants of what was recorded.
    func narrow(to interest: Readiness) { unsafe contents.pointee.readiness.formIntersection(interest) }

    /// Takes what was recorded, so that it is not served once more.
    func takeReadiness() -> Readiness {
        let readiness = unsafe contents.pointee.readiness
        unsafe contents.pointee.readiness = []
        return readiness
    }
}

/// libevent's callback: records, and leaves the serving to the loop.
private func recordReadiness(_: CInt, _ events: Int16, _ context: UnsafeMutableRawPointer?) {
    guard let context = unsafe context else { return }
    unsafe Watch(context).record(Readiness(libevent: events))
}
