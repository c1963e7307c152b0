import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

/// Waits until a probe exits and returns its unread lines; if it fails, its ending is the last line.
private func remainingLines(of probe: Child) -> [String] {
    let (lines, ending) = (probe.readOutput().split(separator: "\n").map(String.init), probe.wait())
    return ending == .exit(0) ? lines : lines + ["\(ending)"]
}

@Suite(.runLoop) struct MainLoopTests {
    @Test func `the main loop serves the main queues, the main actor, operations and file handles`() throws {
        let lines = try remainingLines(of: Child("foundation-probe", ["main loop"]))
        #expect(
            lines == [
                "operation on main: true true", "4 blocks ran", "finished: true", "first", "second",
            ])
    }

    @Test func `ports, and requests that end with their thread, leak no descriptors`() throws {
        #expect(try remainingLines(of: Child("foundation-probe", ["leaks"])) == ["0", "0"])
    }

    @Test func `ports of two processes exchange messages`() throws {
        let probe = try Child("foundation-probe", ["echo port"])
        let number = try #require(probe.readLine().flatMap(UInt16.init))
        let remote = try #require(SocketPort(remoteWithTCPPort: number, host: "localhost"))
        let (port, mailbox) = try SocketPort.listening()
        for index in 0..<10 { remote.sendTexts("message \(index)", number: 10 * index, from: port) }
        mailbox.wait(10)
        #expect(mailbox.texts == (0..<10).map { "message \($0)" })
        #expect(mailbox.messages.map(\.msgid) == (0..<10).map { 10 * $0 + 1 })
        remote.sendTexts("end")
        #expect(remainingLines(of: probe) == ["ended"])
        port.invalidate()
    }

    /// In a process of its own, as Foundation keeps sockets for its processes.
    @Test func `Foundation's processes and this library's children end independently`() async {
        await #expect(processExitsWith: .success) {
            try onAThread {
                let (process, input) = (Process(), Pipe())
                process.executableURL = URL(filePath: "/bin/sh")
                process.arguments = ["-c", "read line; exit 7"]
                process.standardInput = input
                try process.run()
                let child = try ChildProcess.spawn(.init("/bin/sh", ["-c", "exit 8"])).process
                #expect(child.wait()?.reason == .exited(status: 8))
                try input.fileHandleForWriting.write(contentsOf: [10])
                process.waitUntilExit()
                #expect(process.terminationStatus == 7)
            }
        }
    }
}
