import SystemPackage
import Testing

@testable import Reactor

@Suite struct HandoffFlowTests {
    /// A flow, and notes of what it has called.
    private final class Scene {
        var flow: HandoffFlow
        let calls = Shared([String]())

        init(chunks: Int, file: FileSource? = nil) {
            flow = HandoffFlow(HandoffLimits(chunkSize: 10, bytesInFlight: 10 * chunks))
            let calls = calls
            flow.connect(
                HandoffFlow.Link(
                    announce: Callback { calls.update { $0.append("announce") } },
                    resumeReading: Callback { calls.update { $0.append("resume") } }))
            if let file { perform { $0.start(file, &$1) } } else { _ = flow.beginReading() }
        }

        @discardableResult
        func perform<Answer: ~Copyable>(
            _ change: (inout HandoffFlow, inout HandoffFlow.Errands) -> Answer
        ) -> Answer {
            var errands = HandoffFlow.Errands()
            let answer = change(&flow, &errands)
            for callback in errands.callbacks { callback() }
            if errands.callsWorker { calls.update { $0.append("worker") } }
            return answer
        }

        /// Hands over a chunk of one byte; false if there is none to fill.
        func put(_ byte: UInt8) -> Bool {
            guard var chunk = flow.takeFree() else { return false }
            Self.fill(&chunk, byte)
            perform { $0.put(chunk, nil, &$1) }
            return true
        }

        static func fill(_ chunk: inout Chunk, _ byte: UInt8) {
            _ = chunk.fill(upTo: 10) { memory in
                memory[0] = byte
                return 1
            }
        }

        /// Does what the worker does with a turn, which becomes the next one; its name.
        func step(_ turn: inout HandoffFlow.Turn) -> String {
            switch consume turn {
            case .process(let chunk, _):
                turn = perform { $0.takeProcessed(chunk, 1, nil, &$1) }
                return "process"
            case .read(var chunk, _):
                Self.fill(&chunk, 1)
                turn = perform { $0.takeRead(chunk, nil, &$1) }
                return "read"
            case .finish(let fault):
                turn = .rest
                return fault == nil ? "finish" : "fail"
            case .makeWay:
                turn = .rest
                return "makeWay"
            case .rest:
                turn = .rest
                return "rest"
            }
        }

        /// What the worker does until it rests.
        func work() -> [String] {
            var turn = perform { $0.beginWork(&$1) }
            var names: [String] = []
            repeat { names.append(step(&turn)) } while names.last != "rest"
            return names.dropLast()
        }
    }

    private static func file() throws -> FileSource {
        let stream = InputStream(path: "/dev/zero")
        stream.open()
        return try #require(FileSource(stream))
    }

    @Test func `a batch of chunks calls the worker once, and it takes them all`() {
        let scene = Scene(chunks: 3)
        for byte in 0..<3 { #expect(scene.put(UInt8(byte))) }
        #expect(scene.calls.value == ["worker"])
        #expect(scene.work() == ["process", "process", "process"])
    }

    @Test func `the reader goes on when half of the chunks are free, and not for each`() {
        let scene = Scene(chunks: 4)
        while scene.put(0) {}
        scene.calls.value = []
        var turn = scene.perform { $0.beginWork(&$1) }
        #expect(scene.step(&turn) == "process")
        #expect(!scene.calls.value.contains("resume"))
        #expect(scene.step(&turn) == "process")
        #expect(scene.calls.value.contains("resume"))
    }

    @Test func `the end comes after the chunks, with its fault`() {
        let scene = Scene(chunks: 2)
        #expect(scene.put(0))
        scene.perform { $0.end(Errno.ioError, &$1) }
        scene.perform { $0.end(nil, &$1) }
        #expect(scene.work() == ["process", "fail"])
    }

    @Test func `a file is read a chunk at a time, and makes way after many`() throws {
        let scene = Scene(chunks: 8, file: try Self.file())
        let names = scene.work()
        #expect(names == Array(repeating: ["read", "process"], count: 64).flatMap(\.self) + ["makeWay"])
    }

    @Test func `cancelling concludes at once unless the processor is being called`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var turn = scene.perform { $0.beginWork(&$1) }  // a read is under way
        let isAlone = scene.perform { $0.cancel(&$1) }
        #expect(isAlone)
        #expect(scene.step(&turn) == "read")
        #expect(scene.step(&turn) == "rest")

        let other = Scene(chunks: 1, file: try Self.file())
        turn = other.perform { $0.beginWork(&$1) }
        #expect(other.step(&turn) == "read")  // a call is under way
        let isSecondAlone = other.perform { $0.cancel(&$1) }
        #expect(!isSecondAlone)
        #expect(other.step(&turn) == "process")
        #expect(other.step(&turn) == "finish")
    }

    @Test func `what is read while suspended waits`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var turn = scene.perform { $0.beginWork(&$1) }
        scene.perform { $0.suspend(&$1) }
        #expect(scene.step(&turn) == "read")
        #expect(scene.step(&turn) == "rest")
        scene.calls.value = []
        scene.perform { $0.resume(&$1) }
        #expect(scene.calls.value == ["worker"])
        #expect(scene.work().first == "process")
    }
}
