import Glibc
import Reactor
import SystemPackage

/// Two ends of something that carries bytes: write to one, and the other is readable.
enum Channel: CaseIterable {
    case pipe, socketPair, datagrams, fifo, terminal

    func open() throws -> (reader: FileDescriptor, writer: FileDescriptor) {
        var (reader, writer): (CInt, CInt) = (-1, -1)
        switch self {
        case .pipe:
            let pipe = try FileDescriptor.pipe()
            return (pipe.readEnd, pipe.writeEnd)
        case .socketPair, .datagrams:
            let type = CInt(self == .socketPair ? SOCK_STREAM.rawValue : SOCK_DGRAM.rawValue)
            var numbers: [CInt] = [-1, -1]
            try SystemCall.make { socketpair(AF_UNIX, type, 0, &numbers) }
            (reader, writer) = (numbers[0], numbers[1])
        case .fifo:
            let folder = TemporaryFolder()
            let path = folder.fifo()
            let reader = try FileDescriptor.open(path, .readOnly, options: .nonBlocking)
            return (reader, try FileDescriptor.open(path, .writeOnly))
        case .terminal: try SystemCall.make { openpty(&reader, &writer, nil, nil, nil) }
        }
        return (FileDescriptor(rawValue: reader), FileDescriptor(rawValue: writer))
    }
}

extension FileDescriptor {
    /// One byte; nil at the end.
    func readOne() -> UInt8? {
        var byte: UInt8 = 0
        let count = withUnsafeMutableBytes(of: &byte) { try? read(into: $0) }
        return count == 1 ? byte : nil
    }
}
