import Dispatch
import Glibc
import Reactor
import ReactorTesting
import Synchronization
import SystemPackage
import Testing

@Suite(.runLoop) struct StreamQueueTrafficTests {
    /// Echoes all bytes, with both halves on one queue, and closes both after the end.
    private final class Echo: StreamDelegate, Sendable {
        private let state = Shared(State())
        let isOver = Answer<Bool>()
        private let pair: Carrier<(input: InputStream, output: OutputStream)>

        private struct State {
            var waiting: [UInt8] = []
            var isAtEnd = false
        }

        init(_ pair: (input: InputStream, output: OutputStream)) { self.pair = Carrier(pair) }

        func start(on queue: DispatchQueue) {
            for stream in [pair.value.input, pair.value.output] {
                stream.delegate = self
                stream.setDispatchQueue(queue)
                stream.open()
            }
        }

        func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
            let (input, output) = pair.value
            switch eventCode {
            case .hasBytesAvailable: state.update { [bytes = input.read(upTo: 5000)] in $0.waiting += bytes }
            case .endEncountered: state.update { $0.isAtEnd = true }
            case .errorOccurred: return isOver.give(false)
            default: break
            }
            while output.hasSpaceAvailable, case let waiting = state.value.waiting, !waiting.isEmpty {
                let count = waiting.withUnsafeBufferPointer {
                    output.write($0.baseAddress!, maxLength: min($0.count, 3000))
                }
                guard count > 0 else { return isOver.give(false) }
                state.update { $0.waiting.removeFirst(count) }
            }
            guard state.update({ $0.isAtEnd && $0.waiting.isEmpty }) else { return }
            for stream in [input, output] as [Stream] { stream.close() }
            isOver.give(true)
        }
    }

    /// Repeated: a write in one callback may use up the room that the next one is to report.
    @Test(arguments: [SocketOrigin.ipv4, .descriptor], [true, false])
    func `both halves of a socket deliver on one serial queue`(
        origin: SocketOrigin, isNarrow: Bool
    ) throws {
        for _ in 0..<25 {
            let fixture = try SocketFixture(origin, isNarrow: isNarrow)
            let echo = Echo((fixture.input, fixture.output))
            let queue = DispatchQueue(label: "both halves")
            echo.start(on: queue)
            let peer = try fixture.peer
            let bytes = pattern(300_000)
            let sender = try JoinableThread(name: "sender") {
                peer.send(bytes)
                peer.shutDown()
            }
            #expect(peer.receiveToEnd() == bytes)
            sender.join()
            #expect(echo.isOver.wait())
        }
    }

    @Test(arguments: [StreamKind.pipe, .socket])
    func `a concurrent queue calls the delegate once at a time and in order`(kind: StreamKind) throws {
        let (near, far) = kind == .pipe ? try FileDescriptor.pipe() : try Self.socketPair()
        let input =
            kind == .pipe
            ? InputStream(descriptor: near, closeWhenDone: true)
            : Stream.connection(descriptor: near, closeWhenDone: true).input
        let (read, end) = (Shared<[UInt8]>([]), Answer<Void>())
        let counter = Counter { stream, event in
            switch event {
            case .hasBytesAvailable:
                // Several at a time: the last read may find nothing, and wait for the writer.
                for _ in 0..<2 where (stream as! InputStream).hasBytesAvailable {
                    let bytes = (stream as! InputStream).read(upTo: 11)
                    read.update { $0 += bytes }
                }
            case .endEncountered: end.give(())
            default: break
            }
        }
        input.delegate = counter
        input.setDispatchQueue(.global())
        input.open()
        try far.closeAfter {
            for piece in stride(from: 0, to: 30_000, by: 30) {
                _ = try far.writeAll(pattern(30_000)[piece..<piece + 30])
                if piece % 7 == 0 { sched_yield() }
            }
        }
        end.wait()
        #expect(read.value == pattern(30_000))
        #expect(counter.overlaps.load(ordering: .relaxed) == 0)
        input.close()
    }

    private static func socketPair() throws -> (readEnd: FileDescriptor, writeEnd: FileDescriptor) {
        var numbers: [CInt] = [0, 0]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        try SystemCall.make { Glibc.socketpair(AF_UNIX, type, 0, &numbers) }
        return (FileDescriptor(rawValue: numbers[0]), FileDescriptor(rawValue: numbers[1]))
    }

    @Test func `an event without a read or write keeps no thread busy`() async {
        // In a process of its own, where no other stream is on a queue.
        await #expect(processExitsWith: .success) {
            let pipe = try FileDescriptor.pipe()
            let (input, counter) = (InputStream(descriptor: pipe.readEnd, closeWhenDone: true), Counter())
            try pipe.writeEnd.writeAll([1, 2, 3])
            input.delegate = counter
            input.setDispatchQueue(DispatchQueue(label: "silent"))
            input.open()
            waitUntil { counter.events.value.count == 2 }
            try waitForStreamsThread()
            let passes = Answer<Int>()
            try streamsLoop().performAndWait {
                var count = 0
                let observer = RunLoop.Observer(for: .beforeTimers) { _, _ in count += 1 }
                RunLoop.current.add(observer, forMode: .default)
                Timer.scheduled(after: .milliseconds(20)) { _ in passes.give(count) }
            }
            // A thread that spins makes tens of thousands of passes.
            let count = passes.wait()
            try #require(counter.events.value == [1, 2] && count < 10)
        }
    }
}
