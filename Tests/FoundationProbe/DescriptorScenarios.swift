import Glibc
import Reactor
import ReactorFoundation

/// How many descriptors the process has open.
private func ownDescriptors() -> Int {
    ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []).count
}

func requestsLeaveNoDescriptors() throws {
    let pipe = Pipe()
    func requestAndEnd() throws {
        let thread = try RunLoopThread(name: "requests")
        thread.runLoop.performAndWait {
            pipe.fileHandleForReading.readInBackgroundAndNotify()
            pipe.fileHandleForReading.readToEndOfFileInBackgroundAndNotify()
            pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
        }
        thread.stop()
    }
    try requestAndEnd()
    let before = ownDescriptors()
    for _ in 0..<10 { try requestAndEnd() }
    print(ownDescriptors() - before)
}

func portsLeaveNoDescriptors() {
    func sendAndEnd() {
        do {
            let port = SocketPort()
            let sent = port.send(before: .distantFuture, components: nil, from: port, reserved: 0)
            if !sent { print("not sent") }
        }
    }
    sendAndEnd()
    let before = ownDescriptors()
    for _ in 0..<10 { sendAndEnd() }
    print(ownDescriptors() - before)
}

/// Sends each message back with its number raised by one; ends with one that has no sender.
private final class Echo: PortDelegate {
    private(set) var isDone = false

    func handle(_ message: PortMessage) {
        guard message.sendPort != nil else {
            isDone = true
            return
        }
        let answer = PortMessage(
            sendPort: message.sendPort, receivePort: message.receivePort, components: message.components)
        answer.msgid = message.msgid + 1
        if !answer.send(before: .distantFuture) { print("not sent") }
    }
}

func echoPort() throws {
    let (port, echo) = (SocketPort(), Echo())
    port.setDelegate(echo)
    RunLoop.main.add(port, forMode: .common)
    print(try SocketAddress.local(of: FileDescriptor(rawValue: port.socket)).port ?? 0)
    while !echo.isDone, RunLoop.main.run(mode: .default, before: Deadline.distantFuture) {}
    port.invalidate()
    print("ended")
}
