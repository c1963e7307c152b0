import Dispatch
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ChildProcessLifetimeTests {
    @Test func `the source is called once, on the loop's thread, and then it is cancelled`() throws {
        let loop = RunLoop.current
        let freed = Shared(false)
        let child = try ChildProcess.shell("exit 3")
        var calls = 0
        let source = makeSource(child.process, AtEnd { freed.value = true }) { source, termination in
            #expect(loop.isCurrent && source.isValid)
            #expect(termination.reason == .exited(status: 3))
            calls += 1
        }
        try loop.add(source, forMode: .default)
        #expect(loop.run(in: .default) == .finished)
        #expect(calls == 1)
        #expect(freed.value)
        #expect(!source.isValid)
    }

    @Test func `a cancelled source is not called, and the child goes on`() throws {
        let loop = RunLoop.current
        let freed = Shared(false)
        let child = try ChildProcess.shell("cat", standardInput: .stream)
        let source = makeSource(child.process, AtEnd { freed.value = true }) { _, _ in
            Issue.record("called after it was cancelled")
        }
        try loop.add(source, forMode: .common)
        source.cancel()
        #expect(freed.value)
        #expect(child.process.termination == nil)
        child.standardInput!.writeAllAndClose("")
        #expect(child.process.wait()?.isSuccess == true)
        #expect(loop.poll() == .finished)
    }

    @Test func `a source waits for its mode, and one that is added late is called`() throws {
        let loop = RunLoop.current
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

    @Test func `a thread that ends cancels its sources`() async throws {
        let freed = Countdown(1)
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        try await onItsOwnThread {
            let source = makeSource(child, AtEnd { freed.count() }) { _, _ in }
            try RunLoop.current.add(source, forMode: .default)
            RunLoop.current.poll()
        }
        freed.wait()
        child.terminate(killAfter: .seconds(1000))
        try await onItsOwnThread { #expect(child.wait()?.reason == .signalled(SIGTERM, dumpedCore: false)) }
    }

    @Test func `the loop's dump names the process`() throws {
        let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
        let source = ProcessSource(child) { _, _ in }
        try RunLoop.current.add(source, forMode: .default)
        let line = "process \(child.processIdentifier) (sleep): running"
        #expect(RunLoop.current.debugDescription.contains(line))
        #expect(source.explain().contains("has nothing to report: the process is running"))
        source.cancel()
        try child.send(SIGKILL)
        _ = child.wait()
        #expect("\(child)" == "process \(child.processIdentifier) (sleep): ended by signal 9")
    }

    @Test func `waiting for a child that has ended and is traced takes hardly any processor time`()
        async throws
    {
        let lines = try await probeMainLoop("an ended child that is traced")
        #expect(lines == ["true", "true", "exited with status 0"] || lines == ["not permitted"])
    }

    // MARK: Collecting

    @Test func `a child that nothing waits for is collected when it ends`() throws {
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

    @Test func `children of other code stay theirs, and SIGCHLD has no handler`() throws {
        let other = try Child("/bin/sh", ["-c", "exit 7"])
        let child = try ChildProcess.shell("exit 8")
        #expect(child.process.wait()?.reason == .exited(status: 8))
        #expect(other.wait() == .exit(7))
        var action = sigaction()
        sigaction(SIGCHLD, nil, &action)
        #expect(unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 0)
    }

    @Test func `a child that other code has collected has ended for an unknown reason`() throws {
        let child = try ChildProcess.shell("true").process
        waitpid(child.processIdentifier, nil, 0)
        #expect(child.wait()?.reason == .unknown)
        #expect(throws: Errno.noSuchProcess) { try child.sendToGroup(SIGTERM) }
    }

    @Test func `a child that ignores SIGTERM is killed after the grace time`() throws {
        let child = try ChildProcess.shell("trap '' TERM; echo ready; while true; do sleep 1; done")
        child.standardOutput!.open()
        #expect(child.standardOutput!.read { $0.hasSuffix("\n") } == "ready\n")
        let start = Deadline.now
        child.process.terminate(killAfter: .milliseconds(20))
        #expect(child.process.wait()?.reason == .signalled(SIGKILL, dumpedCore: false))
        #expect(start.duration(to: .now) >= .milliseconds(20))
    }

    @Test func `a child with a parent-death signal ends with the thread that has spawned it`() async throws {
        let child = try await onItsOwnThread {
            var configuration = ChildProcess.Configuration("sleep", ["1000"])
            configuration.parentDeathSignal = SIGTERM
            return try ChildProcess.spawn(configuration).process
        }
        try await onItsOwnThread { #expect(child.wait()?.reason == .signalled(SIGTERM, dumpedCore: false)) }
    }

    // MARK: Many

    @Test func `a thousand children run at once, and end in one pass`() throws {
        let loop = RunLoop.current
        let gate = try FileDescriptor.pipe()
        var (ended, passes) = (0, 0)
        var children: [ChildProcess] = []
        loop.observe(.beforeTimers) { _ in passes += 1 }
        for _ in 0..<1_000 {
            let child = try ChildProcess.spawn(
                .init("/bin/cat", standardInput: .descriptor(gate.readEnd), standardOutput: .null))
            children.append(child.process)
            let source = ProcessSource(child.process) { _, termination in
                #expect(termination.isSuccess)
                ended += 1
            }
            try loop.add(source, forMode: .default)
        }
        loop.poll()
        #expect(ended == 0)
        try gate.writeEnd.close()
        var request = siginfo_t()
        for child in children {
            waitid(P_PID, id_t(child.processIdentifier), &request, WEXITED | WNOWAIT)
        }
        passes = 0
        #expect(loop.run(in: .default) == .finished)
        #expect(ended == 1_000)
        #expect(passes < 1_000)
        try gate.readEnd.close()
    }

    @Test func `output arrives line by line while the child runs`() async throws {
        let lines = try await onItsOwnThread { () -> [String] in
            let pipe = try FileDescriptor.pipe()
            let child = try ChildProcess.shell(
                "while read line; do echo \"got $line\"; done", standardInput: .descriptor(pipe.readEnd))
            try pipe.readEnd.close()
            try pipe.writeEnd.writeAll("1\n".utf8)
            let reader = LineReader(
                child.standardOutput!, text: .repair, into: [String](), on: DispatchQueue(label: "lines")
            ) { lines, text, _ in
                lines.append(text)
                // The next line is written when this one has come.
                guard lines.count < 3 else { return try! pipe.writeEnd.close() }
                _ = try! pipe.writeEnd.writeAll("\(lines.count + 1)\n".utf8)
            }
            var lines: [String] = []
            reader.start { report in
                lines = report.output.value
                RunLoop.current.stop()
            }
            RunLoop.current.run(in: .default)
            _ = child.process.wait()
            return lines
        }
        #expect(lines == ["got 1", "got 2", "got 3"])
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
        child.standardInput!.write([10])
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
        #expect(child.process.wait()?.reason == .signalled(SIGHUP, dumpedCore: false))
        #expect(throws: Errno.badFileDescriptor) { try child.process.resizeTerminal(to: .init()) }
    }

    // MARK: Tasks

    @Test func `a task waits for the end`() async throws {
        try await withRunLoopThread(name: "children") { thread in
            let loop = thread.runLoop
            let child = try ChildProcess.shell("read line; exit 4", standardInput: .stream)
            let process = child.process
            let error = await #expect(throws: IOError.self) {
                try await loop.termination(of: process, timeout: .milliseconds(1))
            }
            #expect(error?.errno == .timedOut)
            let task = Task { try await loop.termination(of: process) }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            child.standardInput!.writeAllAndClose("\n")
            let termination = try await loop.termination(of: process)
            #expect(termination.reason == .exited(status: 4))
        }
    }

    @Test func `a task reads lines`() async throws {
        try await withRunLoopThread(name: "children") { thread in
            let lines = try await thread.runLoop.onActor {
                var lines: [String] = []
                let child = try ChildProcess.shell("echo a; echo b")
                for try await line in child.standardOutput!.lines { lines.append(line) }
                _ = try await thread.runLoop.termination(of: child.process)
                return lines
            }
            #expect(lines == ["a", "b"])
        }
    }
}

/// A source whose handler is all that holds `canary`.
private func makeSource(
    _ process: ChildProcess, _ canary: AtEnd,
    _ body: @escaping (ProcessSource, ChildProcess.Termination) -> Void
) -> ProcessSource {
    ProcessSource(process) { source, termination in
        withExtendedLifetime(canary) { body(source, termination) }
    }
}
