import Glibc
import Reactor
import ReactorFoundation

/// The number of descriptors that the process has open.
private func openDescriptorCount() -> Int {
    ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []).count
}

func requestsLeakNoDescriptors() throws {
    let pipe = Pipe()
    func startAndEndThread() throws {
        let thread = try RunLoopThread(name: "requests")
        thread.runLoop.performAndWait {
            pipe.fileHandleForReading.readInBackgroundAndNotify()
            pipe.fileHandleForReading.readToEndOfFileInBackgroundAndNotify()
            pipe.fileHandleForReading.waitForDataInBackgroundAndNotify()
        }
        thread.stop()
    }
    try startAndEndThread()
    let before = openDescriptorCount()
    for _ in 0..<10 { try startAndEndThread() }
    print(openDescriptorCount() - before)
}

func portsLeakNoDescriptors() {
    func sendAndRelease() {
        do {
            let port = SocketPort()
            let sent = port.send(before: .distantFuture, components: nil, from: port, reserved: 0)
            if !sent { print("not sent") }
        }
    }
    sendAndRelease()
    let before = openDescriptorCount()
    for _ in 0..<10 { sendAndRelease() }
    print(openDescriptorCount() - before)
}

/// Replies to each message with the same components and the next number. A message without a reply port ends
/// the scenario.
private final class Echo: PortDelegate {
    private(set) var isDone = false

    func handle(_ message: PortMessage) {
        guard message.sendPort != nil else {
            isDone = true
            return
        }
        let reply = PortMessage(
            sendPort: message.sendPort, receivePort: message.receivePort, components: message.components)
        reply.msgid = message.msgid + 1
        if !reply.send(before: .distantFuture) { print("not sent") }
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
