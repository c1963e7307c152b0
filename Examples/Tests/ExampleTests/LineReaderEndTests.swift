import Foundation
import Glibc
import ReactorTestSupport
import SystemPackage
import Testing

/// The exit statuses, error messages and interrupted runs of `line-reader`.
@Suite struct LineReaderEndTests {
    // MARK: Input

    @Test func `a missing file is reported, and the other files are read`() async throws {
        let file = try TemporaryFile("a\n")
        let outcome = try await run("line-reader", ["--json", "nofile", file.path.string, "/tmp"])
        #expect(outcome.ending == .exit(1))
        #expect(outcome["files"] == 1)
        #expect(outcome["lines"] == 1)
        #expect(
            outcome.errors == """
                line-reader: nofile: No such file or directory
                line-reader: /tmp: Is a directory

                """)
        let inputs = outcome.objects("inputs")
        #expect(inputs.map { $0["path"] as? String } == ["nofile", file.path.string, "/tmp"])
        #expect(inputs.map { $0["whole"] as? Bool } == [false, true, false])
        let errors = ["No such file or directory", nil, "Is a directory"]
        #expect(inputs.map { $0["error"] as? String } == errors)
        #expect(inputs.map { $0["lines"] as? Int } == [0, 1, 0])
        #expect(outcome["interrupted"] == 0)
    }

    @Test func `the summary has the number of files that were not read to the end`() async throws {
        let file = try TemporaryFile("a\n")
        let outcome = try await run("line-reader", ["nofile", file.path.string])
        #expect(outcome.output.hasPrefix("1 of 2 files not read to the end\n1 lines"))
        let clean = try await run("line-reader", [file.path.string])
        #expect(clean.output.hasPrefix("1 lines"))
    }

    @Test func `quotes and control characters in a path are escaped in JSON`() async throws {
        let path = "no\"such\\file\n\u{1}"
        let outcome = try await run("line-reader", ["--json", path])
        #expect(outcome.objects("inputs").map { $0["path"] as? String } == [path])
    }

    @Test(arguments: ["/dev/null", "-"]) func `empty input is not an error`(file: String) async throws {
        let outcome = try await run("line-reader", ["--json", file])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["files"] == 1)
        #expect(outcome["bytes"] == 0)
    }

    @Test func `an empty file is counted`() async throws {
        let file = try TemporaryFile("")
        let outcome = try await run("line-reader", ["--json", file.path.string])
        #expect(outcome.ending == .exit(0))
        #expect(outcome["files"] == 1)
    }

    @Test func `without arguments, standard input is read`() async throws {
        let outcome = try await run("line-reader", ["--json"], input: .pipe) { child in
            child.write("a\nb")
            child.closeInput()
            return child.readOutput()
        }
        #expect(outcome.ending == .exit(0))
        #expect(outcome["lines"] == 2)
        #expect(outcome["bytes"] == 3)
    }

    @Test func `a closed standard input is an error`() async throws {
        let outcome = try await run("line-reader", ["--json"], input: .closed)
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard input: Bad file descriptor\n")
    }

    // MARK: Output

    @Test func `closing the output pipe ends the program without an error`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 500_000))
        let outcome = try await run("line-reader", ["--every", "1", file.path.string]) { child in
            let first = child.readOutput(lines: 1)
            child.closeOutput()
            return first
        }
        #expect(outcome.output == "1\tline\n")
        #expect(outcome.ending == .exit(0))
        #expect(outcome.errors == "")
    }

    @Test(arguments: [[], ["--every", "1"]]) func `a full disk is an error`(options: [String]) async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 20_000))
        let outcome = try await run(
            "line-reader", options + [file.path.string], output: .path("/dev/full"))
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard output: No space left on device\n")
    }

    @Test func `a closed standard output is an error`() async throws {
        let outcome = try await run("line-reader", [], output: .closed)
        #expect(outcome.ending == .exit(1))
        #expect(outcome.errors == "line-reader: standard output: Bad file descriptor\n")
    }

    // MARK: Signals

    @Test(arguments: [SIGINT, SIGTERM])
    func `a signal ends reading, and the totals are printed`(signal: CInt) async throws {
        let arguments = ["--every", "1", "--json", "-", "nofile"]
        let outcome = try await run("line-reader", arguments, input: .pipe) { child in
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
        #expect(outcome["interrupted"] == 1)
        let inputs = outcome.objects("inputs")
        #expect(inputs.map { $0["path"] as? String } == ["-", "nofile"])
        #expect(inputs.map { $0["whole"] as? Bool } == [false, false])
        #expect(inputs.map { $0["lines"] as? Int } == [2, 0])
        #expect(inputs.allSatisfy { $0["error"] is NSNull })
    }

    @Test(arguments: [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")])
    func `the summary names the signal that interrupted reading`(signal: CInt, name: String) async throws {
        let outcome = try await run("line-reader", ["--every", "1"], input: .pipe) { child in
            child.write("a\n0123456789")
            let lines = child.readOutput(lines: 1)
            child.send(signal)
            return lines + child.readOutput()
        }
        #expect(outcome.ending == .exit(128 + signal))
        #expect(
            outcome.output.hasPrefix("1\ta\nInterrupted by \(name): 1 of 1 file not read to the end\n1 lines")
        )
    }

    @Test func `after an interrupted line, the totals begin on a new line`() async throws {
        let piece = String(repeating: "x", count: 100_000)
        let outcome = try await run("line-reader", ["--every", "1", "--json"], input: .pipe) { child in
            child.write("a\n" + piece)
            let first = child.readOutput(lines: 1) + child.readOutput(bytes: 50_000)
            child.send(SIGINT)
            return first + child.readOutput()
        }
        #expect(outcome.ending == .exit(128 + SIGINT))
        #expect(outcome.output.hasPrefix("1\ta\n2\txxx"))
        #expect(outcome["lines"] == 1)
        #expect(outcome["interrupted"] == 1)
    }

    @Test func `a second signal kills a program whose output is blocked`() async throws {
        let file = try TemporaryFile(String(repeating: "line\n", count: 500_000))
        let outcome = try await run("line-reader", ["--every", "1", file.path.string]) { child in
            let first = child.readOutput(lines: 1)
            // The worker's write blocks, so the first signal cannot end the program. Signals may coalesce, so send
            // them until the process has ended.
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
