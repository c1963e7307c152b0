#if DEBUG

import Dispatch
import Reactor
import ReactorTestSupport
import Testing

@testable import ReactorFoundation

@Suite struct PortRoomTests {
    @Test func `a component that is longer than the rest of its message is refused`() throws {
        var bytes = try #require(
            PortFrame(number: 1, sender: .none, components: [.data([1, 2, 3])]).bytes)
        _ = try PortFrame(bytes)
        bytes[bytes.count - 4] += 1
        #expect(throws: PortFrame.ParseError.badComponent) { try PortFrame(bytes) }
    }

    @Test func `a message has as many components as allowed, and not one more`() throws {
        let most = PortFrame.maximumComponentCount
        let part = [UInt8](PortBytes.message(components: [[]]).suffix(8))
        let bytes = PortBytes.message(components: [[UInt8]](repeating: [], count: most))
        #expect(try PortFrame(bytes).components.count == most)
        #expect(throws: PortFrame.ParseError.tooManyComponents) { try PortFrame(bytes + part) }
    }

    @Test func `messages that wait take no more bytes than the limit`() {
        var room = PortRoom(limit: 1_000)
        room.take(600)
        #expect(room.fits(400) && !room.fits(401))
        room.release(600)
        #expect(room.fits(401))
    }

    @Test func `a connection that closes within a message leaves its room to others`() async throws {
        try await onItsOwnThread {
            let receiver = try PortReceiver(at: .ipv4Loopback(port: 0))
            let arrived = DispatchSemaphore(value: 0)
            receiver.setMessageHandler { arrived.signal() }
            let message = PortBytes.message(components: [[UInt8](repeating: 7, count: 900_000)])
            let first = try SocketPeer(connectedTo: receiver.address)
            first.send(Array(message.prefix(10)))
            first.close()
            let second = try SocketPeer(connectedTo: receiver.address)
            let sender = try JoinableThread { second.send(message) }
            #expect(arrived.wait(timeout: .now() + 10) == .success)
            receiver.close()
            sender.join()
        }
    }
}

#endif
