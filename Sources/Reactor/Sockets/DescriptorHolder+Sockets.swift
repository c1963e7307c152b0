import CReactorLinux
import Glibc
import SystemPackage

extension DescriptorHolder {
    /// How many bytes the socket takes now (send(2)); none if it has no room.
    func send(_ bytes: UnsafeRawBufferPointer) throws(Errno) -> Int {
        let count = try use { (number) throws(Errno) in
            unsafe reactor_send(number, bytes.baseAddress, bytes.count)
        }
        if count >= 0 { return count }
        let error = Errno(rawValue: CInt(-count))
        if error == .resourceTemporarilyUnavailable { return 0 }
        throw error
    }

    /// How many bytes the socket has (recv(2)), 0 at its end; nil if there are none now.
    func receive(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Int? {
        let count = try use { (number) throws(Errno) in
            unsafe reactor_receive(number, buffer.baseAddress, buffer.count)
        }
        if count >= 0 { return count }
        let error = Errno(rawValue: CInt(-count))
        if error == .resourceTemporarilyUnavailable { return nil }
        throw error
    }

    /// Whether the kernel keeps bytes that have come (`FIONREAD`, tcp(7)).
    var hasUnreadBytes: Bool {
        let count = try? use { (number) throws(Errno) in
            var count: CInt = 0
            try SystemCall.make { unsafe ioctl(number, UInt(FIONREAD), &count) }
            return count
        }
        return (count ?? 0) > 0
    }

    /// The socket's error that no call has returned yet (`SO_ERROR`, socket(7)), which is cleared by asking.
    var socketError: Errno? {
        try? use { (number) throws(Errno) -> Errno in
            var (code, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
            try SystemCall.make { unsafe getsockopt(number, SOL_SOCKET, SO_ERROR, &code, &size) }
            guard code != 0 else { throw .notSupported }
            return Errno(rawValue: code)
        }
    }

    /// Tells the peer that nothing more will come (shutdown(2)).
    func shutDown() throws(Errno) {
        _ = try use { (number) throws(Errno) in
            try SystemCall.make { Glibc.shutdown(number, CInt(SHUT_WR)) }
        }
    }
}
