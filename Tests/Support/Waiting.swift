import Glibc
import Testing

/// Waits, off a loop, for what another thread does. No test passes by waiting: what never comes makes it fail, after a
/// quarter of an hour.
package func waitUntil(_ condition: () -> Bool) {
    let end = ContinuousClock.now + .seconds(900)
    while !condition(), ContinuousClock.now < end { sched_yield() }
    #expect(condition())
}
