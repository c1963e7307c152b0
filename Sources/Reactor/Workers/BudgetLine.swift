/// Who has how much of a budget, and who waits for it. Pure: it decides, and says whose bells are to be rung.
struct BudgetLine {
    /// A place in the line. Lower ones were there before.
    struct Ticket: Hashable, Comparable {
        fileprivate var number = 0

        static func < (left: Ticket, right: Ticket) -> Bool { left.number < right.number }
    }

    private struct Request {
        let byteCount: Int
        let bell: Bell
    }

    private let limit: Int
    /// What is taken and what is granted.
    private(set) var inUse = 0
    private var waiting: [Ticket: Request] = [:]
    /// The bytes that wait to be redeemed.
    private var granted: [Ticket: Int] = [:]
    /// The head of the line, or a place before it that has been given up.
    private var first = Ticket()
    /// The next ticket.
    private var next = Ticket()

    init(limit: Int) { self.limit = limit }

    /// Takes room, if nobody waits for it; false if there is none.
    mutating func take(_ byteCount: Int) -> Bool {
        guard waiting.isEmpty, fits(byteCount) else { return false }
        inUse += byteCount
        return true
    }

    mutating func enter(_ byteCount: Int, _ bell: Bell) -> Ticket {
        let ticket = next
        next.number += 1
        waiting[ticket] = Request(byteCount: byteCount, bell: bell)
        return ticket
    }

    /// What has been granted: to be given back by the caller in the end.
    mutating func redeem(_ ticket: Ticket) -> Int? { granted.removeValue(forKey: ticket) }

    /// Gives up a place, which may have been in the way of others, or what was granted for it.
    mutating func leave(_ ticket: Ticket) -> [Bell] {
        waiting[ticket] = nil
        return giveBack(granted.removeValue(forKey: ticket) ?? 0)
    }

    mutating func giveBack(_ byteCount: Int) -> [Bell] {
        inUse -= byteCount
        return grant()
    }

    /// Grants room from the head of the line on, as far as it goes.
    private mutating func grant() -> [Bell] {
        var bells: [Bell] = []
        while first < next {
            if let request = waiting[first] {
                guard fits(request.byteCount) else { break }
                waiting[first] = nil
                granted[first] = request.byteCount
                inUse += request.byteCount
                bells.append(request.bell)
            }
            first.number += 1
        }
        return bells
    }

    private func fits(_ byteCount: Int) -> Bool { inUse == 0 || byteCount <= limit - inUse }
}
