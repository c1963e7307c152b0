import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ChildProcessLifetimeTests {
    private let loop = RunLoop.current

    @Test func `the source is called once, on the loop's thread, and then it is cancelled`() throws {
        let freed = Shared(false)
        let child = try ChildProcess.shell("exit 3")
        var calls = 0
        let canary = AtEnd { freed.value = true }
        let source = ProcessSource(child.process) { [loop, canary = consume canary] source, termination in
            #expect(loop.isCurrent && source.isValid)
            #expect(termination.reason == .exited(status: 3))
            withExtendedLifetime(canary) { calls += 1 }
            if calls > 1 { source.cancel() }
        }
        try loop.add(source, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 1 && freed.value && !source.isValid)
    }

    @Test func `all sources of a process, on any loop, hear how it has ended`() throws {
        let child = try ChildProcess.shell("read line; exit 3", standardInput: .stream)
        let (process, elsewhere) = (child.process, Answer<ChildProcess.Termination.Reason>())
        let other = try RunLoopThread(name: "other")
        try other.runLoop.performSynchronously {
            let source = ProcessSource(process) { elsewhere.give($1.reason) }
            try RunLoop.current.add(source, forMode: .default)
        }
        var reasons: [ChildProcess.Termination.Reason] = []
        for _ in 0..<2 {
            try loop.add(ProcessSource(process) { reasons.append($1.reason) }, forMode: .default)
        }
        child.standardInput!.writeAllAndClose("\n")
        #expect(loop.run(in: .default) == .finished)
        #expect(reasons + [elsewhere.wait()] == Array(repeating: .exited(status: 3), count: 3))
        other.stop()
    }

    @Test func `a cancelled source is not called, and the child continues`() throws {
        let child = try ChildProcess.shell("cat", standardInput: .stream)
        let source = ProcessSource(child.process) { _, _ in Issue.record("called after it was cancelled") }
        try loop.add(source, forMode: .common)
        #expect(loop.debugDescription.contains("process \(child.process.processIdentifier)"))
        source.cancel()
        #expect(child.process.termination == nil)
        child.standardInput!.writeAllAndClose("")
        #expect(child.process.wait()?.isSuccess == true)
        #expect(loop.poll() == .finished)
    }

    @Test func `a source waits for its mode, and one that is added late is called`() throws {
        let child = try ChildProcess.shell("true")
        var calls = 0
        _ = child.process.wait()
        for mode in [RunLoop.Mode.custom, .common] {
            try loop.add(ProcessSource(child.process) { _, _ in calls += 1 }, forMode: mode)
        }
        loop.poll()
        #expect(calls == 1)
        #expect(loop.run(in: .custom) == .finished)
        #expect(calls == 2)
    }

    @Test func `waiting for a child that has ended and is traced takes hardly any processor time`()
        async throws
    {
        let lines = try await probeMainLoop("an ended child that is traced")
        #expect(lines == ["true", "true", "exited with status 0"] || lines == ["not permitted"])
    }

    // MARK: Collecting

    @Test func `a child that is released is collected when it ends`() throws {
        var child: ChildProcess.Spawned? = try ChildProcess.shell("cat", standardInput: .stream)
        let identifier = child!.process.processIdentifier
        let input = child!.standardInput!
        child = nil
        #expect(ChildProcess.exists(identifier))
        input.writeAllAndClose("")
        waitUntil { !ChildProcess.exists(identifier) }
    }

    @Test func `a child that has ended is collected with its last reference`() throws {
        var child: ChildProcess? = try ChildProcess.shell("true").process
        let identifier = child!.processIdentifier
        var request = siginfo_t()
        waitid(P_PID, id_t(identifier), &request, WEXITED | WNOWAIT)
        #expect(ChildProcess.exists(identifier))
        child = nil
        #expect(!ChildProcess.exists(identifier))
    }

    @Test func `children of other code stay theirs, and what that has collected ended for an unknown reason`()
        throws
    {
        let other = try Child("/bin/sh", ["-c", "exit 7"])
        let child = try ChildProcess.shell("exit 8").process
        #expect(child.wait()?.reason == .exited(status: 8))
        #expect(other.wait() == .exit(7))
        var action = sigaction()
        sigaction(SIGCHLD, nil, &action)
        #expect(unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 0)
        // Before Linux 6.9 a group whose leader's number may be another's gets no signal.
        let leader = try ChildProcess.shell("sleep 1000 & echo $!") { $0.group = .new }
        leader.standardOutput!.open()
        let member = try #require(Int32(leader.standardOutput!.read { $0.hasSuffix("\n") }.dropLast()))
        waitpid(leader.process.processIdentifier, nil, 0)
        #expect(leader.process.wait()?.reason == .unknown)
        expectErrno(.noSuchProcess) { try leader.process.send(.kill) }
        if identifiesGroups {
            try leader.process.send(.kill, toGroup: true)
        } else {
            expectErrno(.noSuchProcess) { try leader.process.send(.kill, toGroup: true) }
            kill(member, SIGKILL)
        }
        waitUntil { kill(member, 0) != 0 }
    }

    @Test func `a child that ignores SIGTERM is killed after the grace time`() throws {
        let child = try ChildProcess.shell("trap '' TERM; echo ready; while true; do sleep 1; done")
        child.standardOutput!.open()
        #expect(child.standardOutput!.read { $0.hasSuffix("\n") } == "ready\n")
        let start = Deadline.now
        child.process.terminate(killAfter: .milliseconds(20))
        #expect(child.process.wait()?.reason == .signalled(.kill, dumpedCore: false))
        #expect(start.duration(to: .now) >= .milliseconds(20))
    }

    @Test func `a child with a parent-death signal ends with the thread that has spawned it`() throws {
        let child = try madeElsewhere {
            var configuration = ChildProcess.Configuration("sleep", ["1000"])
            configuration.parentDeathSignal = .terminate
            return try ChildProcess.spawn(configuration).process
        }
        #expect(child.wait()?.reason == .signalled(.terminate, dumpedCore: false))
    }

    @Test func `hundreds of children run at once, and end in one pass`() throws {
        let gate = try FileDescriptor.pipe()
        var (ended, passes) = (0, 0)
        loop.observe(.beforeTimers) { _ in passes += 1 }
        let children = try (0..<200).map { _ in
            try ChildProcess.spawn(
                .init("/bin/cat", standardInput: .descriptor(gate.readEnd), standardOutput: .null)
            ).process
        }
        for child in children {
            let source = ProcessSource(child) { _, termination in ended += termination.isSuccess ? 1 : 0 }
            try loop.add(source, forMode: .default)
        }
        loop.poll()
        #expect(ended == 0)
        try gate.writeEnd.close()
        var request = siginfo_t()
        for child in children { waitid(P_PID, id_t(child.processIdentifier), &request, WEXITED | WNOWAIT) }
        passes = 0
        #expect(loop.run(in: .default) == .finished)
        #expect(ended == 200 && passes < 20)
        try gate.readEnd.close()
    }

    // MARK: Terminals

    @Test func `a terminal takes the place of pipes, and is resized`() throws {
        let script =
            "tty >/dev/null && trap 'stty size; exit 5' WINCH; stty size >&2; while read x; do :; done"
        let child = try ChildProcess.shell(
            script, standardInput: .inherited, terminal: .init(rows: 7, columns: 9))
        let output = child.standardOutput!
        output.open()
        #expect(output.read { $0.hasSuffix("\r\n") } == "7 9\r\n")
        try child.process.resizeTerminal(to: .init(rows: 30, columns: 100))
        // The shell runs its trap when its read is over.
        child.standardInput!.open()
        _ = child.standardInput!.write([10])
        #expect(output.read { $0.contains("30 100") }.contains("30 100\r\n"))
        _ = output.read { _ in false }
        #expect(output.streamStatus == .atEnd)
        #expect(child.process.wait()?.reason == .exited(status: 5))
    }

    @Test func `closing a terminal's streams hangs up`() throws {
        let child = try ChildProcess.spawn(.init("sleep", ["1000"], terminal: .init()))
        child.standardInput!.open()
        child.standardOutput!.open()
        child.standardInput!.close()
        child.standardOutput!.close()
        #expect(child.process.wait()?.reason == .signalled(.hangUp, dumpedCore: false))
        expectErrno(.badFileDescriptor) { try child.process.resizeTerminal(to: .init()) }
    }

    // MARK: Tasks

    @Test func `a task reads a child's lines, and waits for its end`() async throws {
        let home = LoopThread()
        let loop = home.loop
        try await loop.onActor {
            let child = try ChildProcess.shell("echo a; read line; exit 4", standardInput: .stream)
            let process = child.process
            var lines = child.standardOutput!.lines.makeAsyncIterator()
            let line = try await lines.next()
            #expect(line == "a")
            let late = await thrownError {
                _ = try await loop.termination(of: process, timeout: .milliseconds(1))
            }
            #expect(late?.errno == .timedOut)
            let task = Task { try await loop.termination(of: process) }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            child.standardInput!.writeAllAndClose("\n")
            let termination = try await loop.termination(of: process)
            #expect(termination.reason == .exited(status: 4))
        }
    }
}
