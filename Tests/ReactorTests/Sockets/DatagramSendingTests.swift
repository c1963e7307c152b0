import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Full buffers, and errors of earlier datagrams.
@Suite(.runLoop) struct DatagramSendingTests {
    @Test func `a send without room delivers hasSpaceAvailable once`() throws {
        var events: [DatagramSocket.Event] = []
        let (socket, other) = try DatagramSocket.pair(events: { _, event in events.append(event) })
        defer { try? other.close() }
        try RunLoop.current.add(socket, forMode: .default)
        var sent = 0
        while try socket.send("x") { sent += 1 }
        #expect(sent > 0)
        #expect(try !socket.send("x"))
        RunLoop.current.poll()
        #expect(events.isEmpty)
        for _ in 0..<sent { _ = other.readOne() }
        runLoop { !events.isEmpty }
        #expect(events == [.hasSpaceAvailable])
        RunLoop.current.poll()
        #expect(events.count == 1)
        #expect(try socket.send("x"))
        socket.close()
    }

    @Test func `a full socket still receives, and may be closed by its event handler`()
        async throws
    {
        try await onItsOwnThread {
            let inflow = Inflow()
            let (socket, other) = try DatagramSocket.pair { _, bytes, datagram in
                inflow.note(bytes, datagram)
            } events: { socket, event in
                inflow.events.append(event)
                socket.close()
            }
            defer { try? other.close() }
            try RunLoop.current.add(socket, forMode: .default)
            while try socket.send("x") {}
            try other.writeAll("in".utf8)
            inflow.wait(for: 1)
            #expect(inflow.events.isEmpty)
            while inflow.events.isEmpty {
                _ = other.readOne()
                RunLoop.current.poll()
            }
            #expect(inflow.events == [.hasSpaceAvailable])
            #expect(!socket.isValid)
        }
    }

    @Test func `a send without room before joining a loop delivers hasSpaceAvailable there`() throws {
        var events: [DatagramSocket.Event] = []
        let (socket, other) = try DatagramSocket.pair(events: { _, event in events.append(event) })
        defer { try? other.close() }
        while try socket.send("x") {}
        #expect(other.readOne() != nil)
        try RunLoop.current.add(socket, forMode: .default)
        while events.isEmpty {
            _ = other.readOne()
            RunLoop.current.poll()
        }
        #expect(events == [.hasSpaceAvailable])
        socket.close()
    }

    @Test func `a full Unix-domain receiver is an error if the socket is not connected to it`() throws {
        let full = try DatagramSocket(boundTo: DatagramKind.path.freshAddress()) { _, _, _ in }
        let inflow = Inflow()
        let socket = try inflow.socket(at: DatagramKind.path.freshAddress())
        let address = try full.localAddress
        #expect(throws: Errno.resourceTemporarilyUnavailable) {
            while try socket.send("x", to: address) {}
        }
        // The loop does not go round for it.
        #expect(RunLoop.current.run(in: .default, until: .after(milliseconds: 3)) == .timedOut)
        #expect(inflow.events.isEmpty)
        socket.close()
    }

    @Test func `a refused datagram delivers an error, and the socket continues`() throws {
        let inflow = Inflow()
        // It is connected to itself, so the kernel refuses datagrams from others.
        let deaf = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
        let number = try deaf.descriptor.rawValue
        let address = try deaf.localAddress
        try SystemCall.make { address.withSockAddr { connect(number, $0, $1) } }
        let socket = try DatagramSocket(
            connectedTo: address, receive: { _, bytes, datagram in inflow.note(bytes, datagram) },
            events: { _, event in inflow.events.append(event) })
        try RunLoop.current.add(socket, forMode: .default)
        #expect(try socket.send("x"))
        runLoop { !inflow.events.isEmpty }
        #expect(inflow.events == [.errorOccurred(IOError(.receive, "\(address)", .connectionRefused))])
        #expect(socket.isValid)
        // Now it hears this socket alone.
        let peer = try socket.localAddress
        try SystemCall.make { peer.withSockAddr { connect(number, $0, $1) } }
        #expect(try deaf.send("hello"))
        inflow.wait(for: 1)
        #expect(inflow.texts == ["hello"])
        #expect(inflow.events.count == 1)
        socket.close()
    }

    @Test func `a pair whose other end is closed delivers nothing, and sending fails`() async throws {
        try await onItsOwnThread {
            var events: [DatagramSocket.Event] = []
            let (socket, other) = try DatagramSocket.pair(events: { _, event in events.append(event) })
            try RunLoop.current.add(socket, forMode: .default)
            try other.close()
            #expect(RunLoop.current.run(in: .default, until: .after(milliseconds: 3)) == .timedOut)
            #expect(events.isEmpty)
            // A process that another test is just starting may hold the other end a moment longer.
            var error: Errno?
            waitUntil {
                if error == nil {
                    do { _ = try socket.send("x") } catch let failure { error = failure as? Errno }
                }
                return error != nil
            }
            #expect(error == .connectionRefused)
            #expect(RunLoop.current.run(in: .default, until: .after(milliseconds: 3)) == .timedOut)
            socket.close()
        }
    }

    @Test func `a send may throw the error of an earlier datagram without sending`()
        async throws
    {
        try await onItsOwnThread {
            let deaf = try DatagramSocket(boundTo: .ipv4Loopback(port: 0)) { _, _, _ in }
            let (number, address) = (try deaf.descriptor.rawValue, try deaf.localAddress)
            try SystemCall.make { address.withSockAddr { connect(number, $0, $1) } }
            let socket = try sender(to: address)
            #expect(try socket.send("x"))
            var request = pollfd(fd: try socket.descriptor.rawValue, events: Int16(POLLIN), revents: 0)
            #expect(poll(&request, 1, -1) == 1)
            #expect(throws: Errno.connectionRefused) { try socket.send("y") }
            #expect(try socket.send("z"))
            deaf.close()  // not before, because another test could then receive at its port
        }
    }

    @Test func `sending without an address, or too many bytes, throws`() throws {
        let inflow = Inflow()
        let socket = try inflow.socket(at: .ipv4Loopback(port: 0))
        #expect(throws: Errno.addressRequired) { try socket.send("x") }
        #expect(throws: Errno.messageTooLong) {
            try socket.send([UInt8](repeating: 0, count: 65_508), to: try socket.localAddress)
        }
        #expect(throws: Errno.socketNotConnected) { try socket.peerAddress }
        let unix = try DatagramSocket(boundTo: .unixUnnamed) { _, _, _ in }
        #expect(throws: Errno.socketNotConnected) { try unix.send("x") }
        #expect(throws: Errno.noSuchFileOrDirectory) {
            try DatagramSocket(connectedTo: DatagramKind.path.freshAddress()) { _, _, _ in }
        }
        socket.close()
    }
}
