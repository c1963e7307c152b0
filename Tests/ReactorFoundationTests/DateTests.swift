import Glibc
import ReactorFoundation
import ReactorTestSupport
import Testing

@Suite struct DateTests {
    @Test(arguments: [-86_400, -1, -0.25, 0, 1e-6, 0.1, 1, 3600, 1e9] as [TimeInterval])
    func `a date comes back as it was given`(distance: TimeInterval) {
        let date = Date(timeIntervalSinceNow: distance)
        #expect(Date(Deadline(date)) == date)
    }

    @Test func `the distant dates are the distant deadlines, and what is beyond them too`() {
        #expect(Deadline(.distantFuture) == .distantFuture && Deadline(.distantPast) == .distantPast)
        #expect(Date(Deadline.distantFuture) == .distantFuture && Date(Deadline.distantPast) == .distantPast)
        for seconds in [2e10, 1e12, 1e300, .infinity, .greatestFiniteMagnitude] as [TimeInterval] {
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: seconds)) == .distantFuture)
            #expect(Deadline(Date(timeIntervalSinceReferenceDate: -seconds)) == .distantPast)
        }
    }

    @Test func `a deadline is never before its date`() async throws {
        try await onItsOwnThread {
            for _ in 0..<200 {
                let date = Date(timeIntervalSinceNow: .random(in: 0...0.000_5))
                let deadline = Deadline(date)
                while Deadline.now < deadline {}
                #expect(Date() >= date)
            }
        }
    }

    @Test func `dates keep their order`() {
        let dates = (0..<100).map { Date(timeIntervalSinceNow: Double($0) * 1e-6) }
        #expect(dates.map { Deadline($0) } == dates.map { Deadline($0) }.sorted())
    }

    @Test func `a date that is not a number is refused`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Deadline(Date(timeIntervalSinceReferenceDate: .nan))
        }
        #expect(result.message.contains("a date that is not a number"))
        let other = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            _ = Timer(timeInterval: .nan, repeats: true) { _ in }
        }
        #expect(other.message.contains("A time interval must not be NaN"))
    }
}
