import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

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

    @Test func `a burst is handled in one pass, and what the handler posts in the next`() {
        var pass = 0
        loop.observe(.beforeTimers) { _ in pass += 1 }
        var passes: [Int] = []
        let mailbox = Mailbox<Int> { mailbox, message in
            passes.append(pass)
            if message == 999 { mailbox.post(1000) }
            if message == 1000 { mailbox.close() }
        }
        onThreads(1) { _ in for number in 0..<1000 { mailbox.post(number) } }
        #expect(loop.run(in: .default) == .finished)
        #expect(passes == Array(repeating: 1, count: 1000) + [2])
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

    // MARK: Closing, dropping and ending, in and out of callbacks

    @Test func `an open mailbox keeps its modes from being empty, and a closed one does not`() {
        let mailbox = Mailbox<Int>(inModes: [.outer, .inner]) { _, _ in }
        for mode in [RunLoop.Mode.outer, .inner] { #expect(loop.poll(mode) == .timedOut) }
        #expect(mailbox.isOpen)
        for _ in 0..<2 { mailbox.close() }
        for mode in [RunLoop.Mode.outer, .inner] { #expect(loop.poll(mode) == .finished) }
        #expect(!mailbox.isOpen)
    }

    @Test func `a closed mailbox drops pending messages, and accepts no more`() {
        let mailbox = Mailbox<Witness> { _, _ in Issue.record("handled") }
        let fates = [false, true].map { isClosed in
            if isClosed { mailbox.close() }
            let witness = Witness()
            #expect(mailbox.post(witness) == !isClosed)
            return Fate(witness)
        }
        #expect(fates.map(\.isFreed) == [true, true])
        #expect(loop.poll() == .finished)
    }

    @Test
    func `a mailbox closed in its own callback delivers no more, and releases the handler when it returns`() {
        let freed = Shared(false)
        var handled: [Int] = []
        func open() -> Mailbox<Int> {
            let canary = AtEnd { freed.value = true }
            return Mailbox { mailbox, message in
                mailbox.close()
                #expect(!mailbox.post(4))
                handled.append(message)
                withExtendedLifetime(canary) { #expect(!freed.value) }
            }
        }
        let mailbox = open()
        for number in 1...3 { mailbox.post(number) }
        #expect(loop.run(in: .default) == .finished)
        #expect(handled == [1])
        #expect(freed.value)
    }

    @Test func `a mailbox without references delivers all its messages, and is then closed`() {
        var handled: [Int] = []
        do {
            let mailbox = Mailbox<Int> { mailbox, message in
                handled.append(message)
                if message == 2 { mailbox.post(4) }
            }
            for number in 1...3 { mailbox.post(number) }
        }
        #expect(loop.run(in: .default) == .finished)
        #expect(handled == [1, 2, 3, 4])
    }

    @Test(arguments: ["closed", "dropped", "dropped full"])
    func `the handler is destroyed on the loop's thread, whichever thread ends the mailbox`(how: String)
        throws
    {
        let thread = try RunLoopThread(name: "home")
        let home = thread.runLoop
        let diedAtHome = Answer<Bool>()
        let mailbox = Shared<Mailbox<Int>?>(nil)
        home.performAndWait {
            let canary = AtEnd { diedAtHome.give(home.isCurrent) }
            mailbox.value = Mailbox { _, _ in withExtendedLifetime(canary) {} }
        }
        if how == "dropped full" { mailbox.value?.post(1) }
        if how == "closed" { mailbox.value?.close() } else { mailbox.value = nil }
        #expect(diedAtHome.wait())
        thread.stop()
    }

    @Test func `the end of the loop's thread closes its mailboxes, also those that are made meanwhile`()
        throws
    {
        let ends = Trace()
        let kept = Shared<[Mailbox<AtEnd>]>([])
        try onAThread {
            let home = RunLoop.current
            let canary = AtEnd {
                ends("handler \(home.isCurrent)")
                let late = Mailbox<AtEnd> { _, _ in }
                kept.update { $0.append(late) }
            }
            let mailbox = Mailbox<AtEnd> { _, _ in withExtendedLifetime(canary) {} }
            mailbox.post(AtEnd { ends("message") })
            kept.value = [mailbox]
        }
        #expect(ends.all.sorted() == ["handler true", "message"])
        #expect(kept.value.count == 2)
        for mailbox in kept.value { #expect(!mailbox.isOpen && !mailbox.post(AtEnd {})) }
    }

    @Test func `closing races with posting, and nothing is left`() throws {
        for _ in 0..<50 {
            let alive = Shared(0)
            let mailbox = Mailbox<AtEnd> { _, _ in }
            let crowd = try JoinableThread(name: "crowd") {
                onThreads(3) { number in
                    if number == 2 { return mailbox.close() }
                    for _ in 0..<50 {
                        alive.update { $0 += 1 }
                        mailbox.post(AtEnd { alive.update { $0 -= 1 } })
                    }
                }
            }
            #expect(loop.run(in: .default) == .finished)
            crowd.join()
            #expect(alive.value == 0)
        }
    }
}
