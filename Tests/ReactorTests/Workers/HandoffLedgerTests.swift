import Testing

@testable import Reactor

@Suite struct HandoffLedgerTests {
    @Test func `a known size is announced a hundred times`() {
        var ledger = HandoffLedger()
        ledger.expect(1_000_000)
        var time: Int64 = 0
        var news = 0
        for _ in 0..<100_000 {
            time += 1_000_000_000
            if ledger.add(10, at: { time }) { news += 1 }
        }
        #expect(news == 100)
        let (latest, none) = (ledger.takeNews(), ledger.takeNews())
        #expect(latest?.expectedByteCount == 1_000_000)
        #expect(none == nil)
    }

    @Test func `an unknown size is announced fifty times a second`() {
        var ledger = HandoffLedger()
        ledger.expect(0)
        let news = (0..<2000).count { index in ledger.add(1, at: { Int64(index) * 1_000_000 }) }
        #expect(news == 100)
        #expect(ledger.progress == HandoffProgress(byteCount: 2000, expectedByteCount: nil))
    }

    @Test func `no bytes are no news, and more than expected end the expectation`() {
        var ledger = HandoffLedger()
        ledger.expect(10)
        let (first, second) = (ledger.add(0, at: { 0 }), ledger.add(10, at: { 0 }))
        #expect(!first)
        #expect(second)
        #expect(ledger.progress == HandoffProgress(byteCount: 10, expectedByteCount: 10))
        _ = ledger.add(1, at: { 0 })
        #expect(ledger.progress == HandoffProgress(byteCount: 11, expectedByteCount: nil))
    }
}
