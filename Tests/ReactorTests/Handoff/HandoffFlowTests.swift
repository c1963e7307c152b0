#if DEBUG

import SystemPackage
import ReactorTesting
import Testing

@testable import Reactor

@Suite(.runLoop) struct HandoffFlowTests {
    /// A flow, and a record of the calls that it asks for.
    private final class Scene {
        var flow: HandoffFlow
        let calls = Shared([String]())

        init(chunks: Int, file: FileSource? = nil) {
            flow = HandoffFlow(HandoffLimits(chunkSize: 10, bytesInFlight: 10 * chunks))
            let calls = calls
            flow.connect(
                HandoffFlow.LoopCallbacks(
                    announce: Callback { calls.update { $0.append("announce") } },
                    resumeReading: Callback { calls.update { $0.append("resume") } }))
            if let file { perform { $0.start(file, &$1) } } else { _ = flow.beginReading() }
        }

        @discardableResult
        func perform<Answer: ~Copyable>(
            _ change: (inout HandoffFlow, inout HandoffFlow.Effects) -> Answer
        ) -> Answer {
            var effects = HandoffFlow.Effects()
            let answer = change(&flow, &effects)
            for callback in effects.callbacks { callback() }
            if effects.callsWorker { calls.update { $0.append("worker") } }
            return answer
        }

        /// Queues a chunk of one byte. Returns false if there is none to fill.
        func put(_ byte: UInt8) -> Bool {
            guard var chunk = flow.takeFree() else { return false }
            Self.fill(&chunk, byte)
            perform { $0.put(chunk, nil, &$1) }
            return true
        }

        static func fill(_ chunk: inout Chunk, _ byte: UInt8) {
            _ = chunk.fill(upTo: 10) { memory in
                memory.storeBytes(of: byte, as: UInt8.self)
                return 1
            }
        }

        /// Performs the worker's step, which is replaced by the next one. Returns its name.
        func step(_ next: inout HandoffFlow.Step) -> String {
            switch consume next {
            case .process(let chunk, _):
                next = perform { $0.takeProcessed(chunk, 1, nil, &$1) }
                return "process"
            case .read(var chunk, _):
                Self.fill(&chunk, 1)
                next = perform { $0.takeRead(chunk, nil, &$1) }
                return "read"
            case .finish(let fault):
                next = .idle
                return fault == nil ? "finish" : "fail"
            case .yield:
                next = .idle
                return "yield"
            case .idle:
                next = .idle
                return "idle"
            }
        }

        /// The worker's steps until it is idle.
        func work() -> [String] {
            var next = perform { $0.beginWork(&$1) }
            var names: [String] = []
            repeat { names.append(step(&next)) } while names.last != "idle"
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

    @Test func `the reader resumes when half of the chunks are free`() {
        let scene = Scene(chunks: 4)
        while scene.put(0) {}
        scene.calls.value = []
        var next = scene.perform { $0.beginWork(&$1) }
        #expect(scene.step(&next) == "process")
        #expect(!scene.calls.value.contains("resume"))
        #expect(scene.step(&next) == "process")
        #expect(scene.calls.value.contains("resume"))
    }

    @Test func `the end comes after the chunks, with its error`() {
        let scene = Scene(chunks: 2)
        #expect(scene.put(0))
        scene.perform { $0.end(Errno.ioError, &$1) }
        scene.perform { $0.end(nil, &$1) }
        #expect(scene.work() == ["process", "fail"])
    }

    @Test func `a file is read a chunk at a time, and yields after many`() throws {
        let scene = Scene(chunks: 8, file: try Self.file())
        let names = scene.work()
        #expect(names == Array(repeating: ["read", "process"], count: 64).flatMap(\.self) + ["yield"])
    }

    @Test func `cancelling concludes at once unless the processor is being called`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var next = scene.perform { $0.beginWork(&$1) }  // reading
        let isAlone = scene.perform { $0.cancel(&$1) }
        #expect(isAlone)
        #expect(scene.step(&next) == "read")
        #expect(scene.step(&next) == "idle")

        let other = Scene(chunks: 1, file: try Self.file())
        next = other.perform { $0.beginWork(&$1) }
        #expect(other.step(&next) == "read")  // processing
        let isSecondAlone = other.perform { $0.cancel(&$1) }
        #expect(!isSecondAlone)
        #expect(other.step(&next) == "process")
        #expect(other.step(&next) == "finish")
    }

    @Test func `a chunk that is read while suspended waits`() throws {
        let scene = Scene(chunks: 1, file: try Self.file())
        var next = scene.perform { $0.beginWork(&$1) }
        scene.perform { $0.suspend(&$1) }
        #expect(scene.step(&next) == "read")
        #expect(scene.step(&next) == "idle")
        scene.calls.value = []
        scene.perform { $0.resume(&$1) }
        #expect(scene.calls.value == ["worker"])
        #expect(scene.work().first == "process")
    }
}

#endif
