import Glibc
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import Testing

@Suite(.runLoop) struct DeadlineDateTests {
    @Test(arguments: [-86_400, -1, -0.25, 0, 1e-6, 0.1, 1, 3600, 1e9] as [TimeInterval])
    func `a date survives conversion to a deadline and back`(distance: TimeInterval) {
        let date = Date(timeIntervalSinceNow: distance)
        #expect(Date(Deadline(date)) == date)
    }

    @Test func `distant dates and dates out of range convert to distant deadlines`() {
        #expect(Deadline(.distantFuture) == .distantFuture && Deadline(.distantPast) == .distantPast)
        #expect(Date(Deadline.distantFuture) == .distantFuture && Date(Deadline.distantPast) == .distantPast)
        for seconds in [2e10, 1e12, 1e300, .infinity, .greatestFiniteMagnitude] as [TimeInterval] {
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: seconds)) == .distantFuture)
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: -seconds)) == .distantPast)
        }
    }

    @Test func `a deadline never passes before its date`() {
        for _ in 0..<200 {
            let date = Date(timeIntervalSinceNow: .random(in: 0...0.000_5))
            let deadline = Deadline(date)
            while Deadline.now < deadline {}
            #expect(Date() >= date)
        }
    }

    @Test func `deadlines have the order of their dates`() {
        let dates = (0..<100).map { Date(timeIntervalSinceNow: Double($0) * 1e-6) }
        #expect(dates.map { Deadline($0) } == dates.map { Deadline($0) }.sorted())
    }

    @Test func `a date or an interval that is NaN traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Deadline(Date(timeIntervalSinceReferenceDate: .nan))
        }
        #expect(result.message.contains("A date must not be NaN."))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Timer(timeInterval: .nan, repeats: true) { _ in }
        }
        #expect(other.message.contains("A time interval must not be NaN"))
    }
}
