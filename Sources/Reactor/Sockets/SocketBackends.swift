import Glibc
import SystemPackage

/// The half of a connection that is read.
final class SocketInput: InputBackend {
    let connection: SocketConnection

    init(_ connection: SocketConnection) { self.connection = connection }

    private var shared: SharedDescriptor { connection.shared }

    var descriptor: SharedDescriptor? { shared }

    var refusal: (any Error)? { connection.refusal }

    var readinessSource: ReadinessSource { .kernel }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        connection.open(.input, for: engine)
        return connection.secureInput ?? self
    }

    func progress() -> Availability { connection.progress }

    func waitUntilOpen() { connection.waitUntilOpen(.input) }

    func close() throws(Errno) { connection.close(.input) }

    func closeDescriptor() { connection.closeDescriptor(.input) }

    func isReady() -> Bool { connection.fault != nil || shared.isReady(for: CInt(POLLIN)) }

    /// A fault is reported after the bytes that arrived before it.
    var fault: Errno? { connection.faultForReading.flatMap { shared.hasUnreadBytes ? nil : $0 } }

    /// The kernel reports bytes.
    func prepare() -> Availability { fault.map { .failed($0) } ?? .waiting }

    func read(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer {
        while true {
            if let transfer = try readIfReady(into: &buffer) { return transfer }
            try connection.wait(for: CInt(POLLIN), .input)
            // Another thread has protected the connection meanwhile: the bytes are the handshake's.
            if let secure = connection.secureInput { return try secure.read(into: &buffer) }
        }
    }

    @inline(__always)
    func readIfReady(into buffer: inout MutableRawSpan) throws(Errno) -> Transfer? {
        if connection.isRefused { throw .protocolNotSupported }
        let count: Int?
        do throws(Errno) { count = try connection.receive(into: &buffer) } catch {
            connection.fail(error, on: .input)
            throw connection.fault ?? error
        }
        if let count, count > 0 {
            connection.noteActivity()
            if connection.faultForReading != nil, !shared.hasUnreadBytes { connection.notify(.input) }
            return Transfer(count: count)
        }
        if let fault = connection.fault { throw fault }
        return count == 0 ? Transfer(count: 0, isAtEnd: true) : nil
    }

    func property(_ key: Stream.PropertyKey) -> Any? { connection.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { connection.setProperty(value, key) }

    var failedOperation: IOError.Operation { connection.failedOperation(of: .input) }

    var subject: String { connection.subject }
}

/// The half of a connection that is written.
final class SocketOutput: KernelOutput {
    private let connection: SocketConnection

    init(_ connection: SocketConnection) { self.connection = connection }

    var target: SharedDescriptor { connection.shared }

    var refusal: (any Error)? { connection.refusal }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        connection.open(.output, for: engine)
        return connection.secureOutput ?? self
    }

    func progress() -> Availability { connection.progress }

    func waitUntilOpen() { connection.waitUntilOpen(.output) }

    func close() throws(Errno) { connection.close(.output) }

    func closeDescriptor() { connection.closeDescriptor(.output) }

    // MARK: Writing

    var buffer: WriteBuffer? { connection.bufferSlot.buffer }

    var fault: Errno? { connection.fault }

    func send(_ bytes: RawSpan) throws(Errno) -> Int {
        do throws(Errno) {
            let sent = try connection.send(bytes)
            connection.noteSent(sent, isBlocked: sent < bytes.byteCount)
            return sent
        } catch {
            connection.fail(error, on: .output)
            throw connection.fault ?? error
        }
    }

    func send(_ part: FilePart) -> Transfer? {
        guard fault == nil, connection.channel == nil, buffer?.isEmpty ?? true else { return nil }
        do throws(Errno) {
            let sent = try target.use { (number) throws(Errno) in
                try SystemCall.send(part.range, of: part.file, to: number)
            }
            guard sent != 0 else { return nil }
            connection.noteSent(sent ?? 0, isBlocked: sent == nil)
            return Transfer(count: sent ?? 0, room: sent == nil ? .full : .assumed)
        } catch {
            return nil
        }
    }

    func noteFull() { connection.noteSent(0, isBlocked: true) }

    func checkPeer() throws(Errno) {
        guard let error = target.socketError else { return }
        connection.fail(error, on: .output)
        throw connection.fault ?? error
    }

    func waitForRoom() throws(Errno) {
        try connection.wait(for: CInt(POLLOUT), .output)
        // Another thread has protected the connection meanwhile, and these bytes would not be.
        if connection.channel != nil { throw .canceled }
    }

    /// Shuts the socket down for writing, after the buffered bytes.
    func shutDown() throws(Errno) {
        if let fault { throw fault }
        try connection.shutDownSocket()
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { connection.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { connection.setProperty(value, key) }

    var failedOperation: IOError.Operation { connection.failedOperation(of: .output) }

    var subject: String { connection.subject }
}

extension SocketConnection {
    /// Sends the bytes of a write buffer, also after the connection was closed.
    var bufferTransport: WriteBuffer.Transport {
        WriteBuffer.Transport(
            send: { (socket, bytes) throws(Errno) in try socket.send(bytes) },
            sent: { [weak self] count, isBlocked in self?.noteSent(count, isBlocked: isBlocked) },
            failed: { [weak self] error in self?.fail(error, on: .output) },
            end: { socket, ending, buffer in
                switch ending {
                case .stop: socket.close()
                case .shutDown:
                    try? socket.shutDown()
                    GracefulClose.awaitAcknowledgement(
                        on: socket, stallTimeout: buffer.stallTimeout, engine: buffer.engine)
                case .close:
                    GracefulClose.begin(socket, stallTimeout: buffer.stallTimeout, engine: buffer.engine)
                }
            })
    }
}
