import XCTest

/// XCTest re-exports Foundation; the module's aliases shadow its names too.
final class XCTestAliasTests: XCTestCase {
    func testATimerFiresOnTheLoop() {
        let fired = expectation(description: "a firing")
        let thread = Thread {
            let timer = Timer(timeInterval: 0.001, repeats: false) { _ in fired.fulfill() }
            RunLoop.current.add(timer, forMode: .default)
            while timer.isValid {
                RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.01))
            }
        }
        thread.start()
        wait(for: [fired], timeout: 10)
    }

    func testFileHandlesNotifyOnTheRequestingLoop() {
        let notified = expectation(description: "a notification on the requesting thread")
        let thread = Thread {
            let (pipe, loop) = (Pipe(), RunLoop.current)
            nonisolated(unsafe) var isNotified = false
            let token = NotificationCenter.default.addObserver(
                forName: FileHandle.readCompletionNotification, object: pipe.fileHandleForReading, queue: nil
            ) { _ in isNotified = loop === RunLoop.current }
            pipe.fileHandleForReading.readInBackgroundAndNotify()
            pipe.fileHandleForWriting.write(Data([1]))
            while !isNotified, loop.run(mode: .default, before: .distantFuture) {}
            NotificationCenter.default.removeObserver(token)
            notified.fulfill()
        }
        thread.start()
        wait(for: [notified], timeout: 10)
    }
}
