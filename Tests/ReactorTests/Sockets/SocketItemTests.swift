import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// Closing, removing, releasing and nesting, inside and outside of handlers, where several connections or datagrams are ready.
@Suite(.runLoop) struct SocketItemTests {
    private let loop = RunLoop.current
    private let path = freshPath()
    private let freed = Shared(false)
    private let calls = Shared(0)

    /// An item at ``path``, in `mode` of this thread's loop, whose closure alone retains an object that sets ``freed``.
    private func make(
        _ kind: ItemKind, in mode: RunLoop.Mode? = .default,
        _ body: @escaping (any SocketItem) -> Void = { _ in }
    ) throws -> any SocketItem {
        let canary = AtEnd { [freed] in freed.value = true }
        let item = try kind.make(at: path) { [calls] item in
            withExtendedLifetime(canary) {
                calls.update { $0 += 1 }
                body(item)
            }
        }
        if let mode { try item.add(to: loop, forMode: mode) }
        return item
    }

    @Test(arguments: ItemKind.allCases)
    func `an item that its handler removes gets nothing until it is added again`(kind: ItemKind) throws {
        let item = try make(kind) { [loop] in $0.remove(from: loop, forMode: .default) }
        try kind.provoke(path, 3) {
            #expect(loop.run(in: .default) == .finished)
            #expect(calls.value == 1 && item.isValid)
            try item.add(to: loop, forMode: .custom)
            #expect(loop.run(mode: .custom, before: .minutesAway))
            #expect(calls.value == 3 && loop.passesInAWhile(in: .custom) < 10)
        }
        item.close()
    }

    @Test(arguments: ItemKind.allCases)
    func `closing in the handler keeps the closure until it returns`(kind: ItemKind) throws {
        _ = try make(kind) { [freed] item in
            item.close()
            item.close()
            #expect(!freed.value && !item.isValid)
        }
        try kind.provoke(path, 3) { #expect(loop.run(in: .default) == .finished) }
        #expect(calls.value == 1)
        #expect(freed.value && !exists(path))
    }

    @Test(arguments: ItemKind.allCases, [true, false])
    func `a nested run does not call the handler inside itself, and may close the item`(
        kind: ItemKind, closes: Bool
    ) throws {
        var depth = 0
        _ = try make(kind) { [loop, calls] item in
            depth += 1
            #expect(depth == 1)
            if closes { loop.perform(order: 0) { item.close() } }
            for _ in 0..<3 { loop.poll() }
            depth -= 1
            if calls.value == 3 { item.close() }
        }
        try kind.provoke(path, 3) { #expect(loop.run(in: .default) == .finished) }
        #expect(calls.value == (closes ? 1 : 3))
    }

    @Test(arguments: ItemKind.allCases)
    func `an item in no loop is closed when it is released`(kind: ItemKind) throws {
        var item: (any SocketItem)? = try make(kind, in: nil)
        #expect(item?.isValid == true && exists(path))
        item = nil
        #expect(freed.value && !exists(path))
    }

    @Test(arguments: ItemKind.allCases, [RunLoop.Mode.default, .common, .custom])
    func `the end of the thread closes items and releases closures there`(
        kind: ItemKind, mode: RunLoop.Mode
    ) throws {
        let threads = Shared<[UInt]>([])
        try onAThread { [path] in
            threads.value = [UInt(pthread_self())]
            let canary = AtEnd { threads.update { $0.append(UInt(pthread_self())) } }
            let item = try kind.make(at: path) { _ in withExtendedLifetime(canary) {} }
            try item.add(to: .current, forMode: mode)
            try kind.provoke(path) {}
        }
        #expect(threads.value.count == 2 && Set(threads.value).count == 1)
        #expect(!exists(path))
    }

    @Test(arguments: ItemKind.allCases)
    func `closing removes the socket's file, unless another one has replaced it`(kind: ItemKind) throws {
        let (first, kept) = (try make(kind, in: nil), freshPath())
        expectErrno(.addressInUse) { try make(kind, in: nil) }
        #expect(rename(path.string, kept.string) == 0)  // so that its number is not given to the next
        let second = try make(kind, in: nil)
        first.close()
        #expect(exists(path))
        second.close()
        #expect(!exists(path))
        unlink(kept.string)
    }
}

/// What loops serve that has a socket of its own.
protocol SocketItem: AnyObject {
    var isValid: Bool { get }
    func close()
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode)
}

extension Listener: SocketItem {
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws { try loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
}

extension DatagramSocket: SocketItem {
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws { try loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
}

enum ItemKind: String, CaseIterable, Codable, Sendable {
    case listener, datagrams

    func make(at path: FilePath, _ body: @escaping (any SocketItem) -> Void) throws -> any SocketItem {
        let address = try SocketAddress(unixPath: path)
        return switch self {
        case .listener: try Listener(address) { listener, _ in body(listener) }
        case .datagrams: try DatagramSocket(boundTo: address) { socket, _, _ in body(socket) }
        }
    }

    /// Calls `body` while `count` clients of the item at `path` are connected, or have sent a datagram.
    func provoke(_ path: FilePath, _ count: Int = 1, _ body: () throws -> Void) throws {
        let address = try SocketAddress(unixPath: path)
        let clients: [AnyObject] = try (0..<count).map { _ in
            if self == .listener { return try SocketPeer(connectedTo: address) }
            let client = try sender(to: address)
            #expect(try client.send("x"))
            return client
        }
        try withExtendedLifetime(clients) { try body() }
    }
}
