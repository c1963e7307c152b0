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
}
