import Glibc
package import Reactor
package import SystemPackage
package import Testing

extension Stream {
    /// The errno value of ``streamError``, if that is an ``IOError``.
    package var streamErrno: Errno? { (streamError as? IOError)?.errno }
}

/// Expects that `body` throws `errno`, or an error of the library with it.
package func expectErrno<Result>(
    _ errno: Errno, sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Result
) {
    do {
        _ = try body()
        Issue.record("nothing was thrown in place of \(errno)", sourceLocation: sourceLocation)
    } catch {
        let thrown = error as? Errno ?? (error as? any ReactorError)?.errno
        #expect(thrown == errno, "\(error)", sourceLocation: sourceLocation)
    }
}

// Tests that expect no faults and no events leave the handlers out: either is an issue.

extension Listener {
    package convenience init(
        _ address: SocketAddress, options: Options = Options(),
        handler: @escaping (Listener, Connection) -> Void
    ) throws(IOError) {
        try self.init(address, options: options, handler: handler) { Issue.record($1) }
    }

    package convenience init(descriptor: FileDescriptor, handler: @escaping (Listener, Connection) -> Void)
        throws(IOError)
    {
        try self.init(descriptor: descriptor, handler: handler) { Issue.record($1) }
    }
}

extension DatagramSocket {
    package static func failOnEvent(_ socket: DatagramSocket, _ event: Event) {
        Issue.record("unexpected event: \(event)")
    }

    package convenience init(
        boundTo address: SocketAddress, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void
    ) throws(IOError) {
        try self.init(boundTo: address, options: options, receive: receive, events: Self.failOnEvent)
    }

    package convenience init(
        connectedTo peer: SocketAddress, boundTo address: SocketAddress? = nil, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void
    ) throws(IOError) {
        try self.init(
            connectedTo: peer, boundTo: address, options: options, receive: receive,
            events: Self.failOnEvent)
    }

    package convenience init(
        descriptor: FileDescriptor, options: Options = Options(),
        receive: @escaping (DatagramSocket, RawSpan, Metadata) -> Void
    ) throws(IOError) {
        try self.init(
            descriptor: descriptor, options: options, receive: receive, events: Self.failOnEvent)
    }
}

/// As `Reactor`'s, which the tests of the examples cannot use: they are another package.
package enum SystemCall {
    /// Makes a system call that returns -1 and sets `errno`; repeats it when a signal interrupts it.
    @discardableResult
    package static func make<Result: SignedInteger>(_ call: () -> Result) throws(Errno) -> Result {
        while true {
            let result = call()
            let code = errno  // before anything else can overwrite it
            guard result == -1 else { return result }
            guard code == EINTR else { throw Errno(rawValue: code) }
        }
    }
}

/// Sends back what it receives, and ends when its peer does.
package final class Echo: ConnectionDelegate {
    package init() {}

    package func connection(_ connection: Connection, handle event: Connection.Event) {
        switch event {
        case .hasBytesAvailable, .hasSpaceAvailable:
            try? connection.send(connection.receive(upTo: connection.writableCount))
        case .endEncountered: try? connection.sendEnd()
        default: break
        }
    }
}
