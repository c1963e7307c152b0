// http-reactor body|secure|small COUNT [curl]  Downloads from nginx: see HTTPWorkload. Then
//                                              tick-late-us, the p99 of the lateness of a timer of 5 ms on the same loop;
//                                              pass-KiB, the maximum number of bytes that one pass of the loop has received;
//                                              pass-us, the p99 of the processor time of one pass.
// http-reactor drip COUNT                      Receives a body of COUNT bytes, sent one at a time, for a handler that is behind
//                                              until all have arrived: peak-KiB.
//
// With `curl`, the program curl does the work.

import Foundation
import HTTPWorkload
import Measuring
import Reactor
import ReactorHTTP
import Synchronization
import SystemPackage

if CommandLine.arguments[1] == "drip", let count = Int(CommandLine.arguments[2]) {
    receiveDrippedBody(of: count)
    exit(0)
}
let workload = try HTTPWorkload()
if CommandLine.arguments.last == "curl" {
    let urls = (0..<(workload.isSmall ? workload.count : 1)).map {
        "url=\"\(workload.url)?\($0)\"\noutput=/dev/null\n"
    }
    let configuration = NSTemporaryDirectory() + "/curl-\(getpid())"
    try urls.joined().write(toFile: configuration, atomically: false, encoding: .utf8)
    let arguments =
        ["-s", "--config", configuration] + (workload.isSmall ? ["-Z", "--parallel-max", "8"] : [])
        + (workload.certificate.map { ["--cacert", $0] } ?? [])
    let curl = try ChildProcess.spawn(.init("/usr/bin/curl", arguments, standardError: .null)).process
    // Not those of all children: openssl has made the certificate.
    guard let ended = curl.wait(), ended.reason == .exited(status: 0) else { fatalError("curl has failed") }
    let used = ended
    try? FileManager.default.removeItem(atPath: configuration)
    workload.end(
        child: HTTPWorkload.Usage(
            processorTime: Int64((used.userTime + used.systemTime) / .nanoseconds(1)),
            peakKibibytes: used.maximumResidentSize >> 10))
}

/// What the transfers' callbacks count.
final class Counts: Sendable {
    struct Values {
        var bytesInPass = 0
        var bytes = 0
        var ended = 0
    }

    let values = Mutex(Values())
}

final class Client {
    private let workload: HTTPWorkload
    private let session: HTTPSession
    private let loop = Reactor.RunLoop.current
    private var lateness: [Int64] = []
    private var passes: [Int64] = []
    private var passBegin = processorTime()
    private var mostBytes = 0
    private let counts = Counts()

    init(_ workload: HTTPWorkload) {
        self.workload = workload
        var configuration = HTTPSession.Configuration()
        configuration.maxConnectionsPerHost = 8
        configuration.trustRoots = workload.certificate.map { FilePath($0) }
        session = HTTPSession(configuration, on: loop)
    }

    func run() -> [String] {
        let timer = Reactor.Timer.scheduled(every: .milliseconds(5), forMode: .common) { [self] timer in
            lateness.append(Int64(timer.fireDate.duration(to: .now) / .nanoseconds(1)))
        }
        let observer = Reactor.RunLoop.Observer(for: .beforeTimers) { [self] _, _ in endPass() }
        loop.add(observer, forMode: .common)
        for number in 0..<(workload.isSmall ? workload.count : 1) { start("\(workload.url)?\(number)") }
        _ = loop.run(in: .default)
        timer.invalidate()
        observer.invalidate()
        guard counts.values.withLock({ $0.bytes }) == workload.byteCount else {
            fatalError("bytes are missing")
        }
        return [
            fixed(Double(percentile(99, of: lateness.sorted())) / 1000, 0), "\(mostBytes >> 10)",
            fixed(Double(percentile(99, of: passes.sorted())) / 1000, 0),
        ]
    }

    private func endPass() {
        let time = processorTime()
        passes.append(time - passBegin)
        passBegin = time
        let bytes = counts.values.withLock { values in
            defer { values.bytesInPass = 0 }
            return values.bytesInPass
        }
        mostBytes = max(mostBytes, bytes)
    }

    private func start(_ url: String) {
        let handler = HTTPDestination.handler { [counts] event in
            guard case .bytes(let piece) = event else { return }
            counts.values.withLock {
                $0.bytesInPass += piece.count
                $0.bytes += piece.count
            }
        }
        let last = workload.isSmall ? workload.count : 1
        session.start(HTTPRequest(url), to: handler) { [counts, loop] result in
            if case .failure(let error) = result { fatalError("\(error)") }
            let ended = counts.values.withLock {
                $0.ended += 1
                return $0.ended
            }
            if ended == last { loop.stop() }
        }
    }
}

/// Receives a body in single bytes, while its handler blocks its queue until the last has arrived.
func receiveDrippedBody(of count: Int) {
    let (server, arrived, loop) = (
        DrippingServer(count), DispatchSemaphore(value: 0), Reactor.RunLoop.current
    )
    Thread.detachNewThread {
        server.serve()
        arrived.signal()
    }
    let bytes = Mutex(0)
    let handler = HTTPDestination.handler { event in
        switch event {
        case .bytes(let piece): bytes.withLock { $0 += piece.count }
        default: arrived.wait()
        }
    }
    HTTPSession(on: loop).start(HTTPRequest(server.url), to: handler, delivery: .queue(.global())) { result in
        if case .failure(let error) = result { fatalError("\(error)") }
        loop.stop()
    }
    _ = loop.run(in: .default)
    guard bytes.withLock({ $0 }) == count else { fatalError("bytes are missing") }
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    report(["\(usage.ru_maxrss)"])
}

let client = Client(workload)
workload.end(client.run())
