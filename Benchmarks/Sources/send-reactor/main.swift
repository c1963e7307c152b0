// send-reactor KIND MIB  Sends MIB mebibytes of a file in the page cache over TCP on loopback: cpu-ms/GB MB/s calls
//
// raw: sendfile(2) on a blocking socket; copy: a stream's delegate reads 64 KiB and writes them; file: it writes the file's
// contents. The receiver, a thread, discards the bytes in the kernel.

import Glibc
import Measuring
import Reactor
import Synchronization
import SystemPackage

let kind = CommandLine.arguments[1]
let byteCount = numbers(from: 2).0 << 20

/// The bytes of the file, which is sent again and again.
let fileSize = 64 << 20
let file = try FileDescriptor.open(
    "/tmp/send-reactor-\(getpid())", .readWrite, options: [.create, .exclusiveCreate],
    permissions: .ownerReadWrite)
unlink("/tmp/send-reactor-\(getpid())")
let block = [UInt8](repeating: 120, count: 1 << 20)
for _ in 0..<fileSize / block.count { try file.writeAll(block) }

func connectedPair() throws -> (sender: FileDescriptor, receiver: FileDescriptor) {
    let numbers = (
        socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0), socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
    )
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let receiver = withUnsafeMutableBytes(of: &address) { bytes in
        let pointer = bytes.baseAddress!.assumingMemoryBound(to: sockaddr.self)
        guard bind(numbers.0, pointer, size) == 0, listen(numbers.0, 1) == 0 else { return CInt(-1) }
        getsockname(numbers.0, pointer, &size)
        guard connect(numbers.1, pointer, size) == 0 else { return -1 }
        return accept(numbers.0, nil, nil)
    }
    guard receiver >= 0 else { throw Errno(rawValue: errno) }
    return (FileDescriptor(rawValue: numbers.1), FileDescriptor(rawValue: receiver))
}

let (sender, receiver) = try connectedPair()
let begin = (wall: now(), processor: processorTime())
let calls = Atomic(0)

/// Discards all bytes, and ends the program after the last.
func receive(_: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    var rest = byteCount
    while rest > 0, case let count = recv(receiver.rawValue, nil, min(rest, 1 << 20), CInt(MSG_TRUNC)),
        count > 0
    {
        rest -= count
    }
    let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
    report([
        fixed(Double(processor) * 1000 / Double(byteCount)), fixed(Double(byteCount) * 1000 / Double(wall)),
        "\(calls.load(ordering: .relaxed))",
    ])
}

/// The part of the file to send at `offset` of all bytes.
func range(at offset: Int) -> Range<Int> {
    let start = offset % fileSize
    return start..<min(fileSize, start + byteCount - offset)
}

final class Sender: StreamDelegate {
    private var sent = 0
    private let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: 65_536)

    func stream(_ stream: Stream, handle event: Stream.Event) {
        guard event == .hasSpaceAvailable, sent < byteCount, let output = stream as? OutputStream else {
            return
        }
        calls.add(1, ordering: .relaxed)
        let range = range(at: sent)
        if kind == "file" {
            sent += try! output.write(contentsOf: file, range: range)
        } else {
            let count = pread(file.rawValue, buffer, min(range.count, 65_536), off_t(range.lowerBound))
            sent += output.write(buffer, maxLength: count)
        }
    }
}

var thread = pthread_t()
pthread_create(&thread, nil, receive, nil)
if kind == "raw" {
    var sent = 0
    while sent < byteCount {
        let range = range(at: sent)
        var offset = off_t(range.lowerBound)
        sent += sendfile(sender.rawValue, file.rawValue, &offset, min(range.count, 1 << 20))
        calls.add(1, ordering: .relaxed)
    }
    pthread_join(thread, nil)
}
_ = fcntl(sender.rawValue, F_SETFL, O_NONBLOCK)
let (input, output) = Connection(descriptor: sender, closeWhenDone: false).streams
let delegate = Sender()
output.delegate = delegate
output.schedule(in: .main, forMode: .default)
output.open()
while true { RunLoop.main.run(in: .default) }
