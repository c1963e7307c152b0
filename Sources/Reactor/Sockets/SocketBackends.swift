import Glibc
import SystemPackage

/// The half of a socket that is read.
final class SocketInput: InputBackend {
    let channel: SocketChannel

    init(_ channel: SocketChannel) { self.channel = channel }

    private var holder: DescriptorHolder { channel.holder }

    var descriptor: DescriptorHolder? { holder }

    var refusal: (any Error)? { channel.refusal }

    var readinessSource: ReadinessSource { .kernel }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        channel.open(.input, for: engine)
        return self
    }

    func progress() -> Availability { channel.progress }

    func waitUntilOpen() { channel.waitUntilOpen(.input) }

    func close() throws(Errno) { channel.close(.input) }

    func isReady() -> Bool { channel.fault != nil || holder.isReady(for: CInt(POLLIN)) }

    /// The kernel tells of bytes; a fault lies behind those that came before it.
    func prepare() -> Availability {
        guard let fault = channel.faultForReading, !holder.hasUnreadBytes else { return .waiting }
        return .failed(fault)
    }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        while true {
            if channel.isRefused { throw .protocolNotSupported }
            let count: Int?
            do throws(Errno) { count = try unsafe channel.receive(into: buffer) } catch {
                channel.fail(error, on: .input)
                throw channel.fault ?? error
            }
            if let count, count > 0 {
                channel.noteActivity()
                if channel.faultForReading != nil, !holder.hasUnreadBytes { channel.notify(.input) }
                return Transfer(count: count)
            }
            if let fault = channel.fault { throw fault }
            if count == 0 { return Transfer(count: 0, isAtEnd: true) }
            try channel.wait(for: CInt(POLLIN), .input)
        }
    }

    func property(_ key: Stream.PropertyKey) -> Any? { channel.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { channel.setProperty(value, key) }
}

/// The half of a socket that is written.
final class SocketOutput: KernelOutput {
    private let channel: SocketChannel

    init(_ channel: SocketChannel) { self.channel = channel }

    var target: DescriptorHolder { channel.holder }

    var refusal: (any Error)? { channel.refusal }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        channel.open(.output, for: engine)
        return self
    }

    func progress() -> Availability { channel.progress }

    func waitUntilOpen() { channel.waitUntilOpen(.output) }

    func close() throws(Errno) { channel.close(.output) }

    // MARK: Writing

    var buffer: WriteBuffer? { channel.bufferSlot.buffer }

    var fault: Errno? { channel.fault }

    func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        do throws(Errno) {
            let sent = try unsafe channel.send(bytes)
            channel.noteSent(sent, isBlocked: sent < bytes.count)
            return sent
        } catch {
            channel.fail(error, on: .output)
            throw channel.fault ?? error
        }
    }

    func noteFull() { channel.noteSent(0, isBlocked: true) }

    func checkPeer() throws(Errno) {
        guard let error = target.socketError else { return }
        channel.fail(error, on: .output)
        throw channel.fault ?? error
    }

    func waitForRoom() throws(Errno) { try channel.wait(for: CInt(POLLOUT), .output) }

    /// Sends what is buffered, and then tells the peer that nothing more will come.
    func shutDown() throws(Errno) {
        if let fault { throw fault }
        guard buffer?.finish(.shutDown) != true else { return }
        try channel.holder.shutDown()
        channel.awaitAcknowledgement()
    }

    // MARK: Properties

    func property(_ key: Stream.PropertyKey) -> Any? { channel.property(key) }

    func setProperty(_ value: Any?, _ key: Stream.PropertyKey) -> Bool { channel.setProperty(value, key) }
}

extension SocketChannel {
    /// How the bytes of a write buffer are sent, also when this is closed.
    var bufferTransport: WriteBuffer.Transport {
        unsafe WriteBuffer.Transport(
            send: { (socket, bytes) throws(Errno) in try unsafe socket.send(bytes) },
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
