import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Child processes where something runs out or is missing.
@Suite(.runLoop) struct ChildProcessLimitTests {
    @Test func `with fewer descriptors than a child needs nothing is spawned, and none is lost`() async {
        await #expect(processExitsWith: .success) {
            let inherited = ChildProcess.Configuration("/bin/true")
            var streams = ChildProcess.Configuration(
                "/bin/true", standardInput: .stream, standardOutput: .stream)
            streams.standardError = .stream
            // The pidfd; for each stream a pipe, and a copy of its end in the child, which has no pidfd.
            for (configuration, needed) in [(inherited, 1), (streams, 9)] {
                // Another thread of the process may open or close one.
                func isEver(_ expected: Errno?, with count: Int) -> Bool {
                    (0..<1000).contains { _ in
                        let limit = DescriptorLimit()
                        let before = ownDescriptors()
                        limit.leave(count)
                        let result = Result { try ChildProcess.spawn(configuration) }
                        limit.restore()
                        switch result {
                        case .success(let child):
                            return child.process.wait()?.isSuccess == true && expected == nil
                        case .failure(let error):
                            waitUntil { ownDescriptors() <= before }
                            return error.errno == expected
                        }
                    }
                }
                for count in 0..<needed {
                    #expect(isEver(.tooManyOpenFiles, with: count))
                    #expect(waitpid(-1, nil, WNOHANG) == -1)
                }
                #expect(isEver(nil, with: needed))
            }
        }
    }

    @Test func `without processes nothing is spawned`() async {
        await #expect(processExitsWith: .success) {
            let before = ownDescriptors()
            let error = withoutProcesses {
                #expect(throws: IOError.self) { _ = try ChildProcess.shell("true") }
            }
            #expect(error?.errno == .resourceTemporarilyUnavailable)
            waitUntil { ownDescriptors() <= before }
        }
    }

    @Test func `a released child is collected without descriptors for libdispatch`() async {
        await #expect(processExitsWith: .success) {
            var child: ChildProcess.Spawned? = try ChildProcess.shell("cat", standardInput: .stream)
            let identifier = child!.process.processIdentifier
            let input = child!.standardInput!
            input.open()
            let limit = DescriptorLimit()
            limit.leave(0)
            child = nil
            input.close()
            waitUntil { !ChildProcess.exists(identifier) }
            limit.restore()
        }
    }

    @Test func `a descriptor is passed under the highest number that the limit allows`() async {
        await #expect(processExitsWith: .success) {
            DescriptorLimit.set(512)
            let file = try TemporaryFile("text")
            let opened = try FileDescriptor.open(file.path, .readOnly)
            let text = try ChildProcess.output(of: "cat /proc/self/fd/511") { $0.descriptors = [511: opened] }
            #expect(text == "text")
        }
    }

    @Test func `without close_range(2) no descriptor reaches a child, also above the limit`() async {
        await #expect(processExitsWith: .success) {
            #expect(fcntl(STDIN_FILENO, F_DUPFD, 500) >= 500)
            DescriptorLimit.set(400)
            try onAThread {
                #expect(reactor_test_refuse_close_range())
                let listed = try ChildProcess.output(of: "ls /proc/$$/fd")
                #expect(listed == "0\n1\n2\n")
            }
        }
    }

    @Test func `signals do not prolong a wait`() throws {
        signal(SIGURG) { _ in }
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        let (isOver, thread) = (Shared(false), pthread_self())
        let sender = try JoinableThread {
            for _ in 0..<5000 where !isOver.value {
                pthread_kill(thread, SIGURG)
                usleep(1000)
            }
            #expect(isOver.value, "the wait has lasted as long as the signals")
        }
        #expect(child.wait(until: .now + .milliseconds(20)) == nil)
        isOver.value = true
        sender.join()
        try child.send(.kill)
        _ = child.wait()
    }

    @Test func `a child whose program ends first continues, and reads the end of its input`() async {
        let folder = TemporaryFolder()
        let path = folder.path("output")
        await #expect(processExitsWith: .success) { [path = path as String] in
            let child = try ChildProcess.shell(
                "cat; echo survived", standardInput: .stream, standardOutput: .file(FilePath(path)))
            child.standardInput!.open()
            _ = synchronously { child.standardInput!.write(Array("read\n".utf8)) }
            // Not closed before the process ends.
            keptStream = child.standardInput
        }
        waitUntil { content(of: path) == Array("read\nsurvived\n".utf8) }
    }
}

/// A stream that a process does not release before it ends.
private nonisolated(unsafe) var keptStream: OutputStream?

/// Limits how many descriptors this process may open.
private struct DescriptorLimit {
    /// Every number below is open; none from here on.
    private let first: CInt
    private let former = Self.current

    init() {
        // Descriptors of other tests may be inherited, with any numbers.
        let highest = (0..<CInt(clamping: min(former, 65_536))).last { fcntl($0, F_GETFD) >= 0 } ?? 0
        while true {
            let duplicate = dup(STDIN_FILENO)
            guard duplicate > highest else { continue }
            close(duplicate)
            break
        }
        first = highest + 1
    }

    /// Lets the process open `count` more.
    func leave(_ count: Int) { Self.set(Int(first) + count) }

    func restore() { Self.set(Int(former)) }

    static func set(_ count: Int) {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = rlim_t(count)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    private static var current: rlim_t {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        return limit.rlim_cur
    }
}
