import Glibc
import ReactorTestSupport
import Testing

/// How `line-reader` ends, whatever it is given to read and to write to.
@Suite struct LineReaderEndTests {
    // MARK: Input

    @Test func `a file that is missing is told of, and the others are read`() async throws {
        let file = try TemporaryFile("a\n")
        let outcome = try await running("line-reader", ["--json", "nofile", file.path, "/tmp"])
        #expect(outcome.ending == .exit(1))
        #expect(outcome["files"] == 1)
        #expect(outcome["lines"] == 1)
        #expect(
            outcome.errors == """
                line-reader: nofile: No such file or directory
                line-reader: /tmp: Is a directory

                """)
    }

    @Test(arguments: ["/dev/null", "-"]) func `nothing to read is no failure`(file: String) async throws {
        let outcome = try await running("line-reader", ["--json", file])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["files"] == 1)
        #expect(outcome["bytes"] == 0)
    }

    @Test func `an empty file is a file`() async throws {
        let file = try TemporaryFile("")
        let outcome = try await running("line-reader", ["--json", file.path])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["files"] == 1)
    }

    @Test func `without a file, standard input is read`() async throws {
        let outcome = try await running("line-reader", ["--json"], input: .pipe) { child in
            child.write("a\nb")
            child.closeInput()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["lines"] == 2)
        #expect(outcome["bytes"] == 3)
    }

    @Test func `a closed standard input is a failure`() async throws {
        let outcome = try await running("line-reader", ["--json"], input: .closed)
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard input: Bad file descriptor\n")
    }

    // MARK: Output

    @Test func `a reader that has had enough ends the reading in silence`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 500_000))
        let outcome = try await running("line-reader", ["--every", "1", file.path]) { child in
            let first = child.readOutput(lines: 1)
            child.closeOutput()
            return first
        }
        #expect(outcome.output == "1\tline\n")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test(arguments: [[], ["--every", "1"]]) func `a full disk is a failure`(options: [String]) async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 20_000))
        let outcome = try await running("line-reader", options + [file.path], output: .path("/dev/full"))
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard output: No space left on device\n")
    }

    @Test func `a closed standard output is a failure`() async throws {
        let outcome = try await running("line-reader", [], output: .closed)
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard output: Bad file descriptor\n")
    }

    // MARK: Signals

    @Test(arguments: [SIGINT, SIGTERM])
    func `a signal ends the reading, and what was read is told`(signal: CInt) async throws {
        let arguments = ["--every", "1", "--json", "-", "nofile"]
        let outcome = try await running("line-reader", arguments, input: .pipe) { child in
            child.write("a\nb\n")
            let lines = child.readOutput(lines: 2)
            child.send(signal)
            return lines + child.readOutput()
        }
        #expect(outcome.ending == .exit(128 + signal))
        #expect(outcome.output.hasPrefix("1\ta\n2\tb\n{"))
        #expect(outcome["lines"] == 2)
        #expect(outcome["bytes"] == 4)
        #expect(outcome.errors == "")
    }

    @Test func `a second signal ends a program that waits for its reader`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 500_000))
        let outcome = try await running("line-reader", ["--every", "1", file.path]) { child in
            let first = child.readOutput(lines: 1)
            // Now the worker cannot write, and so cannot end. One signal after another: which is the second
            // to be noticed shows only in the end.
            child.waitUntilOutputIsFull()
            while !child.hasEnded {
                child.send(SIGINT)
                sched_yield()
            }
            return first
        }
        #expect(outcome.ending == .signal(SIGINT))
    }
}
