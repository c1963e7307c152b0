import Glibc
public import SystemPackage

extension OutputStream {
    /// Writes bytes of a file, as many as there is room for, waiting if there is none for the first; a task awaits
    /// ``writeAll(contentsOf:range:accepted:timeout:)`` instead.
    ///
    /// The kernel sends the bytes to a plain socket in non-blocking mode without copying them (sendfile(2)), 1 MiB at most
    /// in one call. For every other stream, and for a socket that TLS protects or whose write buffer holds bytes, they are
    /// copied, 64 KiB at most. Otherwise this is as ``write(_:maxLength:)``.
    ///
    /// What the kernel has not cached is read from the disk on the calling thread. A file that is changed meanwhile may
    /// arrive in parts of both versions.
    ///
    /// - Parameters:
    ///   - file: A descriptor of a file that can be read at any offset. Its own offset stays.
    ///   - range: The offsets of the bytes.
    /// - Returns: The number of accepted bytes, perhaps fewer than the range has; 0 and -1 as from ``write(_:maxLength:)``.
    /// - Throws: ``IOError`` with an error of pread(2), such as `Errno.illegalSeek` for a pipe, and `Errno.noData` if the file
    ///   has no byte at the range's beginning. The stream continues.
    /// - Precondition: The range does not begin below 0.
    @available(*, noasync, message: "await writeAll(contentsOf:range:timeout:)")
    public func write(contentsOf file: FileDescriptor, range: Range<Int>) throws(IOError) -> Int {
        let part = FilePart(file, range)
        guard !part.range.isEmpty else { return 0 }
        if let sent = engine.send(part), sent > 0 { return sent }
        let bytes = try attempt(.read, descriptorName(part.file), label: label) { () throws(Errno) in
            try part.read()
        }
        return bytes.withBytes { bytes in
            bytes.withAddress { unsafe write($0!.assumingMemoryBound(to: UInt8.self), maxLength: $1) }
        }
    }
}

/// The bytes of a file that one call sends.
struct FilePart {
    let file: CInt
    let range: Range<Int>

    /// Large enough that a call costs little beside them, and small enough that a fast reader does not occupy the thread:
    /// 1 MiB takes some 100 µs.
    private static var mostBytes: Int { 1 << 20 }

    /// As many as a hand-off reads at once.
    private static var mostCopiedBytes: Int { 65_536 }

    init(_ file: FileDescriptor, _ range: Range<Int>) {
        require(
            range.lowerBound >= 0,
            "The range of a file begins at \(range.lowerBound): it must not be negative.")
        self.file = file.rawValue
        self.range = range.prefix(Self.mostBytes)
    }

    /// Reads the first of the bytes, at least one.
    func read() throws(Errno) -> [UInt8] {
        var bytes: [UInt8] = []
        var failure: Errno?
        let count = bytes.append(upTo: min(range.count, Self.mostCopiedBytes)) { buffer in
            do throws(Errno) { return try SystemCall.read(file, at: range.lowerBound, into: &buffer) } catch {
                failure = error
                return 0
            }
        }
        guard count > 0 else { throw failure ?? .noData }
        return bytes
    }
}

extension StreamEngine {
    /// Has the kernel send bytes of a file.
    ///
    /// - Returns: How many it has taken, 0 if it has no room; nil if they have to be copied, and written, instead.
    func send(_ part: FilePart) -> Int? {
        let backend = state.withLock { $0.machine.isOpen && !$0.isSubclassed ? $0.backend : nil }
        guard let transfer = backend?.send(part) else { return nil }
        return finish(transfer, of: part.range.count).count
    }

    /// Writes bytes of a file without waiting for room.
    ///
    /// - Returns: The number of accepted bytes; nil if an event will report room.
    func writeIfReady(_ part: FilePart) throws -> Int? {
        if let sent = send(part) { return sent > 0 ? sent : nil }
        let bytes = try attempt(.read, descriptorName(part.file)) { () throws(Errno) in
            try part.read()
        }
        return try bytes.withBytes { try writeIfReady($0) }
    }
}
