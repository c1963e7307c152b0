import CReactorTestSupport
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ChildProcessRunTests {
    private typealias Reason = ChildProcess.RunError.Reason

    private func runError(
        _ body: () async throws -> ChildProcess.CollectedResult
    ) async throws -> ChildProcess.RunError {
        try #require(await #expect(throws: ChildProcess.RunError.self) { try await body() })
    }

    @Test func `a program's output, its errors and its status are returned`() async throws {
        let result = try await ChildProcess.run(
            "sh", ["-c", "cat; echo problem >&2; exit 3"], input: [65, 66])
        #expect(result.standardOutput == [65, 66])
        #expect(result.standardError == Array("problem\n".utf8))
        #expect(result.termination.reason == .exited(status: 3))
        let silent = try await ChildProcess.run("cat")
        #expect(silent.termination.isSuccess && silent.standardOutput.isEmpty)
    }

    @Test func `a program that fills its pipes in any order ends`() async throws {
        let input = [UInt8](repeating: 7, count: 1_000_000)
        let result = try await ChildProcess.run(
            "sh", ["-c", "head -c 500000 /dev/zero >&2; cat; head -c 500000 /dev/zero >&2"], input: input)
        #expect(result.standardOutput == input)
        #expect(result.standardError == [UInt8](repeating: 0, count: 1_000_000))
    }

    @Test func `a program need not read its input`() async throws {
        let input = [UInt8](repeating: 7, count: 1_000_000)
        let result = try await ChildProcess.run("sh", ["-c", "exec <&-; echo done"], input: input)
        #expect(result.standardOutput == Array("done\n".utf8) && result.termination.isSuccess)
        // Its child keeps the pipe open, and does not read it.
        let child = try await ChildProcess.run(
            "sh", ["-c", "exec 3<&0; sleep 1000 <&3 >/dev/null 2>&1 & echo $!"], input: input)
        let text = String(decoding: child.standardOutput, as: UTF8.self)
        kill(try #require(Int32(text.dropLast())), SIGKILL)
    }

    @Test func `a configuration chooses what is collected`() async throws {
        let script = "echo out; echo error >&2"
        let result = try await ChildProcess.run("sh", ["-c", script]) {
            $0.standardError = .mergedWithStandardOutput
        }
        #expect(result.standardOutput == Array("out\nerror\n".utf8) && result.standardError.isEmpty)
        let errors = try await ChildProcess.run("sh", ["-c", script]) { $0.standardOutput = .null }
        #expect(errors.standardOutput.isEmpty && errors.standardError == Array("error\n".utf8))
        let terminal = try await ChildProcess.run("sh", ["-c", "stty size <&1"]) {
            $0.terminal = .init(rows: 5, columns: 6)
        }
        #expect(terminal.standardOutput == Array("5 6\r\n".utf8))
        await #expect(throws: IOError.self) { try await ChildProcess.run("/no/such") }
        let error = await #expect(throws: IOError.self) {
            try await ChildProcess.run("true") { $0.standardOutput = .mergedWithStandardOutput }
        }
        #expect(error?.errno == .invalidArgument)
    }

    @Test func `more output than the limit ends the program's group, and what was read is in the error`()
        async throws
    {
        for (script, isOutput) in [("sleep 1000 & yes; wait", true), ("sleep 1000 & yes >&2; wait", false)] {
            let error = try await runError {
                try await ChildProcess.run("sh", ["-c", script], outputLimit: 5)
            }
            #expect(error.reason == .outputLimitExceeded(5))
            let (read, other) = (error.result.standardOutput, error.result.standardError)
            #expect((isOutput ? read : other) == Array("y\ny\ny".utf8))
            #expect(error.result.termination.reason == .signalled(.terminate, dumpedCore: false))
            #expect("\(error)" == "run sh: has written more than 5 bytes")
        }
        let result = try await ChildProcess.run("printf", ["12345"], outputLimit: 5)
        #expect(result.standardOutput.count == 5)
    }

    @Test func `what a program writes while it is ended is in the error`() async throws {
        let script = "trap 'echo cleaned up >&2; exit 3' TERM; while :; do echo y; done"
        let error = try await runError { try await ChildProcess.run("sh", ["-c", script], outputLimit: 100) }
        #expect(error.result.standardError == Array("cleaned up\n".utf8))
        #expect(error.result.termination.reason == .exited(status: 3))
    }

    @Test func `a program on a terminal reads the end of its input`() async throws {
        for input in ["one\n", "two"] {
            let result = try await ChildProcess.run("cat", input: Array(input.utf8)) {
                $0.terminal = .init(rows: 5, columns: 6)
            }
            #expect(result.termination.isSuccess)
            let output = String(decoding: result.standardOutput, as: UTF8.self)
            // What was typed, and what the program has written.
            #expect(output.split(separator: input.prefix(3), omittingEmptySubsequences: false).count == 3)
        }
    }

    @Test func `a program that closes its terminal before it ends gets no SIGHUP`() async throws {
        let result = try await ChildProcess.run("sh", ["-c", "exec <&- >&- 2>&-; sleep 0.1; exit 3"]) {
            $0.terminal = .init(rows: 5, columns: 6)
        }
        #expect(result.termination.reason == .exited(status: 3))
    }

    @Test func `what a program writes to its terminal when it has opened it again is read`() async throws {
        let script = "exec <&- >&- 2>&-; sleep 0.1; exec >/dev/tty; yes | head -c 100000"
        let result = try await ChildProcess.run("sh", ["-c", script]) {
            $0.terminal = .init(rows: 5, columns: 6)
        }
        // Each line feed comes with a carriage return.
        #expect(result.termination.isSuccess && result.standardOutput.count == 150_000)
    }

    @Test(.enabled(if: identifiesGroups))
    func `what a leader of a group has left can be ended when the leader has ended`() async throws {
        let child = try ChildProcess.shell(
            "(trap '' HUP; echo started; exec sleep 1000) & exit 3", standardOutput: .stream
        ) { $0.group = .new }
        let output = child.standardOutput!
        #expect(try await output.read(exactly: 8) == Array("started\n".utf8))
        let termination = try await RunLoop.main.termination(of: child.process)
        #expect(termination.reason == .exited(status: 3))
        child.process.terminate(killAfter: .milliseconds(1), group: true)
        #expect(try await output.readChunk() == nil)
    }

    @Test func `closing an input that was never written ends it`() async throws {
        let child = try ChildProcess.shell("cat", standardInput: .stream)
        child.standardInput!.close()
        let termination = try await RunLoop.main.termination(of: child.process)
        #expect(termination.isSuccess)
    }

    @Test func `a program that takes too long is ended`() async throws {
        let error = try await runError {
            try await ChildProcess.run("sleep", ["1000"], timeout: .milliseconds(1))
        }
        #expect(error.reason == .timedOut(.milliseconds(1)))
        #expect(error.result.termination.reason == .signalled(.terminate, dumpedCore: false))
        // It has ended, and left a program that keeps its output open.
        let late = try await runError {
            try await ChildProcess.run("sh", ["-c", "sleep 1000 & exit 9"], timeout: .milliseconds(50))
        }
        #expect(late.result.termination.reason != .unknown)
    }

    @Test(arguments: [ChildProcess.Configuration.Group.new, .newSession])
    func `cancellation ends the program and what it has started`(
        group: ChildProcess.Configuration.Group
    ) async throws {
        let pipe = try FileDescriptor.pipe()
        let script = "(trap '' TERM; echo started >&2; exec sleep 1000) & wait"
        let task = Task {
            try await ChildProcess.run("sh", ["-c", script]) {
                ($0.standardError, $0.group) = (.descriptor(pipe.writeEnd), group)
            }
        }
        let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
        #expect(try await input.readChunk() == Array("started\n".utf8))
        try pipe.writeEnd.close()
        task.cancel()
        await #expect(throws: CancellationError.self) { try await task.value }
        // No process of the group has the pipe.
        #expect(try await input.readChunk() == nil)
        input.close()
    }

    @Test func `a process that ends in its grace keeps its number`() async {
        await #expect(processExitsWith: .success) {
            let process = try ChildProcess.shell("exec sleep 1000") { $0.group = .new }.process
            process.terminate(killAfter: .seconds(1000), group: true)
            let termination = try onAThread { process.wait() }
            #expect(termination?.reason == .signalled(.terminate, dumpedCore: false))
            #expect(process.termination != nil && ChildProcess.exists(process.processIdentifier))
        }
    }

    @Test func `a process that has left the group does not delay the end of the program`() async throws {
        let folder = TemporaryFolder()
        let file = folder.path("number")
        let script =
            "setsid sh -c 'echo $$ >$0.new; mv $0.new $0; exec sleep 1000' $0 & until [ -e $0 ]; do :; done; yes"
        let error = try await runError {
            try await ChildProcess.run("sh", ["-c", script, file], outputLimit: 5)
        }
        #expect(error.reason == .outputLimitExceeded(5))
        let number = String(decoding: try #require(content(of: file)), as: UTF8.self)
        kill(try #require(Int32(number.dropLast())), SIGKILL)
    }

    /// The leak checker cannot work in a process that is refused calls.
    @Test(.enabled(if: !isSanitized)) func `a program that cannot be watched is ended`() async {
        await #expect(processExitsWith: .success) {
            #expect(try await ChildProcess.run("true").termination.isSuccess)
            guard reactor_test_refuse_epoll_additions(true) else { return }
            let pipe = try TestPipe()
            let error = await thrownError {
                _ = try await ChildProcess.run("sleep", ["1000"]) {
                    ($0.standardOutput, $0.standardError) = (.null, .null)
                    $0.descriptors[3] = pipe.writeEnd
                }
            }
            #expect((error as? IOError)?.errno == .noMemory)
            pipe.closeWriteEnd()
            var byte: UInt8 = 0
            #expect(read(pipe.readEnd.rawValue, &byte, 1) == 0)
        }
    }

    @Test func `a program that has been run leaves no process`() async throws {
        let result = try await ChildProcess.run("sh", ["-c", "echo $$"])
        let number = String(decoding: result.standardOutput, as: UTF8.self)
        #expect(!ChildProcess.exists(try #require(Int32(number.dropLast()))))
    }

    @Test func `ending a group kills what ignores SIGTERM, also after its leader has ended`() throws {
        let script = "(trap '' TERM; echo ready; while true; do sleep 1; done) & wait"
        let child = try ChildProcess.shell(script) { $0.group = .new }
        let (process, output) = (child.process, child.standardOutput!)
        output.open()
        #expect(output.read { $0.hasSuffix("\n") } == "ready\n")
        process.terminate(killAfter: .milliseconds(50), group: true)
        #expect(process.wait()?.reason == .signalled(.terminate, dumpedCore: false))
        // The pipe has no writer any more.
        #expect(output.read(upTo: 1).isEmpty)
        output.close()
        waitUntil { !ChildProcess.exists(process.processIdentifier) }
        process.terminate(killAfter: .zero, group: true)
    }
}
