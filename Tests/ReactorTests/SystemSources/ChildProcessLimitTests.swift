import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Child processes where something runs out, is missing, or where other code takes part.
@Suite(.runLoop) struct ChildProcessLimitTests {
    // MARK: Exhaustion

    @Test func `with fewer descriptors than a child needs nothing is spawned, and none is lost`() async {
        await #expect(processExitsWith: .success) {
            // libdispatch opens its own descriptors now.
            try await Task.sleep(for: .milliseconds(1))
            let inherited = ChildProcess.Configuration("/bin/true")
            var streams = ChildProcess.Configuration(
                "/bin/true", standardInput: .stream, standardOutput: .stream)
            streams.standardError = .stream
            // The pidfd; for each stream a pipe, and a copy of its end in the child, which has no pidfd.
            for (configuration, needed) in [(inherited, 1), (streams, 9)] {
                let limit = DescriptorLimit()
                let before = ownDescriptors()
                // Another thread of the process may open or close one for a moment.
                func isEver(_ expected: Errno?, with count: Int) -> Bool {
                    (0..<1000).contains { _ in
                        limit.leave(count)
                        let result = Result { try ChildProcess.spawn(configuration) }
                        limit.restore()
                        switch result {
                        case .success(let child):
                            return child.process.wait()?.isSuccess == true && expected == nil
                        case .failure(let error): return (error as? IOError)?.errno == expected
                        }
                    }
                }
                for count in 0..<needed {
                    #expect(isEver(.tooManyOpenFiles, with: count))
                    waitUntil { ownDescriptors() <= before }
                    #expect(waitpid(-1, nil, WNOHANG) == -1)
                }
                #expect(isEver(nil, with: needed))
            }
        }
    }

    @Test func `a descriptor is passed under the highest number that the limit allows`() async {
        await #expect(processExitsWith: .success) {
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = 512
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            let file = try TemporaryFile("text")
            let opened = try FileDescriptor.open(file.path, .readOnly)
            let text = try ChildProcess.output(of: "cat /proc/self/fd/511") { $0.descriptors = [511: opened] }
            #expect(text == "text")
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

    @Test func `without close_range(2) no descriptor reaches a child, also above the limit`() async {
        await #expect(processExitsWith: .success) {
            let copy = fcntl(STDIN_FILENO, F_DUPFD, 500)
            #expect(copy >= 500, "\(copy)")
            var limit = rlimit()
            getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            limit.rlim_cur = 400
            setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
            try onAThread {
                #expect(reactor_test_refuse_close_range(), "\(errno)")
                let listed = try ChildProcess.output(of: "ls /proc/$$/fd")
                #expect(listed == "0\n1\n2\n", "\(listed)")
            }
        }
    }

    // MARK: Other code

    @Test func `a group whose leader other code has collected gets no signal`() throws {
        let child = try ChildProcess.shell("sleep 1000 & echo $!") { $0.group = .new }
        child.standardOutput!.open()
        let member = try #require(Int32(child.standardOutput!.read { $0.hasSuffix("\n") }.dropLast()))
        waitpid(child.process.processIdentifier, nil, 0)
        #expect(throws: Errno.noSuchProcess) { try child.process.sendToGroup(SIGKILL) }
        #expect(throws: Errno.noSuchProcess) { try child.process.send(SIGKILL) }
        kill(member, SIGKILL)
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
        #expect(child.wait(until: .now.advanced(by: .milliseconds(20))) == nil)
        isOver.value = true
        sender.join()
        try child.send(SIGKILL)
        _ = child.wait()
    }

    @Test func `a child whose program ends first goes on, and reads the end of its input`() async {
        let folder = TemporaryFolder()
        let path = folder.path("output")
        await #expect(processExitsWith: .success) { [path = path as String] in
            let child = try ChildProcess.shell(
                "cat; echo survived", standardInput: .stream, standardOutput: .file(FilePath(path)))
            child.standardInput!.open()
            child.standardInput!.write(Array("read\n".utf8))
            // Not closed before the process ends.
            _ = Unmanaged.passRetained(child.standardInput!)
        }
        waitUntil { InputStream(path: FilePath(path)).readAll() == "read\nsurvived\n" }
    }
}

/// Limits how many descriptors this process may open.
private struct DescriptorLimit {
    /// Every number below is open; none from here on.
    private let first: CInt
    private let former: rlimit

    init() {
        var limit = rlimit()
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        former = limit
        // Descriptors of other tests may be inherited, with any numbers.
        let highest = (0..<CInt(clamping: min(limit.rlim_cur, 65_536))).last { fcntl($0, F_GETFD) >= 0 } ?? 0
        while dup(STDIN_FILENO) <= highest {}
        first = CInt(highest) + 2
    }

    /// Lets the process open `count` more.
    func leave(_ count: Int) {
        var limit = rlimit(rlim_cur: rlim_t(Int(first) + count), rlim_max: former.rlim_max)
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }

    func restore() {
        var limit = former
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}
