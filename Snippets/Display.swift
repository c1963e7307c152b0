import Glibc
import Reactor
import SystemPackage

// A display whose descriptor several threads read by turns, as Wayland's, in a run loop: wl_display_prepare_read(3),
// wl_display_read_events(3) or wl_display_cancel_read(3), wl_display_dispatch_pending(3).

/// Runs a display in the calling thread's loop.
final class DisplayGuest {
    private let display: Display
    private let source: DescriptorSource
    private let observer: RunLoop.Observer

    init(_ display: Display, in mode: RunLoop.Mode) throws {
        self.display = display
        // Announces a read before each wait, and reads, or takes it back, right after it: other threads wait for that.
        observer = RunLoop.Observer(for: [.beforeWaiting, .afterWaiting], order: .max) { _, activity in
            if activity == .beforeWaiting {
                while !display.prepareRead() { display.dispatchPending() }
                display.flush()
            } else if display.isReadable {
                display.readEvents()
            } else {
                display.cancelRead()
            }
        }
        // Ends the wait; the events have been read by then. A pass that only polls has neither observer, and reads here.
        source = DescriptorSource(display.descriptor, for: .readable) { _, _ in
            display.dispatchPending()
            guard display.isReadable, display.prepareRead() else { return }
            display.flush()
            display.readEvents()
            display.dispatchPending()
        }
        try RunLoop.current.add(source, forMode: mode)
        RunLoop.current.add(observer, forMode: mode)
    }

    func end() {
        observer.invalidate()
        source.cancel()
    }
}

/// Stands in for a `wl_display`: one byte is an event.
final class Display {
    let descriptor: FileDescriptor
    var handler: (UInt8) -> Void = { _ in }
    private var pending: [UInt8] = []

    init(_ descriptor: FileDescriptor) { self.descriptor = descriptor }

    /// Whether the socket has something to read.
    var isReadable: Bool {
        var request = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
        return poll(&request, 1, 0) > 0
    }

    /// False if there are events to dispatch first.
    func prepareRead() -> Bool { pending.isEmpty }

    /// Sends the requests that are buffered.
    func flush() {}

    func cancelRead() {}

    func readEvents() {
        let bytes = [UInt8](unsafeUninitializedCapacity: 64) { buffer, count in
            count = (try? descriptor.read(into: UnsafeMutableRawBufferPointer(buffer))) ?? 0
        }
        pending += bytes
    }

    func dispatchPending() {
        while !pending.isEmpty { handler(pending.removeFirst()) }
    }
}

let (readEnd, writeEnd) = try FileDescriptor.pipe()
let display = Display(readEnd)
display.handler = { event in
    print("event \(event)")
    if event == 3 { RunLoop.current.stop() }
}
let guest = try DisplayGuest(display, in: .default)
var count: UInt8 = 0
Timer.scheduled(every: .milliseconds(100)) { _ in
    count += 1
    _ = try? writeEnd.writeAll([count])
}
RunLoop.current.run(in: .default)
guest.end()
