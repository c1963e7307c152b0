// cross-reactor post N  Posts N blocks from one thread to another thread's loop: cpu-ns/post ns/post producer-ns/post
// cross-reactor ping N  Makes N round trips between the loops of two threads: cpu-ns/trip ns/trip

import Glibc
import Measuring
import Reactor

let (count, _, _) = numbers(from: 2)
let isPing = CommandLine.arguments[1] == "ping"
let there = try RunLoopThread(name: "there")
let back = isPing ? try RunLoopThread(name: "back") : there
usleep(100_000)  // the loops sleep by then
if isPing {
    PingPong(between: there.runLoop, and: back.runLoop, rounds: count).start()
} else {
    Posting(to: there.runLoop, count: count).start()
}
while true { sleep(1000) }
