import Glibc
import Reactor
import SystemPackage
import Testing

/// Where a task runs that uses a stream.
enum TaskPlace: String, CaseIterable, Sendable {
    case loopActor, loopPreference, pool, mainActor

    /// Runs `body` there. The thread's loop runs meanwhile.
    func run<Result: Sendable>(
        _ body: nonisolated(nonsending) @escaping @Sendable (RunLoop) async throws -> Result
    ) async throws -> Result {
        try await withRunLoopThread(name: "streams") { thread in
            let loop = thread.runLoop
            switch self {
            case .loopActor: return try await Resident(thread.executor).run(loop, body)
            case .loopPreference:
                return try await Task(executorPreference: thread.executor) { try await body(loop) }.value
            case .pool: return try await Task { try await body(loop) }.value
            case .mainActor: return try await Task { @MainActor in try await body(.main) }.value
            }
        }
    }

    /// Runs `body` there as a task that can be cancelled.
    func start<Result: Sendable>(
        on thread: RunLoopThread,
        _ body: nonisolated(nonsending) @escaping @Sendable () async throws -> Result
    ) -> Task<Result, any Error> {
        switch self {
        case .loopActor:
            let resident = Resident(thread.executor)
            return Task { try await resident.run(thread.runLoop) { _ in try await body() } }
        case .loopPreference: return Task(executorPreference: thread.executor) { try await body() }
        case .pool: return Task { try await body() }
        case .mainActor: return Task { @MainActor in try await body() }
        }
    }
}

extension Resident {
    func run<Result: Sendable>(
        _ loop: RunLoop, _ body: nonisolated(nonsending) @Sendable (RunLoop) async throws -> Result
    ) async throws -> Result {
        try await body(loop)
    }
}

/// A pipe whose write end the test closes, and whose read end a stream owns.
struct Feed: Sendable {
    let readEnd: FileDescriptor
    let writeEnd: FileDescriptor

    init(_ text: String = "") throws {
        (readEnd, writeEnd) = try FileDescriptor.pipe()
        put(text)
    }

    func put(_ text: String) { put(Array(text.utf8)) }

    func put(_ bytes: [UInt8]) { #expect((try? writeEnd.writeAll(bytes)) == bytes.count) }

    func end() { try? writeEnd.close() }

    /// Writes `bytes` on a thread of its own, and ends.
    func send(_ bytes: [UInt8]) throws {
        _ = try JoinableThread {
            put(bytes)
            end()
        }
    }

    func makeStream() -> InputStream { InputStream(descriptor: readEnd, closeWhenDone: true) }
}

extension String {
    init(bytes: some Sequence<UInt8>) { self.init(decoding: Array(bytes), as: UTF8.self) }
}
