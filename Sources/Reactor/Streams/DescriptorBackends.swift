import CReactorLinux
import Glibc
import SystemPackage

/// A descriptor that the kernel tells of, to be read.
///
/// Blocking and non-blocking ones are read alike: one that would block is waited for, as `read` promises.
final class DescriptorInput: InputBackend {
    private let holder: DescriptorHolder

    init(_ holder: DescriptorHolder) { self.holder = holder }

    var descriptor: DescriptorHolder? { holder }

    func close() throws(Errno) { holder.close() }

    func isReady() -> Bool { holder.isReady(for: CInt(POLLIN)) }

    /// The kernel tells.
    func prepare() -> Prospect { .waiting }

    func read(into buffer: UnsafeMutableRawBufferPointer) throws(Errno) -> Transfer {
        while true {
            do throws(Errno) {
                let count = try holder.use { (number) throws(Errno) in
                    try SystemCall.make { unsafe Glibc.read(number, buffer.baseAddress, buffer.count) }
                }
                if count > 0 || !holder.awaitsFirstWriter {
                    return Transfer(count: count, isAtEnd: count == 0)
                }
            } catch {
                guard error == .resourceTemporarilyUnavailable else { throw error }
            }
            try holder.wait(for: CInt(POLLIN))
        }
    }
}

/// A descriptor that the kernel tells of, to be written.
final class DescriptorOutput: OutputBackend {
    private let holder: DescriptorHolder
    /// The most that one write on a loop's thread may try, so that it does not block.
    private let mostBytes: Int

    init(_ holder: DescriptorHolder) {
        self.holder = holder
        let flags = fcntl(holder.number, F_GETFL)
        // A blocking descriptor blocks until all is written, unless it is no more than a ready pipe is sure
        // to take.
        mostBytes = flags >= 0 && flags & O_NONBLOCK != 0 ? .max : Int(PIPE_BUF)
    }

    var descriptor: DescriptorHolder? { holder }

    func close() throws(Errno) { holder.close() }

    func isReady() -> Bool { holder.isReady(for: CInt(POLLOUT)) }

    /// The kernel tells.
    func prepare() -> Prospect { .waiting }

    func write(_ bytes: UnsafeRawBufferPointer, isScheduled: Bool) throws(Errno) -> Transfer {
        let count = isScheduled ? min(bytes.count, mostBytes) : bytes.count
        while true {
            do throws(Errno) {
                let written = try holder.use { (number) throws(Errno) in
                    try SystemCall.make { unsafe reactor_write(number, bytes.baseAddress, count) }
                }
                return Transfer(count: written)
            } catch {
                guard error == .resourceTemporarilyUnavailable else { throw error }
            }
            try holder.wait(for: CInt(POLLOUT))
        }
    }
}
