import Dispatch
import Glibc
import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct MailboxTests {
    @Test func `messages come in the order of posting, on the loop's thread`() throws {
        let home = RunLoop.current
        let posters = 4
        let messages = 5000
        var next = Array(repeating: 0, count: posters)
        var isHome = true
        var left = posters * messages
        let mailbox = Mailbox<(poster: Int, number: Int)> { mailbox, message in
            isHome = isHome && home.isCurrent
            if message.number == next[message.poster] { next[message.poster] += 1 }
            left -= 1
            if left == 0 { mailbox.close() }
        }
        let crowd = try JoinableThread(name: "crowd") {
            onThreads(posters) { poster in
                for number in 0..<messages { mailbox.post((poster, number)) }
            }
        }
        #expect(runToTheEnd())
        crowd.join()
        #expect(left == 0)
        #expect(next == Array(repeating: messages, count: posters))
        #expect(isHome)
    }

    @Test func `a burst is handled in one pass`() {
        let loop = RunLoop.current
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
        #expect(runToTheEnd())
        #expect(passes == Array(repeating: passes.first ?? 0, count: 1000))
    }

    @Test func `a message wakes a loop that sleeps`() async throws {
        let thread = try RunLoopThread(name: "sleeper")
        let answers = Answer<Mailbox<Answer<Void>>>()
        thread.runLoop.perform {
            answers.give(Mailbox { _, came in came.give(()) })
        }
        let mailbox = answers.wait()
        for _ in 0..<100 {
            thread.untilAsleep()
            let came = Answer<Void>()
            mailbox.post(came)
            came.wait()
        }
        thread.stop()
    }

    @Test func `what the handler posts comes in the next pass`() {
        let loop = RunLoop.current
        var pass = 0
        loop.observe(.beforeTimers) { _ in pass += 1 }
        var seen: [[Int]] = []
        var isInside = false
        let mailbox = Mailbox<Int> { mailbox, message in
            #expect(!isInside)
            isInside = true
            seen.append([message, pass])
            if message < 3 { mailbox.post(message + 1) } else { mailbox.close() }
            isInside = false
        }
        mailbox.post(1)
        #expect(runToTheEnd())
        #expect(seen == [[1, 1], [2, 2], [3, 3]])
    }

    @Test func `messages come in the mailbox's modes, and in no other`() {
        let loop = RunLoop.current
        loop.hold(.default)
        var modes: [RunLoop.Mode?] = []
        let mailbox = Mailbox<Int>(inModes: [.inner, .outer]) { _, _ in modes.append(loop.currentMode) }
        mailbox.post(1)
        for _ in 0..<3 { loop.poll() }
        #expect(modes.isEmpty)
        loop.poll(.outer)
        mailbox.post(2)
        loop.poll(.inner)
        #expect(modes == [.outer, .inner])
    }

    @Test func `a message is a handled source, and none is no reason to return`() {
        let loop = RunLoop.current
        let mailbox = Mailbox<Int> { _, _ in }
        mailbox.post(1)
        #expect(loop.run(in: .default, returnAfterSourceHandled: true) == .handledSource)
        #expect(
            loop.run(in: .default, until: .distantPast, returnAfterSourceHandled: true) == .timedOut)
        mailbox.close()
    }

    @Test func `no message is delivered inside another's callback, and none is lost`() {
        let loop = RunLoop.current
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
        mailbox.post(1)
        mailbox.post(2)
        #expect(runToTheEnd())
        #expect(
            trace.all == ["begin 1", "block", "end 1", "begin 2", "end 2", "begin 3", "end 3"])
    }
}
