// embed-reactor WAY hops N        Posts N blocks from a thread to a sleeping main loop, one at a time: p50-us p99-us cpu-us/hop
// embed-reactor WAY idle SECONDS  Waits with nothing to do: wake-ups
//
// WAY is the main loop, and how to post:
//   native       GLib's, g_main_context_invoke
//   hosted       this library's in GLib's, RunLoop.perform
//   main-actor   the same, a task of the main actor
//   guest        GLib's in this library's, g_main_context_invoke
//   reactor      this library's, RunLoop.perform

import CReactorGLib
import Glibc
import Measuring
import Reactor
import ReactorGLib
import Synchronization

let (way, work) = (CommandLine.arguments[1], CommandLine.arguments[2])
let (count, _, _) = numbers(from: 3)

/// The measurement, from the posting thread.
final class Hops: Sendable {
    private let begun = Atomic<Int64>(0)
    private let delay = Atomic<Int64>(0)
    /// `nonisolated(unsafe)`: a semaphore is for any thread.
    private nonisolated(unsafe) let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    func measure(_ count: Int, mainClock: clockid_t) -> [String] {
        for _ in 0..<200 { hop() }
        let processor = time(of: mainClock)
        let delays = (0..<count).map { _ in hop() }.sorted()
        let cost = Double(time(of: mainClock) - processor) / Double(count)
        return [
            fixed(Double(percentile(50, of: delays)) / 1000),
            fixed(Double(percentile(99, of: delays)) / 1000),
            fixed(cost / 1000, 2),
        ]
    }

    @discardableResult
    private func hop() -> Int64 {
        begun.store(now(), ordering: .releasing)
        post()
        while sem_wait(semaphore) != 0 {}
        usleep(200)  // the loop sleeps by then
        return delay.load(ordering: .acquiring)
    }

    private func post() {
        switch way {
        case "native", "guest":
            g_main_context_invoke_full(
                nil, G_PRIORITY_DEFAULT,
                {
                    Unmanaged<Hops>.fromOpaque($0!).takeUnretainedValue().arrived()
                    return 0
                }, Unmanaged.passUnretained(self).toOpaque(), nil)
        case "main-actor": Task { @MainActor in self.arrived() }
        default: RunLoop.main.perform { self.arrived() }
        }
    }

    private func arrived() {
        delay.store(now() - begun.load(ordering: .acquiring), ordering: .releasing)
        sem_post(semaphore)
    }
}

func time(of clock: clockid_t) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}

/// How often the main thread has slept.
func sleepCount() -> Int {
    let file = fopen("/proc/self/task/\(getpid())/status", "r")!
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 8192)
    bytes.removeLast(8192 - fread(&bytes, 1, 8192, file))
    let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n")
    let line = lines.first { $0.hasPrefix("voluntary_ctxt_switches:") }!
    return Int(line.split { $0 == "\t" || $0 == " " }.last!)!
}

func measure(mainClock: clockid_t) {
    usleep(300_000)  // the loop sleeps by then
    if work == "hops" { report(Hops().measure(count, mainClock: mainClock)) }
    let before = sleepCount()
    sleep(UInt32(count))
    report(["\(sleepCount() - before)"])
}

var clock = clockid_t()
pthread_getcpuclockid(pthread_self(), &clock)
let measuring = try RunLoopThread(name: "measuring")
measuring.runLoop.perform { [clock] in measure(mainClock: clock) }

// Something to run for.
Timer.scheduled(after: .seconds(3600)) { _ in }
let mainLoop = g_main_loop_new(nil, 0)!
switch way {
case "native": g_main_loop_run(mainLoop)
case "hosted", "main-actor":
    try RunLoop.main.attach(toGLib: mainLoop)
    g_main_loop_run(mainLoop)
case "guest":
    try RunLoop.main.addGLibContext()
    RunLoop.main.run(in: .default)
default: RunLoop.main.run(in: .default)
}
