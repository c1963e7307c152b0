import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ChildProcessTests {
    @Test func `a child reads what is written, and its output is read`() throws {
        let child = try ChildProcess.spawn(.init("cat", standardInput: .stream, standardOutput: .stream))
        child.standardInput!.writeAllAndClose("one\ntwo\n")
        #expect(child.standardOutput!.readAll() == "one\ntwo\n")
        let termination = try #require(child.process.wait())
        #expect(termination.isSuccess && child.process.termination == termination)
        #expect(termination.maximumResidentSize > 100_000)
        expectErrno(.noSuchProcess) { try child.process.send(.terminate) }
    }

    @Test func `the exit status, or the signal that ends the child, is reported`() throws {
        for status in [0, 1, 42, 255] as [Int32] {
            let child = try ChildProcess.shell("exit \(status)")
            #expect(child.process.wait()?.reason == .exited(status: status))
        }
        for signal in [.terminate, .kill] as [Signal] {
            let child = try ChildProcess.spawn(.init("sleep", ["1000"])).process
            #expect(child.termination == nil)
            #expect(child.wait(until: .now + .milliseconds(1)) == nil)
            try child.send(signal)
            #expect(child.wait()?.reason == .signalled(signal, dumpedCore: false))
        }
    }

    @Test func `writing to a child that has closed its input fails, and names it`() throws {
        let child = try ChildProcess.shell(
            "exec <&-; echo; exec cat /dev/zero >/dev/null", standardInput: .stream)
        child.standardOutput!.open()
        #expect(child.standardOutput!.read(upTo: 1) == [10])
        let input = child.standardInput!
        input.open()
        // Another child that is being spawned may have the pipe for a moment.
        waitUntil {
            _ = input.write([0])
            return input.streamError != nil
        }
        let error = try #require(input.streamError as? IOError)
        #expect(error.errno == .brokenPipe && error.subject.contains("sh"))
        try child.process.send(.kill)
        _ = child.process.wait()
    }

    // MARK: What a child gets

    @Test func `arguments, variables and the folder arrive as they are`() throws {
        let text = try ChildProcess.output(of: "echo \"$0|$1|$2|$VARIABLE|$HOME|$PWD\"") {
            $0.arguments += ["zero", "a b", "'\"é"]
            $0.environment = .custom(["VARIABLE": "x=y z", "PATH": "/bin"])
            $0.workingDirectory = "/usr"
        }
        #expect(text == "zero|a b|'\"é|x=y z||/usr\n")
    }

    @Test func `an environment's bytes and a folder's name reach the child unchanged`() async {
        await #expect(processExitsWith: .success) {
            let folder = TemporaryFolder()
            let path = folder.path.appending(
                FilePath(platformString: [CChar(bitPattern: 0xFF), 0]).components)
            _ = path.withPlatformString { mkdir($0, 0o700) }
            defer { _ = path.withPlatformString { rmdir($0) } }
            // Not UTF-8, twice the same variable, without a name, and without an equals sign.
            let kept = [Array("A=".utf8) + [0xFF]] + ["A=2", "=B", "C", "REPLACED"].map { Array($0.utf8) }
            setEnvironment(kept + ["REMOVED=1", "REMOVED=2", "REPLACED=3"].map { Array($0.utf8) })
            let printing = try ChildProcess.spawn(
                .init(
                    "/bin/cat", ["/proc/self/environ"],
                    environment: .updated(["REMOVED": nil, "REPLACED": "new"]), standardOutput: .stream))
            let variables = printing.standardOutput!.readAllBytes().split(separator: 0).map(Array.init)
            #expect(variables == kept + [Array("REPLACED=new".utf8)])
            let telling = try ChildProcess.spawn(
                .init("/bin/pwd", workingDirectory: path, standardOutput: .stream))
            let bytes = path.withPlatformString {
                Array(UnsafeRawBufferPointer(start: $0, count: strlen($0)))
            }
            #expect(telling.standardOutput!.readAllBytes() == bytes + [10])
        }
    }

    @Test func `a program is looked up in the child's own PATH`() throws {
        let folder = TemporaryFolder()
        // Not a file that was written: a child that another test starts could still have it open for writing.
        symlink("/bin/echo", folder.path("program"))
        let path = "/nowhere:/etc/passwd:\(folder.path)"
        let child = try ChildProcess.spawn(
            .init("program", ["found"], environment: .custom(["PATH": path]), standardOutput: .stream))
        #expect(child.standardOutput!.readAll() == "found\n")
    }

    @Test func `a child has the first argument that it is given, and the group of another one`() throws {
        let leader = try ChildProcess.shell("read line", standardInput: .stream) { $0.group = .new }
        let script = "read a b c d group rest </proc/$$/stat; echo $group; tr '\\0' ' ' </proc/$$/cmdline"
        for name in [nil, "another"] {
            let text = try ChildProcess.output(of: script) {
                $0.group = .existing(leader.process.processIdentifier)
                $0.argument0 = name
            }
            #expect(text.hasPrefix("\(leader.process.processIdentifier)\n\(name ?? "/bin/sh") -c read"))
        }
        leader.standardInput?.writeAllAndClose("\n")
        #expect(leader.process.wait()?.isSuccess == true)
    }

    @Test func `signals are neither blocked nor ignored in a child`() throws {
        signal(SIGUSR2, SIG_IGN)
        try onAThread {
            var all = sigset_t()
            sigfillset(&all)
            pthread_sigmask(SIG_SETMASK, &all, nil)
            let text = try ChildProcess.output(of: "grep -E 'Sig(Blk|Ign)' /proc/self/status")
            let masks = text.split(separator: "\n").compactMap { UInt64($0.suffix(16), radix: 16) }
            // Signals 32 and 33 are the C library's.
            #expect(masks.map { $0 & ~(3 << 31) } == [0, 0])
        }
    }

    @Test func `a child has the standard descriptors and those that are passed, under any numbers`() throws {
        // Without O_CLOEXEC, and under each other's numbers.
        let (one, other) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
        for (pipe, text) in [(one, "a"), (other, "b")] {
            try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll(text.utf8) }
        }
        let numbers = [one.readEnd.rawValue, other.readEnd.rawValue]
        let text = try ChildProcess.output(of: "ls /proc/$$/fd; cat /proc/self/fd/$0 /proc/self/fd/$1") {
            $0.arguments += numbers.map { "\($0)" }
            $0.descriptors = [numbers[0]: other.readEnd, numbers[1]: one.readEnd]
        }
        let expected = Set(["0", "1", "2", "ba"] + numbers.map { "\($0)" })
        #expect(Set(text.split(separator: "\n").map(String.init)) == expected)
        for pipe in [one, other] { try pipe.readEnd.close() }
    }

    @Test func `standard streams may be files, descriptors, nothing, and each other`() throws {
        let (input, folder) = (try TemporaryFile("input\n"), TemporaryFolder())
        let file = folder.path.appending("output")
        for append in [false, true] {
            let child = try ChildProcess.shell("cat; echo error >&2", standardInput: .file(input.path)) {
                $0.standardOutput = .file(file, append: append)
                $0.standardError = .mergedWithStandardOutput
            }
            #expect(child.standardInput == nil && child.standardOutput == nil)
            #expect(child.process.wait()?.isSuccess == true)
        }
        #expect(InputStream(path: file).readAll() == "input\nerror\ninput\nerror\n")
        let child = try ChildProcess.shell("echo out; echo error >&2") { $0.standardError = .stream }
        #expect(child.standardError!.readAll() == "error\n")
        #expect(child.standardOutput!.readAll() == "out\n")
        let text = try ChildProcess.output(of: "cat; echo $?; echo x >&2") { $0.standardError = .null }
        #expect(text == "0\n")
    }

    @Test func `a child may lead a group, which is signalled together, or a session`() throws {
        let leader = try ChildProcess.shell("sleep 1000 & echo $!; wait") { $0.group = .new }
        leader.standardOutput!.open()
        let other = try #require(Int32(leader.standardOutput!.read { $0.hasSuffix("\n") }.dropLast()))
        #expect(getpgid(other) == leader.process.processIdentifier)
        try leader.process.send(.kill, toGroup: true)
        #expect(leader.process.wait()?.reason == .signalled(.kill, dumpedCore: false))
        // The pipe has no writer any more.
        #expect(leader.standardOutput!.read(upTo: 1).isEmpty)
        let child = try ChildProcess.shell("cat", standardInput: .stream) { $0.group = .newSession }
        #expect(getsid(child.process.processIdentifier) == child.process.processIdentifier)
        expectErrno(Errno(rawValue: ENOTTY)) {
            try child.process.resizeTerminal(to: .init(rows: 1, columns: 1))
        }
        child.standardInput!.writeAllAndClose("")
        #expect(child.process.wait()?.isSuccess == true)
    }

    // MARK: Failures

    @Test func `a failure names the program or the folder, and leaves no process`() async {
        await #expect(processExitsWith: .success) {
            let cases: [(ChildProcess.Configuration, Errno)] = [
                (.init("/no/such/program"), .noSuchFileOrDirectory),
                (.init("no-such-program"), .noSuchFileOrDirectory),
                (.init(""), .noSuchFileOrDirectory),
                (.init("/etc/passwd"), .permissionDenied),
                (.init("ls", workingDirectory: "/no/folder"), .noSuchFileOrDirectory),
                (.init("ls", standardInput: .file("/no/file")), .noSuchFileOrDirectory),
                (.init("ls", ["a\0b"]), .invalidArgument),
                (.init("ls", environment: .custom(["a=b": "c"])), .invalidArgument),
                (.init("ls", [String(repeating: "x", count: 1 << 21)]), .argListTooLong),
                (.init("ls", group: .existing(1 << 22)), .notPermitted),
                (.init("ls", group: .existing(-7)), .invalidArgument),
                (.init("ls", group: .existing(0)), .invalidArgument),
            ]
            for (configuration, errno) in cases {
                let error = #expect(throws: IOError.self) { _ = try ChildProcess.spawn(configuration) }
                #expect(error?.errno == errno)
                let named = configuration.workingDirectory?.string ?? configuration.executable
                #expect(error?.subject == "/no/file" || error?.subject.contains(named) == true)
                #expect(waitpid(-1, nil, WNOHANG) == -1 && Glibc.errno == ECHILD)
            }
        }
    }
}

/// Replaces the process's environment (environ(7)).
private func setEnvironment(_ entries: [[UInt8]]) {
    typealias List = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
    let list = List.allocate(capacity: entries.count + 1)
    for (index, entry) in entries.enumerated() {
        list[index] = (entry + [0]).withUnsafeBytes {
            strdup($0.baseAddress!.assumingMemoryBound(to: CChar.self))
        }
    }
    list[entries.count] = nil
    dlsym(nil, "environ")!.assumingMemoryBound(to: List?.self).pointee = list
}
