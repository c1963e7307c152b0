import XCTest

/// XCTest brings Foundation along: the module's own names win over its, too.
final class XCTestedCode: XCTestCase {
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
        wait(for: [fired], timeout: 600)
    }

    func testFileHandlesNotifyOnTheLoopThatAsked() {
        let told = expectation(description: "a notification on the thread that has asked")
        let thread = Thread {
            let (pipe, loop) = (Pipe(), RunLoop.current)
            nonisolated(unsafe) var isTold = false
            let token = NotificationCenter.default.addObserver(
                forName: FileHandle.readCompletionNotification, object: pipe.fileHandleForReading, queue: nil
            ) { _ in isTold = loop === RunLoop.current }
            pipe.fileHandleForReading.readInBackgroundAndNotify()
            pipe.fileHandleForWriting.write(Data([1]))
            while !isTold, loop.run(mode: .default, before: .distantFuture) {}
            NotificationCenter.default.removeObserver(token)
            told.fulfill()
        }
        thread.start()
        wait(for: [told], timeout: 600)
    }
}
