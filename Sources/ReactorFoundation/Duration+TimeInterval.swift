package import Foundation
import Reactor

extension Duration {
    /// A time interval in seconds, rounded up to whole nanoseconds and clamped to 64 bits of them.
    package init(timeInterval seconds: TimeInterval) {
        require(!seconds.isNaN, "A time interval must not be NaN.")
        let exact = seconds * 1e9
        let nearest = exact.rounded()
        // Most decimal fractions have no exact binary form: within two ulps of a whole nanosecond, that one
        // is meant.
        let nanoseconds = abs(exact - nearest) <= 2 * nearest.ulp ? nearest : exact.rounded(.up)
        self = .nanoseconds(Int64(exactly: nanoseconds) ?? (seconds > 0 ? .max : .min))
    }

    /// The duration in seconds.
    package var timeInterval: TimeInterval {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }
}
