import Glibc
import Synchronization
import SystemPackage

/// A pipe whose ends are closed in child processes, unless they are connected explicitly. If another child inherited
/// the write end, the reader would not reach the end when the writer closes it.
struct Pipe {
    let readEnd: CInt
    let writeEnd: CInt

    /// Locked from pipe(2) to fcntl(2), so that no child is spawned between them.
    static let lock = Mutex(())

    init() throws(Errno) {
        let ends = try Self.lock.withLock { _ throws(Errno) in
            var ends: [CInt] = [0, 0]
            guard pipe(&ends) == 0 else { throw Errno(rawValue: errno) }
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            return ends
        }
        (readEnd, writeEnd) = (ends[0], ends[1])
    }
}

/// The file actions of posix_spawn(3).
struct SpawnActions: ~Copyable {
    private var actions = posix_spawn_file_actions_t()
    /// The child has no descriptors from here on: a server would keep the test's pipes open as long as it runs.
    private var firstClosed: CInt = 3

    init() { posix_spawn_file_actions_init(&actions) }

    deinit {
        var actions = actions
        posix_spawn_file_actions_destroy(&actions)
    }

    mutating func connect(_ number: CInt, to end: Child.End, _ pipeEnd: CInt, _ flags: CInt) {
        firstClosed = max(firstClosed, number + 1)
        switch end {
        case .pipe: posix_spawn_file_actions_adddup2(&actions, pipeEnd, number)
        case .path(let path): posix_spawn_file_actions_addopen(&actions, number, path, flags, 0)
        case .closed: posix_spawn_file_actions_addclose(&actions, number)
        }
    }

    /// Starts a process with the default signal actions and no blocked signals.
    mutating func spawn(_ path: String, _ arguments: [String]) throws(Errno) -> pid_t {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var (all, none) = (sigset_t(), sigset_t())
        sigfillset(&all)
        sigemptyset(&none)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setsigmask(&attributes, &none)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))

        for number in firstClosed..<16_384 where fcntl(number, F_GETFD) == 0 {
            posix_spawn_file_actions_addclose(&actions, number)
        }
        let words = arguments.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        var identifier = pid_t()
        let code = Pipe.lock.withLock { _ in
            posix_spawn(&identifier, path, &actions, &attributes, words, environ)
        }
        guard code == 0 else { throw Errno(rawValue: code) }
        return identifier
    }
}
