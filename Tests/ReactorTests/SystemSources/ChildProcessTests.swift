import CReactorTestSupport
import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ChildProcessTests {
    @Test func `a child reads what is written, and its output is read`() async throws {
        let text = try await onItsOwnThread {
            let child = try ChildProcess.spawn(
                .init("cat", standardInput: .stream, standardOutput: .stream))
            child.standardInput!.writeAllAndClose("one\ntwo\n")
            let text = child.standardOutput!.readAll()
            #expect(child.process.wait()?.isSuccess == true)
            return text
        }
        #expect(text == "one\ntwo\n")
    }

    @Test(arguments: [0, 1, 42, 255] as [Int32])
    func `the exit status is reported`(status: Int32) throws {
        let child = try ChildProcess.shell("exit \(status)")
        let termination = child.process.wait()
        #expect(termination?.reason == .exited(status: status))
        #expect(child.process.termination == termination)
        #expect(throws: Errno.noSuchProcess) { try child.process.send(SIGTERM) }
    }

    @Test func `a signal that ends the child is reported`() throws {
        for signal in [SIGTERM, SIGKILL] {
            let child = try ChildProcess.spawn(.init("sleep", ["1000"]))
            #expect(child.process.termination == nil)
            #expect(child.process.wait(until: .now.advanced(by: .milliseconds(1))) == nil)
            try child.process.send(signal)
            #expect(child.process.wait()?.reason == .signalled(signal, dumpedCore: false))
        }
    }

    @Test func `the use of resources is reported`() throws {
        let child = try ChildProcess.shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
        let use = try #require(child.process.wait()).resourceUse
        #expect(use.userTime > .zero)
        #expect(use.maximumResidentSize > 100_000)
        #expect(use.minorFaults > 0)
    }

    @Test func `writing to a child that has ended fails, and names it`() async throws {
        try await onItsOwnThread {
            let child = try ChildProcess.shell(
                "exec <&-; echo; exec cat /dev/zero >/dev/null", standardInput: .stream)
            child.standardOutput!.open()
            #expect(child.standardOutput!.read(upTo: 1) == [10])
            let input = child.standardInput!
            input.open()
            // Another child that is being spawned may have the pipe for a moment.
            waitUntil {
                input.write([0])
                return input.streamError != nil
            }
            let error = try #require(input.streamError as? IOError)
            #expect(error.errno == .brokenPipe && error.subject.hasSuffix("(sh)"))
            try child.process.send(SIGKILL)
            _ = child.process.wait()
        }
    }

    // MARK: What a child gets

    @Test func `arguments, variables and the folder arrive as they are`() async throws {
        let text = try await onItsOwnThread {
            try ChildProcess.output(of: "echo \"$0|$1|$2|$VARIABLE|$HOME|$PWD\"") {
                $0.arguments += ["zero", "a b", "'\"é"]
                $0.environment = .custom(["VARIABLE": "x=y z", "PATH": "/bin"])
                $0.workingDirectory = "/usr"
            }
        }
        #expect(text == "zero|a b|'\"é|x=y z||/usr\n")
    }

    @Test func `the environment is inherited, with changes`() async throws {
        let text = try await onItsOwnThread {
            setenv("REACTOR_KEPT", "kept", 1)
            setenv("REACTOR_REMOVED", "removed", 1)
            return try ChildProcess.output(of: "echo $REACTOR_KEPT-$REACTOR_REMOVED-$REACTOR_NEW") {
                $0.environment = .updated(["REACTOR_REMOVED": nil, "REACTOR_NEW": "new"])
            }
        }
        #expect(text == "kept--new\n")
    }

    @Test func `an environment's bytes and a folder's name reach the child unchanged`() async {
        await #expect(processExitsWith: .success) {
            let folder = TemporaryFolder()
            let name = FilePath(platformString: [CChar(bitPattern: 0xFF), 0])
            let path = folder.path.appending(name.components)
            mkdir(path, 0o700)
            defer { rmdir(path) }
            // Not UTF-8, twice the same variable, without a name, and without an equals sign.
            let entries: [[UInt8]] = [
                Array("A=".utf8) + [0xFF], Array("A=2".utf8), Array("=B".utf8), Array("C".utf8),
                Array("REMOVED=1".utf8), Array("REMOVED=2".utf8), Array("REPLACED".utf8),
                Array("REPLACED=3".utf8),
            ]
            setEnvironment(entries)
            var configuration = ChildProcess.Configuration(
                "/bin/cat", ["/proc/self/environ"],
                environment: .updated(["REMOVED": nil, "REPLACED": "new"]), standardOutput: .stream)
            let kept = Array(entries[...3]) + [entries[6], Array("REPLACED=new".utf8)]
            var child = try ChildProcess.spawn(configuration)
            #expect(child.standardOutput!.readAllBytes().split(separator: 0).map(Array.init) == kept)
            configuration = .init("/bin/pwd", workingDirectory: path, standardOutput: .stream)
            child = try ChildProcess.spawn(configuration)
            #expect(child.standardOutput!.readAllBytes() == path.bytes + [10])
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

    @Test func `signals are neither blocked nor ignored in a child`() async throws {
        let text = try await onItsOwnThread {
            signal(SIGUSR2, SIG_IGN)
            var all = sigset_t()
            sigfillset(&all)
            pthread_sigmask(SIG_SETMASK, &all, nil)
            return try ChildProcess.output(of: "grep -E 'Sig(Blk|Ign)' /proc/self/status")
        }
        let masks = text.split(separator: "\n").compactMap { UInt64($0.suffix(16), radix: 16) }
        // Signals 32 and 33 are the C library's.
        #expect(masks.map { $0 & ~(3 << 31) } == [0, 0])
    }

    @Test func `a child has no descriptors but the standard ones and those that are passed`() async throws {
        let text = try await onItsOwnThread {
            let pipe = try FileDescriptor.pipe()  // without O_CLOEXEC
            defer { try? pipe.readEnd.close() }
            try pipe.writeEnd.closeAfter { _ = try pipe.writeEnd.writeAll("abc".utf8) }
            return try ChildProcess.output(of: "ls /proc/$$/fd; cat <&7") {
                $0.descriptors = [7: pipe.readEnd]
            }
        }
        #expect(text == "0\n1\n2\n7\nabc")
    }

    @Test func `descriptors are passed under numbers that others of them have here`() async throws {
        let text = try await onItsOwnThread { () -> String in
            let files = try ["a", "b"].map { try TemporaryFile($0) }
            let opened = try files.map { try FileDescriptor.open($0.path, .readOnly) }
            defer { for descriptor in opened { try? descriptor.close() } }
            let numbers = opened.map(\.rawValue)
            return try ChildProcess.output(of: "cat /proc/self/fd/$0 /proc/self/fd/$1") {
                $0.arguments += numbers.map { "\($0)" }
                $0.descriptors = [numbers[0]: opened[1], numbers[1]: opened[0]]
            }
        }
        #expect(text == "ba")
    }

    @Test func `standard streams may be files, descriptors, nothing, and each other`() throws {
        let (input, folder) = (try TemporaryFile("input\n"), TemporaryFolder())
        let file = folder.path.appending("output")
        for append in [false, true] {
            let child = try ChildProcess.shell("cat; echo error >&2", standardInput: .file(input.path)) {
                $0.standardOutput = .file(file, append: append)
                $0.standardError = .standardOutput
            }
            #expect(child.standardInput == nil && child.standardOutput == nil)
            #expect(child.process.wait()?.isSuccess == true)
        }
        #expect(InputStream(path: file).readAll() == "input\nerror\ninput\nerror\n")
        let child = try ChildProcess.shell("echo out; echo error >&2") { $0.standardError = .stream }
        #expect(child.standardError!.readAll() == "error\n")
        #expect(child.standardOutput!.readAll() == "out\n")
        #expect(
            try ChildProcess.output(of: "cat; echo $?; echo x >&2") { $0.standardError = .null } == "0\n")
    }

    @Test func `a group is signalled together`() throws {
        let child = try ChildProcess.shell("sleep 1000 & echo $!; wait") { $0.group = .new }
        child.standardOutput!.open()
        let other = try #require(Int32(child.standardOutput!.read { $0.hasSuffix("\n") }.dropLast()))
        #expect(getpgid(other) == child.process.processIdentifier)
        try child.process.sendToGroup(SIGKILL)
        #expect(child.process.wait()?.reason == .signalled(SIGKILL, dumpedCore: false))
        // The pipe has no writer any more.
        #expect(child.standardOutput!.read(upTo: 1).isEmpty)
        #expect(throws: Errno.noSuchProcess) { try child.process.sendToGroup(SIGKILL) }
    }

    @Test func `a child may lead a session`() throws {
        let child = try ChildProcess.shell("cat", standardInput: .stream) { $0.group = .newSession }
        #expect(getsid(child.process.processIdentifier) == child.process.processIdentifier)
        #expect(throws: Errno(rawValue: ENOTTY)) {
            try child.process.resizeTerminal(to: .init(rows: 1, columns: 1))
        }
        child.standardInput!.writeAllAndClose("")
        #expect(child.process.wait()?.isSuccess == true)
    }

    // MARK: Failures

    @Test func `a failure names the program or the folder, and leaves no process`() throws {
        let cases: [(ChildProcess.Configuration, String)] = [
            (.init("/no/such/program"), "spawn /no/such/program: No such file or directory"),
            (.init("no-such-program"), "spawn no-such-program: No such file or directory"),
            (.init(""), "spawn : No such file or directory"),
            (.init("/etc/passwd"), "spawn /etc/passwd: Permission denied"),
            (
                .init("ls", workingDirectory: "/no/folder"),
                "spawn ls in /no/folder: No such file or directory"
            ),
            (.init("ls", standardInput: .file("/no/file")), "open /no/file: No such file or directory"),
            (.init("ls", ["a\0b"]), "spawn ls: Invalid argument"),
            (.init("ls", environment: .custom(["a=b": "c"])), "spawn ls: Invalid argument"),
            (.init("ls", [String(repeating: "x", count: 1 << 21)]), "spawn ls: Argument list too long"),
            (.init("ls", group: .existing(1 << 22)), "spawn ls: Operation not permitted"),
            (.init("ls", group: .existing(-7)), "spawn ls: Invalid argument"),
            (.init("ls", group: .existing(0)), "spawn ls: Invalid argument"),
        ]
        for (configuration, message) in cases {
            let error = #expect(throws: IOError.self) { _ = try ChildProcess.spawn(configuration) }
            #expect(error?.description == message)
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

extension FilePath {
    fileprivate var bytes: [UInt8] {
        withPlatformString { Array(UnsafeRawBufferPointer(start: $0, count: strlen($0))) }
    }
}

private func mkdir(_ path: FilePath, _ mode: mode_t) { _ = path.withPlatformString { Glibc.mkdir($0, mode) } }

private func rmdir(_ path: FilePath) { _ = path.withPlatformString { Glibc.rmdir($0) } }
