// timers-reactor a N       Adds N one-shot timers due in 10 to 60 s, and cancels them: cpu-ns/add cpu-ns/cancel bytes/timer
// timers-reactor b N       Runs N timers due within a window of 100 ms: cpu-ns/fire p50-us p99-us max-us early
// timers-reactor c N SECS  Runs N timers of 10 ms: cpu-ns/fire fired-% p50-us p99-us early
// timers-reactor d N       Runs N timers that are all due when the loop first runs: cpu-ns/timer, to add and to fire it

import Measuring

let (count, seconds, _) = numbers(from: 2)
switch CommandLine.arguments[1] {
case "a": addAndCancel(count)
case "d": fireAtOnce(count)
case "b": Firings(capacity: count).fireOnce(count)
default: Firings(capacity: count * 100 * (seconds + 1)).fireRepeatedly(count, seconds: seconds)
}
