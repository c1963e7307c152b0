import Glibc
import Reactor
import ReactorTesting
import Testing

/// Closing, dropping and ending, in and out of callbacks.
@Suite(.runLoop) struct MailboxLifetimeTests {
    @Test func `open, it keeps its modes from being empty, and closed it does not`() {
        let mailbox = Mailbox<Int>(inModes: [.outer, .inner]) { _, _ in }
        #expect(RunLoop.current.poll(.outer) == .timedOut)
        #expect(RunLoop.current.poll(.inner) == .timedOut)
        #expect(mailbox.isOpen)
        mailbox.close()
        mailbox.close()
        #expect(RunLoop.current.poll(.outer) == .finished)
        #expect(RunLoop.current.poll(.inner) == .finished)
        #expect(!mailbox.isOpen)
    }

    @Test func `a closed mailbox drops pending messages, and accepts no more`() async throws {
        try await onItsOwnThread {
            let mailbox = Mailbox<Witness> { _, _ in Issue.record("handled") }
            let fates = [false, true].map { isClosed in
                if isClosed { mailbox.close() }
                let witness = Witness()
                #expect(mailbox.post(witness) == !isClosed)
                return Fate(witness)
            }
            #expect(fates.map(\.isFreed) == [true, true])
            #expect(RunLoop.current.poll() == .finished)
        }
    }

    @Test
    func `a mailbox closed in its own callback delivers no more, and releases the handler when it returns`()
        async throws
    {
        try await onItsOwnThread {
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
            #expect(runToTheEnd())
            #expect(handled == [1])
            #expect(freed.value)
        }
    }

    @Test func `a mailbox without references is closed when all messages have been delivered`() {
        var handled: [Int] = []
        do {
            let mailbox = Mailbox<Int> { mailbox, message in
                handled.append(message)
                if message == 2 { mailbox.post(4) }
            }
            for number in 1...3 { mailbox.post(number) }
        }
        #expect(runToTheEnd())
        #expect(handled == [1, 2, 3, 4])
    }

    @Test(arguments: ["closed", "dropped", "dropped full"])
    func `the handler is destroyed on the loop's thread, whichever thread ends the mailbox`(how: String)
        async throws
    {
        try await onItsOwnThread {
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
    }

    @Test func `the end of the loop's thread closes it`() async throws {
        let gone = Countdown(2)
        let kept = Shared<Mailbox<AtEnd>?>(nil)
        let diedAtHome = Shared(false)
        let thread = try JoinableThread(name: "ending") {
            let home = RunLoop.current
            let canary = AtEnd {
                diedAtHome.value = home.isCurrent
                gone.count()
            }
            let mailbox = Mailbox<AtEnd> { _, _ in withExtendedLifetime(canary) {} }
            mailbox.post(AtEnd { gone.count() })
            kept.value = mailbox
        }
        thread.join()
        gone.wait()
        #expect(diedAtHome.value)
        #expect(kept.value?.isOpen == false)
        #expect(kept.value?.post(AtEnd {}) == false)
    }

    @Test func `a mailbox made while its thread ends is closed from the start`() async throws {
        let isOpen = Shared<Bool?>(nil)
        let thread = try JoinableThread(name: "ending") {
            let last = AtEnd {
                let mailbox = Mailbox<Int> { _, _ in }
                isOpen.value = mailbox.isOpen || mailbox.post(1)
            }
            RunLoop.current.observe { _ in withExtendedLifetime(last) {} }
        }
        thread.join()
        #expect(isOpen.value == false)
    }

    @Test func `a mailbox that only its poster retains still delivers`() throws {
        var handled: [Int] = []
        func start() throws {
            let mailbox = Mailbox<Int> { _, message in handled.append(message) }
            let poster = try JoinableThread(name: "poster") {
                for number in 0..<1000 { mailbox.post(number) }
            }
            withExtendedLifetime(poster) {}
        }
        try start()
        #expect(runToTheEnd())
        #expect(handled == Array(0..<1000))
    }

    @Test func `closing races with posting, and nothing is left`() async throws {
        for _ in 0..<50 {
            try await onItsOwnThread {
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
                #expect(runToTheEnd())
                crowd.join()
                #expect(alive.value == 0)
            }
        }
    }

    @Test func `a mailbox needs a mode`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Mailbox<Int>(inModes: []) { _, _ in }
        }
        #expect(result.message.contains("A mailbox in no mode"))
    }
}
