#if DEBUG

import Glibc
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

@testable import Reactor

/// What the halves of a connection share, and its descriptor.
@Suite(.runLoop) struct SocketConnectionTests {
    @Test(arguments: [true, false])
    func `a half that is closed before it opens retains nothing`(isInput: Bool) throws {
        let connection = SocketConnection(connectingTo: .address(.ipv4Loopback(port: 1)))
        weak var engine: StreamEngine?
        do {
            let opening = StreamEngine(isInput ? SocketInput(connection) : SocketOutput(connection))
            engine = opening
            for half in [SocketConnection.Half.input, .output] { connection.close(half) }
            connection.open(isInput ? .input : .output, for: opening)
        }
        #expect(engine == nil)
    }

    @Test func `an attempt that was cancelled does not start`() throws {
        let server = try SocketServer()
        let connector = SocketConnector(to: .address(server.address), until: .distantFuture) { _ in
            Issue.record("the completion was called after cancel()")
        }
        connector.cancel()
        connector.start()
        try waitForStreamsThread()
        #expect(!server.hasPendingConnection)
    }

    @Test func `adopting a descriptor during a use keeps it open`() {
        let holders = (0..<500).map { _ in SharedDescriptor() }
        for holder in holders { holder.closesWhenDone = false }
        let asked = Atomic(-1)
        let adopted = Atomic(-1)
        onThreads(2) { index in
            for (number, holder) in holders.enumerated() {
                if index == 0 {
                    while asked.load(ordering: .relaxed) < number {}
                    holder.adopt(1_000_000)
                    adopted.store(number, ordering: .relaxed)
                } else {
                    asked.store(number, ordering: .relaxed)
                    while adopted.load(ordering: .relaxed) < number { try? holder.use { _ in } }
                }
            }
        }
        #expect(holders.allSatisfy { $0.number == 1_000_000 })
    }

    @Test func `a descriptor that is still to come cannot be used, nor after it is closed`() throws {
        let holder = SharedDescriptor()
        holder.closesWhenDone = false
        #expect(throws: Errno.badFileDescriptor) { try holder.use { _ in } }
        holder.adopt(1_000_000)
        #expect(try holder.use { $0 } == 1_000_000)
        holder.close()
        #expect(throws: Errno.badFileDescriptor) { try holder.use { _ in } }
        #expect(holder.number == -1)
    }

    @Test func `a descriptor that comes to a closed holder is closed, however late`() throws {
        for turn in 0..<100 {
            let holder = SharedDescriptor()
            let (own, peer) = try socketPair()
            defer { close(peer) }
            // One after the other both ways round, and then at once.
            switch turn % 3 {
            case 0:
                holder.adopt(own)
                holder.close()
            case 1:
                holder.close()
                holder.adopt(own)
            default:
                onThreads(2) { index in if index == 0 { holder.adopt(own) } else { holder.close() } }
            }
            var byte: UInt8 = 0
            #expect(read(peer, &byte, 1) == 0)
            #expect(holder.number == -1)
        }
    }
}

#endif
