import Glibc
import SystemPackage

/// The half of a socket that is read.
final class SocketInput: InputBackend {
    let channel: SocketChannel

    init(_ channel: SocketChannel) { self.channel = channel }

    private var holder: DescriptorHolder { channel.holder }

    var descriptor: DescriptorHolder? { holder }

    var refusal: (any Error)? { channel.refusal }

    var readying: Readying { .kernel }

    func open(for engine: StreamEngine) throws(Errno) -> any StreamBackend {
        channel.open(.input, for: engine)
        return self
    }

    func progress() -> Prospect { channel.progress }

    func waitUntilOpen() { channel.waitUntilOpen(.input) }

    func close() throws(Errno) { channel.close(.input) }

    func isReady() -> Bool { channel.fault != nil || holder.isReady(for: CInt(POLLIN)) }

    /// The kernel tells of bytes; a fault lies behind those that came before it.
    func prepare() -> Prospect {
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
