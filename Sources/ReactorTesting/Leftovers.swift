import Glibc
import Reactor
import SystemPackage

/// The descriptors, threads and run loops that tests have left when the process exits. With REACTOR_TESTING_LEFTOVERS=1 in the
/// environment, a debug build prints them, and exits with a failure.
///
/// In a debug build every descriptor of the library has an owner: those of loops whose threads live are no leftovers. The
/// pipes of libevent have none, and are recognized by their flags.
final class Leftovers: Sendable {
    /// Nil unless the process looks for leftovers.
    static let shared: Leftovers? = {
        #if DEBUG
        if environmentVariable("REACTOR_TESTING_LEFTOVERS") == "1" { return Leftovers() }
        #endif
        return nil
    }()

    /// How long to wait for what is ending: a connection that was closed may wait 30 seconds for its peer.
    private static let timeout = Duration.seconds(40)
    /// The threads of the library that last as long as the process, and run loops.
    private static let loopThreads: Set = [
        "reactor.streams", "reactor.late", "reactor.ports", "reactor.ops", "test limits",
    ]
    /// All of the library's threads that last as long as the process.
    private static let residents = loopThreads.union(["reactor.debug"])

    private struct Descriptor: Hashable {
        let number: CInt
        /// As in /proc: a path, or `pipe:[1234]`.
        let target: String
    }

    private struct State {
        /// The open descriptors, and the tests that were running when each was first seen.
        var descriptors: [Descriptor: String] = [:]
        /// The threads of tests that run, by their names.
        var threads: [String: Int] = [:]
        var isCancelled = false
    }

    private let process = getpid()
    private let before = Set(openDescriptors())
    private let state = Mutex(State())

    private init() { atexit { Leftovers.shared?.check() } }

    func threadBegins(_ name: String) { state.withLock { $0.threads[name, default: 0] += 1 } }

    func threadEnds(_ name: String) { state.withLock { $0.threads[name, default: 0] -= 1 } }

    /// Ends the search, because the process exits while tests run.
    func cancel() { state.withLock { $0.isCancelled = true } }

    /// Notes which descriptors are new while `tests` run.
    func note(_ tests: [String]) {
        let open = Self.openDescriptors()
        let names = Set(tests).sorted().joined(separator: ", ")
        state.withLock { state in
            let known = state.descriptors
            state.descriptors = [:]
            for descriptor in open { state.descriptors[descriptor] = known[descriptor] ?? names }
        }
    }

    // MARK: The end

    private func check() {
        // A child of fork(2) has its parent's.
        guard getpid() == process, !state.withLock({ $0.isCancelled }) else { return }
        let end = Deadline.now + Self.timeout
        var found = find()
        while !found.isEmpty, .now < end {
            usleep(10_000)
            found = find()
        }
        guard !found.isEmpty else { return }
        let text = found.map { "error: The tests have left \($0).\n" }.joined()
        _ = try? FileDescriptor.standardOutput.writeAll(text.utf8)
        _exit(EXIT_FAILURE)
    }

    private func find() -> [String] {
        let names = Self.threadNames()
        let (descriptors, loopCount) = leftDescriptors()
        let threads = leftThreads(names)
        // The main loop lasts, too. A thread that is left may have a loop.
        let endedCount = loopCount - names.count(where: Self.loopThreads.contains) - 1 - threads.count
        return descriptors.map { descriptor in
            let tests = state.withLock { $0.descriptors[descriptor] } ?? "none"
            let target = descriptor.target + Self.addresses(of: descriptor.number)
            return "descriptor \(descriptor.number) open (\(target)), first seen while these ran: \(tests)"
        } + threads
            + (endedCount > 0 ? ["\(counted(endedCount, "run loop")) of threads that have ended"] : [])
    }

    /// The descriptors that do not belong to a loop, and the number of loops.
    private func leftDescriptors() -> ([Descriptor], loopCount: Int) {
        let owners = DescriptorOwner.all
        let open = Self.openDescriptors().sorted { $0.number < $1.number }
        let loops = open.filter { owners[$0.number] == true }
        // libevent's pipes have no owner: each epoll of a loop has one.
        var pipeCount = loops.count { $0.target.contains("eventpoll") && !before.contains($0) }
        let new = open.filter { !before.contains($0) && owners[$0.number] != true }
        let pipes = Dictionary(grouping: new.filter(Self.mayBeOfLibevent), by: \.target)
        let left = new.filter { descriptor in
            if let ends = pipes[descriptor.target], ends.count == 2 {
                if descriptor == ends[0] { pipeCount -= 1 }
                return pipeCount < 0
            }
            // Dispatch, Foundation and GLib keep some of these, which have no owner.
            let isShared = ["eventfd", "timerfd", "eventpoll"].contains { descriptor.target.contains($0) }
            return !isShared || owners[descriptor.number] != nil
        }
        return (left, loops.count { $0.target.contains("timerfd") })
    }

    private func leftThreads(_ names: [String]) -> [String] {
        let threads = state.withLock { $0.threads }
        // A thread of Foundation has the name of the test in which Foundation has started it.
        let inherited = Set(threads.keys.map { String(decoding: $0.utf8.prefix(15), as: UTF8.self) })
        let program = Self.text(of: "/proc/self/comm")
        let others = names.filter { name in
            // Of Dispatch and of Swift Testing, which change their threads' names.
            let isForeign = name.contains("qos") || name.hasPrefix("SWT ") || name == program
            return !isForeign && !Self.residents.contains(name) && !inherited.contains(name)
        }
        return (threads.filter { $0.value > 0 }.keys + others).map { "the thread '\($0)' running" }
    }

    private static func mayBeOfLibevent(_ descriptor: Descriptor) -> Bool {
        descriptor.target.hasPrefix("pipe:") && fcntl(descriptor.number, F_GETFL) & O_NONBLOCK != 0
            && fcntl(descriptor.number, F_GETFD) == FD_CLOEXEC
    }

    /// The addresses of a socket and its peer, for a message.
    private static func addresses(of number: CInt) -> String {
        let descriptor = FileDescriptor(rawValue: number)
        let own = try? SocketAddress.local(of: descriptor)
        let peer = try? SocketAddress.peer(of: descriptor)
        return [own, peer].compactMap { $0.map { ", \($0)" } }.joined()
    }

    // MARK: /proc

    /// Without files in /proc, which Dispatch opens briefly.
    private static func openDescriptors() -> [Descriptor] {
        names(in: "/proc/self/fd").compactMap { name in
            var target = [CChar](repeating: 0, count: 256)
            let count = unsafe readlink("/proc/self/fd/\(name)", &target, target.count)
            let text = String(
                decoding: target.prefix(max(count, 0)).map(UInt8.init(bitPattern:)), as: UTF8.self)
            guard count > 0, !text.hasPrefix("/proc/"), let number = CInt(name) else { return nil }
            return Descriptor(number: number, target: text)
        }
    }

    private static func threadNames() -> [String] {
        names(in: "/proc/self/task").compactMap { text(of: "/proc/self/task/\($0)/comm") }
    }

    /// The first line of a file; nil if there is none.
    private static func text(of path: String) -> String? {
        guard let file = try? FileDescriptor.open(FilePath(path), .readOnly) else { return nil }
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = try? file.closeAfter {
            try unsafe bytes.withUnsafeMutableBytes { try unsafe file.read(into: $0) }
        }
        return count.map { String(decoding: bytes.prefix($0).prefix { $0 != 10 }, as: UTF8.self) }
    }

    private static func names(in folder: String) -> [String] {
        guard let stream = unsafe opendir(folder) else { return [] }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) {
                unsafe Array($0.prefix { $0 != 0 })
            }
            if name.first != UInt8(ascii: ".") { names.append(String(decoding: name, as: UTF8.self)) }
        }
        return names
    }
}
