import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// A descriptor number that belongs to another file by the time its loop learns of it.
@Suite(.runLoop) struct DescriptorReuseTests {
    @Test func `a stream that reuses a just-closed descriptor number receives its events`() throws {
        let (first, second) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
        let (thread, isHeld, mayGoOn) = (
            try RunLoopThread(name: "served"), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0)
        )
        nonisolated(unsafe) let (former, latter) = (Recorder(), Recorder())
        let (early, late) = (
            InputStream(descriptor: first.readEnd), InputStream(descriptor: first.readEnd)
        )
        early.delegate = former
        early.schedule(in: thread.runLoop, forMode: .default)
        early.open()
        waitUntil { thread.runLoop.performAndWait { former.events == [.openCompleted] } }
        thread.runLoop.perform {
            isHeld.signal()
            mayGoOn.wait()
        }
        isHeld.wait()
        late.delegate = latter
        late.schedule(in: thread.runLoop, forMode: .default)
        early.close()
        #expect(dup2(second.readEnd.rawValue, first.readEnd.rawValue) == first.readEnd.rawValue)
        late.open()
        mayGoOn.signal()
        try second.writeEnd.writeAll([2])
        waitUntil { thread.runLoop.performAndWait { latter.count(.hasBytesAvailable) == 1 } }
        late.close()
        thread.stop()
        for end in [first.readEnd, first.writeEnd, second.readEnd, second.writeEnd] { try end.close() }
    }
}
