import ExampleTestSupport
import Reactor
import ReactorTesting
import Testing

@testable import scroller

@Suite(.runLoop) struct ScrollerPartsTests {
    // MARK: Keys and the mouse

    @Test(arguments: [
        ("\u{1B}[A\u{1B}OB", [TerminalEvent.up, .down]), ("\u{1B}[5~\u{1B}[6~", [.pageUp, .pageDown]),
        ("\u{1B}[H\u{1B}[1~\u{1B}OF\u{1B}[4~", [.home, .home, .end, .end]),
        ("q\u{1B}q", [.character(113), .character(113)]), ("\u{1B}[99~\u{1B}[1;5Aq", [.character(113)]),
        (
            "\u{1B}[<0;80;9M\u{1B}[<32;1;10M\u{1B}[<0;1;10m",
            [
                .press(line: 9, column: 80), .drag(line: 10, column: 1), .release,
            ]
        ),
        ("\u{1B}[<64;1;1M\u{1B}[<65;1;1M", [.wheel(lines: -3), .wheel(lines: 3)]),
        ("\u{1B}[<2;1;1M\u{1B}[<0;1M\u{1B}[M", []),
        ("\u{1B}[<0;5;9223372036854775807M\u{1B}[<32;5;-9223372036854775808M\u{1B}[<0;65536;1M", []),
        ("\u{1B}[<0;0;65535M\u{1B}[<0;0;0m", [.press(line: 65_535, column: 0), .release]),
        ("\u{1B}\u{1B}[A", [.up]),
    ])
    func `sequences are events, in one piece or byte by byte`(text: String, events: [TerminalEvent]) {
        var (whole, pieces) = (TerminalParser(), TerminalParser())
        #expect(whole.events(of: text.utf8) == events)
        #expect(text.utf8.flatMap { pieces.events(of: [$0]) } == events)
    }

    @Test func `a sequence without an end does not take memory`() {
        var parser = TerminalParser()
        _ = parser.events(of: "\u{1B}[".utf8)
        let events = parser.events(of: String(repeating: "1", count: 1_000).utf8)
        #expect(events.count == 1_000 - 33)
        #expect(parser.events(of: "\u{1B}[A".utf8) == [.up])
    }

    // MARK: The list

    @Test func `the rows in sight stay inside the list`() {
        var viewport = Viewport()
        #expect(viewport.rows.isEmpty && viewport.barLine == 0)
        viewport.count = 100
        viewport.height = 10
        viewport.scroll(by: -1)
        #expect(viewport.rows == 0..<10)
        viewport.scroll(by: 95)
        #expect(viewport.rows == 90..<100)
        viewport.height = 20
        #expect(viewport.rows == 80..<100)
        viewport.count = 5
        #expect(viewport.rows == 0..<5)
    }

    @Test func `the ends of the scroll bar are the ends of the list`() {
        var viewport = Viewport()
        viewport.count = 1_000_000
        viewport.height = 10
        for (line, top) in [(9, 999_990), (0, 0), (-5, 0), (50, 999_990), (.max, 999_990), (.min, 0)] {
            viewport.scroll(toBarLine: line)
            #expect(viewport.top == top)
            #expect(viewport.barLine == max(0, min(9, line)))
        }
        viewport.height = 1
        viewport.scroll(toBarLine: 0)
        #expect(viewport.top == 0)
    }

    // MARK: Workers

    /// Rows that wait for the test.
    private final class GatedRows: Rows {
        let count = 100
        let started = Shared<[Int]>([])
        let isOpen = Shared(false)

        func text(at row: Int) -> String {
            started.update { $0.append(row) }
            isOpen.wait { $0 ? () : nil }
            return "\(row)"
        }
    }

    @Test func `rows that are no longer wanted are not computed`() throws {
        try onAThread {
            let rows = GatedRows()
            let workers = RowWorkers(rows, for: .current)
            workers.want(Array(0..<50))
            rows.started.wait { $0.count == 4 ? () : nil }
            workers.want(Array(3..<8))
            #expect(workers.droppedCount == 42)
            rows.isOpen.value = true
            var computed: [Int: String] = [:]
            waitUntil {
                computed.merge(workers.takeComputed()) { $1 }
                return computed.count == 8
            }
            #expect(computed.keys.sorted() == Array(0..<8) && computed[7] == "7")
        }
    }
}
