import CReactorLinux
import Glibc
package import SystemPackage

package enum SystemCall {
    /// Makes a system call that returns -1 and sets `errno`; repeats it when a signal interrupts it.
    @discardableResult
    package static func make<Result: SignedInteger>(_ call: () -> Result) throws(Errno) -> Result {
        while true {
            let result = call()
            guard result == -1 else { return result }
            let code = errno  // before anything else can overwrite it
            guard code == EINTR else { throw Errno(rawValue: code) }
        }
    }

    /// Makes a system call with a path.
    ///
    /// `@safe`: `call` gets a valid pointer, and marks what it does with it.
    @safe
    @discardableResult
    package static func make(
        _ path: FilePath, _ call: (UnsafePointer<CInterop.PlatformChar>) -> CInt
    ) throws(Errno) -> CInt {
        try make { unsafe path.withPlatformString { unsafe call($0) } }
    }

    /// `O_PATH`, which Glibc's module lacks.
    package static var pathOnly: CInt { reactor_o_path }

    /// open(2), with `O_CLOEXEC`. `mode` is that of a file that this creates, less the umask.
    package static func open(_ path: FilePath, _ flags: CInt, mode: UInt32 = 0o666) throws(Errno) -> CInt {
        try make(path) { unsafe Glibc.open($0, flags | O_CLOEXEC, mode) }
    }

    /// fcntl(2) with `F_DUPFD_CLOEXEC`: another descriptor of the same open file.
    package static func duplicate(_ descriptor: CInt) throws(Errno) -> CInt {
        let copy = try make { fcntl(descriptor, F_DUPFD_CLOEXEC, 0) }
        currentTimeSource?.network?.hasDuplicated(copy)
        return copy
    }

    /// unlink(2).
    package static func unlink(_ path: FilePath) throws(Errno) {
        try make(path) { unsafe Glibc.unlink($0) }
    }

    /// epoll_ctl(2), which adds `descriptor` or changes its events.
    package static func control(
        _ epoll: CInt, _ operation: CInt, _ descriptor: CInt, for events: UInt32
    ) throws(Errno) {
        var event = unsafe epoll_event(events: events, data: epoll_data_t())
        try make { unsafe epoll_ctl(epoll, operation, descriptor, &event) }
    }

    /// Polls a descriptor without waiting: returns those of `events` that it is ready for, and errors.
    package static func poll(_ descriptor: CInt, for events: CInt) throws(Errno) -> CInt {
        var requests: [1 of pollfd] = [pollfd(fd: descriptor, events: Int16(events), revents: 0)]
        try poll(&requests, timeout: 0)
        return CInt(requests[0].revents)
    }

    /// Whether a descriptor is readable now.
    package static func isReadable(_ descriptor: CInt) -> Bool {
        (try? poll(descriptor, for: CInt(POLLIN))).map { $0 != 0 } ?? false
    }

    /// poll(2), with a timeout in milliseconds; -1 for none.
    static func poll<let count: Int>(_ requests: inout [count of pollfd], timeout: CInt) throws(Errno) {
        var span = requests.mutableSpan
        try make {
            unsafe span.withUnsafeMutableBufferPointer {
                unsafe Glibc.poll($0.baseAddress, nfds_t(count), timeout)
            }
        }
    }
}

// MARK: - Calls that move bytes

extension SystemCall {
    /// read(2).
    package static func read(_ descriptor: CInt, into buffer: inout MutableRawSpan) throws(Errno) -> Int {
        try make { buffer.withAddress { unsafe Glibc.read(descriptor, $0, $1) } }
    }

    /// A read(2) of the number that an eventfd(2) or a timerfd(2) has counted.
    static func readCount(_ descriptor: CInt) throws(Errno) -> UInt64 {
        var count: UInt64 = 0
        try make { unsafe Glibc.read(descriptor, &count, MemoryLayout<UInt64>.size) }
        return count
    }

    /// A read(2) that does not block (preadv2(2), `RWF_NOWAIT`): nil if no bytes are available. Throws `EOPNOTSUPP` if the
    /// kernel has none for the descriptor.
    @inline(__always)
    static func readNow(_ descriptor: CInt, into buffer: inout MutableRawSpan) throws(Errno) -> Int? {
        try count(buffer.withAddress { unsafe reactor_read_now(descriptor, $0, $1) })
    }

    /// getdents64(2).
    static func readNames(_ folder: CInt, into buffer: inout MutableRawSpan) throws(Errno) -> Int {
        try make { buffer.withAddress { unsafe getdents64(folder, $0, $1) } }
    }

    /// pread(2).
    package static func read(
        _ descriptor: CInt, at offset: Int, into buffer: inout MutableRawSpan
    ) throws(Errno) -> Int {
        try make { buffer.withAddress { unsafe pread(descriptor, $0, $1, offset) } }
    }

    /// A write(2) that raises no signal.
    static func write(_ bytes: RawSpan, to descriptor: CInt) throws(Errno) -> Int {
        try make { bytes.withAddress { unsafe reactor_write(descriptor, $0, $1) } }
    }

    /// Writes `text` to standard error, as far as that accepts it. Raises no signal.
    static func writeToStandardError(_ text: String) {
        Array(text.utf8).withBytes { bytes in
            var rest = bytes
            while !rest.isEmpty, let count = try? write(rest, to: STDERR_FILENO), count > 0 {
                rest = rest.extracting(droppingFirst: count)
            }
        }
    }

    /// Receives pending bytes (recv(2)): 0 at the end, nil if none are pending.
    @inline(__always)
    package static func receive(from socket: CInt, into buffer: inout MutableRawSpan) throws(Errno) -> Int? {
        try count(
            buffer.withAddress { unsafe reactor_receive(socket, $0, $1) })
    }

    /// Sends as many bytes as the socket has room for (send(2)); returns 0 if it has none.
    @inline(__always)
    package static func send(_ bytes: RawSpan, to socket: CInt) throws(Errno) -> Int {
        try count(bytes.withAddress { unsafe reactor_send(socket, $0, $1) }) ?? 0
    }

    /// Sends as many bytes of a file as the socket has room for, without copying them (sendfile(2)): 0 at the file's end, nil
    /// if there is no room.
    static func send(_ range: Range<Int>, of file: CInt, to socket: CInt) throws(Errno) -> Int? {
        try count(reactor_send_file(socket, file, range.lowerBound, range.count))
    }

    /// The result of a call that returns a negative error number; nil if the call would have blocked.
    @inline(__always)
    private static func count(_ result: Int) throws(Errno) -> Int? {
        if result >= 0 { return result }
        let error = Errno(rawValue: CInt(-result))
        if error == .resourceTemporarilyUnavailable { return nil }
        throw error
    }
}
