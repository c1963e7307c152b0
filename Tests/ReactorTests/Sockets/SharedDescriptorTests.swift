#if DEBUG

import Glibc
import Synchronization
import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct SharedDescriptorTests {
    @Test func `adopting a descriptor during a use keeps it open`() {
        let holders = (0..<5_000).map { _ in SharedDescriptor() }
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
        let holders = (0..<100).map { _ in SharedDescriptor() }
        let pairs = try holders.map { _ in try connectedPair() }
        for (turn, holder) in holders.enumerated() {
            // One after the other both ways round, and then at once.
            switch turn % 3 {
            case 0:
                holder.adopt(pairs[turn].own)
                holder.close()
            case 1:
                holder.close()
                holder.adopt(pairs[turn].own)
            default:
                onThreads(2) { index in
                    if index == 0 { holder.adopt(pairs[turn].own) } else { holder.close() }
                }
            }
        }
        for pair in pairs {
            var byte: UInt8 = 0
            #expect(read(pair.peer, &byte, 1) == 0)
            close(pair.peer)
        }
        #expect(holders.allSatisfy { $0.number == -1 })
    }

    private func connectedPair() throws -> (own: CInt, peer: CInt) {
        var pair: [CInt] = [-1, -1]
        try SystemCall.make {
            socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair)
        }
        return (pair[0], pair[1])
    }
}

#endif
