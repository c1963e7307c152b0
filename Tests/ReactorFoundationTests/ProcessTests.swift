import Foundation
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct ProcessTests {
    @Test func `Foundation's processes and this library's children end independently`() throws {
        let process = Process()
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", "read line; exit 7"]
        let input = Pipe()
        process.standardInput = input
        try process.run()
        let child = try ChildProcess.spawn(.init("/bin/sh", ["-c", "exit 8"])).process
        #expect(child.wait()?.reason == .exited(status: 8))
        try input.fileHandleForWriting.write(contentsOf: [10])
        process.waitUntilExit()
        #expect(process.terminationStatus == 7)
    }
}
