import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What becomes of the messages of libevent, which other libraries of the process use too.
@Suite(.runLoop) struct LibeventMessageTests {
    @Test func `a descriptor that the kernel refuses is an error, and no message`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            try onAThread {
                try useLibevent()
                let file = try FileDescriptor.open("/proc/self/exe", .readOnly)
                let source = DescriptorSource(file, for: .readable) { _, _ in }
                expectErrno(.notPermitted) { try RunLoop.current.add(source, forMode: .default) }
            }
        }
        #expect(result?.standardErrorContent == [])
    }

    /// The leak checker would find the other code's event.
    @Test(.enabled(if: !isSanitized))
    func `a warning of libevent to other code reaches standard error`() async {
        let result = await #expect(processExitsWith: .success, observing: [\.standardErrorContent]) {
            try onAThread {
                try useLibevent()
                OtherLibrary.addRefusedEvent()
            }
        }
        #expect(result.message.hasPrefix("[warn] Epoll ADD"))
    }
}

/// Makes the calling thread's loop poll descriptors.
private func useLibevent() throws {
    let pipe = try TestPipe()
    let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
    try RunLoop.current.add(source, forMode: .default)
    RunLoop.current.poll()
    source.cancel()
}

/// A library that uses libevent as well.
private enum OtherLibrary {
    static func addRefusedEvent() {
        typealias MakeBase = @convention(c) () -> OpaquePointer?
        typealias MakeEvent =
            @convention(c) (OpaquePointer?, CInt, Int16, UnsafeMutableRawPointer?, UnsafeMutableRawPointer?)
            ->
            OpaquePointer?
        typealias Add = @convention(c) (OpaquePointer?, UnsafePointer<timeval>?) -> CInt
        let base = function("event_base_new", MakeBase.self)()
        let event = function("event_new", MakeEvent.self)(base, open("/proc/self/exe", O_RDONLY), 2, nil, nil)
        precondition(function("event_add", Add.self)(event, nil) == -1)
    }

    private static func function<Function>(_ name: String, _: Function.Type) -> Function {
        guard let address = dlsym(nil, name) else { fatalError("libevent lacks \(name)") }
        return unsafeBitCast(address, to: Function.self)
    }
}
