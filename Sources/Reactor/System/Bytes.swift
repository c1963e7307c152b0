import Glibc

extension RawSpan {
    /// Calls `body`, which calls C, with the address and the number of the bytes.
    ///
    /// `@safe`: `body` marks what it does with the address.
    @safe
    @inline(__always)
    package func withAddress<Result>(_ body: (UnsafeRawPointer?, Int) -> Result) -> Result {
        unsafe withUnsafeBytes { unsafe body($0.baseAddress, $0.count) }
    }
}

extension MutableRawSpan {
    /// Calls `body`, which calls C, with the address and the number of the bytes.
    ///
    /// `@safe`: `body` marks what it does with the address.
    @safe
    @inline(__always)
    package mutating func withAddress<Result>(_ body: (UnsafeMutableRawPointer?, Int) -> Result) -> Result {
        unsafe withUnsafeMutableBytes { unsafe body($0.baseAddress, $0.count) }
    }

    /// Copies the first bytes of `source`, as many as fit, to the beginning, and returns how many.
    package mutating func copy(_ source: RawSpan) -> Int {
        source.extracting(first: byteCount).withAddress { start, count in
            guard count > 0 else { return 0 }
            withAddress { target, _ in _ = unsafe memcpy(target!, start!, count) }
            return count
        }
    }
}

extension [UInt8] {
    /// Calls `body` with the bytes, borrowed until it returns.
    package func withBytes<Result, Failure: Error>(
        _ body: (RawSpan) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try body(unsafe span.bytes)
    }

    /// Calls `body` with the bytes, which it may replace.
    package mutating func withMutableBytes<Result, Failure: Error>(
        _ body: (inout MutableRawSpan) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        var span = mutableSpan
        var bytes = unsafe span.mutableBytes
        return try body(&bytes)
    }

    package mutating func append(_ bytes: RawSpan) {
        bytes.withAddress { unsafe append(contentsOf: UnsafeRawBufferPointer(start: $0, count: $1)) }
    }

    /// Appends the bytes that `read` writes to memory of `size` bytes. Returns the result of `read`: the number of
    /// bytes, unless it is negative.
    package mutating func append<Failure: Error>(
        upTo size: Int, _ read: (inout MutableRawSpan) throws(Failure) -> Int
    ) throws(Failure) -> Int {
        var result = 0
        try append(addingCapacity: size) { (room) throws(Failure) in
            try unsafe room.withUnsafeMutableBufferPointer { (memory, count) throws(Failure) in
                var bytes = unsafe UnsafeMutableRawBufferPointer(start: memory.baseAddress, count: size)
                    .mutableBytes
                result = try read(&bytes)
                count = Swift.max(0, result)
            }
        }
        return result
    }
}
