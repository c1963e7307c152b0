import Testing

@testable import Reactor

@Suite struct HandoffLedgerTests {
    @Test func `a ledger speaks a hundred times of a size that it knows`() {
        let ledger = HandoffLedger()
        ledger.expect(1_000_000)
        let news = (0..<1_000_000 / 10).count { _ in ledger.account(10) }
        #expect((1...101).contains(news))
        #expect(ledger.takeNews() != nil)
        #expect(ledger.takeNews() == nil)
        #expect(!ledger.account(0))
        _ = ledger.account(1)
        #expect(ledger.progress == HandoffProgress(byteCount: 1_000_001, expectedByteCount: nil))
    }
}
