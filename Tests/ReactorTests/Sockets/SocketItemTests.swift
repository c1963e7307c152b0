import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Modes and lifetime of listeners and datagram sockets: closing, removing, releasing and nesting, inside and outside of
/// handlers.
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

    // MARK: Modes

    @Test(arguments: ItemKind.allCases)
    func `an item is served in its modes only, and what comes otherwise waits`(kind: ItemKind) throws {
        let item = try make(kind, in: .custom)
        #expect(
            item.isContained(in: loop, forMode: .custom) && !item.isContained(in: loop, forMode: .default))
        try kind.provoke(path) {
            #expect(loop.poll() == .finished && calls.value == 0)
            loop.poll(.custom)
            #expect(calls.value == 1)
        }
        item.close()
        #expect(!item.isContained(in: loop, forMode: .custom))
        try item.add(to: loop, forMode: .default)
        #expect(!item.isContained(in: loop, forMode: .default) && loop.poll() == .finished)
    }

    @Test(arguments: ItemKind.allCases)
    func `an item in the common modes is served in each, until closing`(kind: ItemKind) throws {
        var modes: [RunLoop.Mode?] = []
        let item = try make(kind, in: .common) { [loop] _ in modes.append(loop.currentMode) }
        for mode in [RunLoop.Mode.tracking, .default] { try kind.provoke(path) { _ = loop.poll(mode) } }
        #expect(modes == [.tracking, .default])
        item.close()
        #expect(loop.poll() == .finished && loop.poll(.tracking) == .finished)
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
    func `an item removed from all its modes can join another loop`(kind: ItemKind) throws {
        let item = Carrier(try make(kind))
        item.value.remove(from: loop, forMode: .default)
        try kind.provoke(path) {
            try onAThread {
                try item.value.add(to: .current, forMode: .default)
                RunLoop.current.poll()
                item.value.close()
            }
        }
        #expect(calls.value == 1)
    }

    @Test(arguments: ItemKind.allCases)
    func `using an item on another thread traps`(kind: ItemKind) async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            [kind] in
            try onAThread {
                let item = Carrier(try kind.make(at: freshPath()) { _ in })
                try item.value.add(to: .current, forMode: .default)
                try onAThread { item.value.close() }
            }
        }
        #expect(result.message.contains("thread"))
    }

    // MARK: Handlers

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

    @Test(arguments: ItemKind.allCases)
    func `a nested run does not call the handler inside itself`(kind: ItemKind) throws {
        var depth = 0
        _ = try make(kind) { [loop, calls] item in
            depth += 1
            #expect(depth == 1)
            for _ in 0..<3 { loop.poll() }
            depth -= 1
            if calls.value == 3 { item.close() }
        }
        try kind.provoke(path, 3) { #expect(loop.run(in: .default) == .finished) }
        #expect(calls.value == 3)
    }

    @Test(arguments: ItemKind.allCases)
    func `an item closed in a nested run gets nothing more`(kind: ItemKind) throws {
        _ = try make(kind) { [loop] item in
            loop.perform(order: 0) { item.close() }
            loop.poll()
        }
        try kind.provoke(path, 3) { #expect(loop.run(in: .default) == .finished) }
        #expect(calls.value == 1)
    }

    @Test(arguments: ItemKind.allCases)
    func `a number that is reused within a pass gets no event of a closed item`(kind: ItemKind) async {
        // In a process of its own, in which no other test takes the number that is closed.
        await #expect(processExitsWith: .success) { [kind] in
            try onAThread {
                let (loop, pipe, paths) = (RunLoop.current, try TestPipe(), [freshPath(), freshPath()])
                var items: [any SocketItem] = []
                var stranger: DescriptorSource?
                var (calls, strangerCalls) = (0, 0)
                for index in 0..<2 {
                    let item = try kind.make(at: paths[index]) { _ in
                        calls += 1
                        let number = items[1 - index].number
                        for item in items { item.close() }
                        precondition(fcntl(number, F_GETFD) == -1, "the number is still in use")
                        precondition(dup2(pipe.readEnd.rawValue, number) == number)
                        let copy = FileDescriptor(rawValue: number)
                        stranger = DescriptorSource(copy, for: .readable) { _, _ in strangerCalls += 1 }
                        try? loop.add(stranger!, forMode: .default)
                    }
                    items.append(item)
                    try item.add(to: loop, forMode: .default)
                }
                try kind.provoke(paths[0]) {
                    try kind.provoke(paths[1]) {
                        for _ in 0..<3 { loop.poll() }
                        try #require(calls == 1 && strangerCalls == 0)
                    }
                }
                pipe.put()
                loop.poll()
                try #require(strangerCalls == 1)
            }
        }
    }

    // MARK: Lifetime

    @Test(arguments: ItemKind.allCases)
    func `the loop retains an item while it is in a mode`(kind: ItemKind) throws {
        weak var item: (any SocketItem)?
        do {
            let made = try make(kind) { [loop, calls] in
                if calls.value == 2 { $0.remove(from: loop, forMode: .default) }
            }
            item = made
        }
        #expect(item != nil)
        try kind.provoke(path, 2) { #expect(loop.run(in: .default) == .finished) }
        #expect(calls.value == 2)
        #expect(freed.value && item == nil && !exists(path))
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
        #expect(throws: Errno.addressInUse) { try make(kind, in: nil) }
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
    var number: CInt { get }
    func close()
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode)
    func isContained(in loop: RunLoop, forMode mode: RunLoop.Mode) -> Bool
}

extension Listener: SocketItem {
    var number: CInt { descriptor.rawValue }
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws { try loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isContained(in loop: RunLoop, forMode mode: RunLoop.Mode) -> Bool {
        loop.contains(self, forMode: mode)
    }
}

extension DatagramSocket: SocketItem {
    var number: CInt { (try? descriptor.rawValue) ?? -1 }
    func add(to loop: RunLoop, forMode mode: RunLoop.Mode) throws { try loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, forMode mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isContained(in loop: RunLoop, forMode mode: RunLoop.Mode) -> Bool {
        loop.contains(self, forMode: mode)
    }
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
