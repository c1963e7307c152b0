// Scenarios that need a program's main thread. Each prints what happens, and a test compares the output.
import Dispatch
@preconcurrency import Glibc
import Reactor
import ReactorFoundation

/// Runs the main loop until `isDone`.
@MainActor private func run(until isDone: () -> Bool) {
    while !isDone(), RunLoop.main.run(mode: .default, before: Deadline.distantFuture) {}
}

/// What the current scenario has seen.
private var count = 0

@MainActor func mainQueues() {
    DispatchQueue.main.async { count += 1 }
    OperationQueue.main.addOperation {
        print("operation on main:", Thread.isMainThread, OperationQueue.current === OperationQueue.main)
        MainActor.assumeIsolated { count += 1 }
    }
    Task { @MainActor in count += 1 }
    DispatchQueue.global().async {
        OperationQueue.main.addOperation { MainActor.assumeIsolated { count += 1 } }
    }
    run { count == 4 }
    print("4 blocks ran")
}

@MainActor func operationsInMainQueue() {
    let operations = (0..<3).map { _ in
        RunLoopOperation { operation in
            operation.finish()
            return NSNull()
        }
    }
    let last = BlockOperation {
        print("finished:", operations.allSatisfy { $0.isFinished })
        MainActor.assumeIsolated { count += 1 }
    }
    for operation in operations { last.addDependency(operation) }
    OperationQueue.main.addOperations(operations, waitUntilFinished: false)
    OperationQueue.main.addOperation(last)
    run { count == 1 }
}

@MainActor func fileHandles() {
    let pipe = Pipe()
    let token = NotificationCenter.default.addObserver(
        forName: FileHandle.readCompletionNotification, object: pipe.fileHandleForReading, queue: .main
    ) { notification in
        let data = notification.userInfo?[NSFileHandleNotificationDataItem] as? Data
        print(String(decoding: data ?? Data(), as: UTF8.self))
        MainActor.assumeIsolated { count += 1 }
    }
    pipe.fileHandleForReading.readInBackgroundAndNotify()
    DispatchQueue.global().async { pipe.fileHandleForWriting.write(Data("first".utf8)) }
    run { count == 1 }
    pipe.fileHandleForReading.readInBackgroundAndNotify(forModes: [.common])
    pipe.fileHandleForWriting.write(Data("second".utf8))
    run { count == 2 }
    NotificationCenter.default.removeObserver(token)
}

/// Prints how many descriptors `body` leaves open when it runs ten times more.
private func printLeak(_ body: () throws -> Void) rethrows {
    func openDescriptorCount() -> Int {
        ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []).count
    }
    try body()
    let before = openDescriptorCount()
    for _ in 0..<10 { try body() }
    print(openDescriptorCount() - before)
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
    try printLeak(startAndEndThread)
}

func portsLeakNoDescriptors() {
    func sendAndRelease() {
        let port = SocketPort()
        let sent = port.send(before: .distantFuture, components: nil, from: port, reserved: 0)
        if !sent { print("not sent") }
    }
    printLeak(sendAndRelease)
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
    let address = port.address.withUnsafeBytes {
        SocketAddress($0.baseAddress!.assumingMemoryBound(to: sockaddr.self), length: socklen_t($0.count))
    }
    print(address?.port ?? 0)
    while !echo.isDone, RunLoop.main.run(mode: .default, before: Deadline.distantFuture) {}
    port.invalidate()
    print("ended")
}

setvbuf(stdout, nil, _IONBF, 0)
switch CommandLine.arguments.last {
case "main loop":
    for scenario in [mainQueues, operationsInMainQueue, fileHandles] {
        count = 0
        scenario()
    }
case "leaks":
    try requestsLeakNoDescriptors()
    portsLeakNoDescriptors()
case "echo port": try echoPort()
default: exit(2)
}
