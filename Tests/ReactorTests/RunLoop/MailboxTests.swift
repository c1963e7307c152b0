import ReactorTesting
import Testing

#if DEBUG
@testable import Reactor
#else
import Reactor
#endif

@Suite(.runLoop) struct MailboxTests {
    private let loop = RunLoop.current

    @Test func `messages come in the order of posting, on the loop's thread`() throws {
        let (posters, messages) = (4, 5000)
        var next = Array(repeating: 0, count: posters)
        var left = posters * messages
        let mailbox = Mailbox<(poster: Int, number: Int)> { mailbox, message in
            if loop.isCurrent, message.number == next[message.poster] { next[message.poster] += 1 }
            left -= 1
            if left == 0 { mailbox.close() }
        }
        let crowd = try JoinableThread(name: "crowd") {
            onThreads(posters) { poster in
                for number in 0..<messages { mailbox.post((poster, number)) }
            }
        }
        #expect(loop.run(in: .default) == .finished)
        crowd.join()
        #expect(next == Array(repeating: messages, count: posters))
    }

    @Test func `a burst is handled in one pass`() {
        var pass = 0
        loop.observe(.beforeTimers) { _ in pass += 1 }
        var passes: [Int] = []
        let mailbox = Mailbox<Int> { mailbox, message in
            passes.append(pass)
            if message == 999 { mailbox.close() }
        }
        loop.perform {
            onThreads(1) { _ in for number in 0..<1000 { mailbox.post(number) } }
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(passes == Array(repeating: passes.first ?? 0, count: 1000))
    }

    @Test func `a message wakes a loop that sleeps`() throws {
        let thread = try RunLoopThread(name: "sleeper")
        let mailbox = thread.runLoop.performAndWait { Mailbox<Answer<Void>> { _, came in came.give(()) } }
        for _ in 0..<100 {
            thread.untilAsleep()
            let came = Answer<Void>()
            mailbox.post(came)
            came.wait()
        }
        thread.stop()
    }

    @Test func `what the handler posts comes in the next pass`() {
        var pass = 0
        loop.observe(.beforeTimers) { _ in pass += 1 }
        var seen: [[Int]] = []
        let mailbox = Mailbox<Int> { mailbox, message in
            if message < 3 { mailbox.post(message + 1) } else { mailbox.close() }
            seen.append([message, pass])
        }
        mailbox.post(1)
        #expect(loop.run(in: .default) == .finished)
        #expect(seen == [[1, 1], [2, 2], [3, 3]])
    }

    @Test func `a message is a handled source, and none is no reason to return`() {
        let mailbox = Mailbox<Int> { _, _ in }
        mailbox.post(1)
        #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
        #expect(loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true) == .timedOut)
        mailbox.close()
    }

    @Test func `no message is delivered inside another's callback, and none is lost`() {
        let trace = Trace()
        let mailbox = Mailbox<Int> { mailbox, message in
            trace("begin \(message)")
            if message == 1 {
                mailbox.post(3)
                loop.perform { trace("block") }
                for _ in 0..<3 { loop.poll() }
            }
            trace("end \(message)")
            if message == 3 { mailbox.close() }
        }
        for number in 1...2 { mailbox.post(number) }
        #expect(loop.run(in: .default) == .finished)
        #expect(trace.all == ["begin 1", "block", "end 1", "begin 2", "end 2", "begin 3", "end 3"])
    }

    #if DEBUG

    @Test func `storage is used again, and given back after a burst`() {
        var count = 0
        let mailbox = Mailbox<Int> { _, _ in count += 1 }
        for size in [10, 100_000, 10] {
            for number in 0..<size { mailbox.post(number) }
            loop.poll()
        }
        #expect(count == 100_020)
        #expect(mailbox.keptCapacity <= 2 * BlockQueue.keptCapacity)
        mailbox.close()
    }

    #endif
}
