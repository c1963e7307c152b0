import Glibc
import Reactor
import SystemPackage

/// Two ends of something that carries bytes: write to one, and the other is readable.
enum Channel: CaseIterable {
    case pipe
    case socketPair
    case datagrams
    case fifo
    case terminal

    func open() throws -> (reader: FileDescriptor, writer: FileDescriptor) {
        switch self {
        case .pipe: try openPipe()
        case .socketPair: try pair(CInt(SOCK_STREAM.rawValue))
        case .datagrams: try pair(CInt(SOCK_DGRAM.rawValue))
        case .fifo: try openFIFO()
        case .terminal: try openTerminal()
        }
    }

    private func pair(_ type: CInt) throws -> (FileDescriptor, FileDescriptor) {
        var numbers: [CInt] = [0, 0]
        try SystemCall.make { socketpair(AF_UNIX, type, 0, &numbers) }
        return (FileDescriptor(rawValue: numbers[0]), FileDescriptor(rawValue: numbers[1]))
    }

    private func openPipe() throws -> (FileDescriptor, FileDescriptor) {
        let pipe = try FileDescriptor.pipe()
        return (pipe.readEnd, pipe.writeEnd)
    }

    private func openFIFO() throws -> (FileDescriptor, FileDescriptor) {
        let folder = TemporaryFolder()
        let path = folder.fifo()
        let reader = try FileDescriptor.open(path, .readOnly, options: .nonBlocking)
        return (reader, try FileDescriptor.open(path, .writeOnly))
    }

    private func openTerminal() throws -> (FileDescriptor, FileDescriptor) {
        var (master, slave): (CInt, CInt) = (-1, -1)
        try SystemCall.make { openpty(&master, &slave, nil, nil, nil) }
        return (FileDescriptor(rawValue: master), FileDescriptor(rawValue: slave))
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
