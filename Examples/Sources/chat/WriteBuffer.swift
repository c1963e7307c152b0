import Reactor

/// The bytes to send to one guest, first in, first out.
struct WriteBuffer {
    private var bytes: [UInt8] = []
    /// How many of the first bytes have been sent.
    private var sentCount = 0

    var count: Int { bytes.count - sentCount }

    var isEmpty: Bool { count == 0 }

    mutating func append(_ line: String) {
        bytes += line.utf8
        bytes.append(UInt8(ascii: "\n"))
    }

    /// Writes at most `limit` bytes and removes those that the stream accepted.
    ///
    /// - Returns: The number of bytes removed; zero if the write failed.
    mutating func write(to output: OutputStream, limit: Int) -> Int {
        let end = min(bytes.count, sentCount + limit)
        let written = max(0, unsafe output.write(bytes.span.extracting(sentCount..<end).bytes))
        sentCount += written
        // Moving the remaining bytes to the front takes linear time, so wait until half of them are sent.
        if sentCount * 2 >= bytes.count {
            bytes.removeFirst(sentCount)
            sentCount = 0
        }
        return written
    }
}
