import Glibc
import Reactor
import SystemPackage

// MARK: What is left in memory

/// Prints by how much the process grows in fifty thousand rounds, if it is more than a few bytes for each.
private func tell(_ name: String, _ round: () -> Void) {
    for _ in 0..<2_000 { round() }
    let before = kilobytesInUse()
    for _ in 0..<50_000 { round() }
    let growth = kilobytesInUse() - before
    print("\(name): \(growth < 200 ? "nothing" : "\(growth) kB")")
}

/// The process's memory that no file is behind (proc_pid_status(5)).
private func kilobytesInUse() -> Int {
    guard let file = fopen("/proc/self/status", "r") else { return 0 }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count = fread(&bytes, 1, bytes.count, file)
    let lines = String(decoding: bytes[..<count], as: UTF8.self).split(separator: "\n")
    let words = lines.first { $0.hasPrefix("RssAnon:") }?.split { $0 == "\t" || $0 == " " } ?? []
    return words.count > 1 ? Int(words[1]) ?? 0 : 0
}

/// Work of two modes of which one never runs.
@MainActor func leftInModes() {
    let (modes, loop) = ([RunLoop.Mode.custom, RunLoop.Mode("never")], RunLoop.main)
    hold(.custom)
    let source = RunLoop.Source {}
    for mode in modes { loop.add(source, forMode: mode) }
    let mailbox = Mailbox<Int>(inModes: modes) { _, _ in }
    func poll() { loop.run(in: .custom, until: .distantPast) }
    tell("blocks") {
        loop.perform(inModes: modes) {}
        poll()
    }
    tell("signals") {
        source.signal()
        poll()
    }
    tell("messages") {
        mailbox.post(1)
        poll()
    }
    tell("timers") {
        loop.perform(after: .zero, inModes: modes) {}
        poll()
    }
    tell("ordered blocks") {
        loop.perform(order: 0, inModes: modes) {}
        poll()
    }
    tell("cancelled ordered blocks") {
        loop.perform(order: 0, inModes: [RunLoop.Mode("never")]) {}.invalidate()
    }
    tell("signals and removals") {
        source.signal()
        for mode in modes { loop.remove(source, forMode: mode) }
        for mode in modes { loop.add(source, forMode: mode) }
    }
}

/// Signals of a source in two loops of which one is busy for ever.
@MainActor func leftInLoops() throws {
    let busy = try RunLoopThread(name: "busy")
    let (isBusy, never) = (try FileDescriptor.pipe(), try FileDescriptor.pipe())
    busy.runLoop.perform {
        _ = try? isBusy.writeEnd.writeAll([1])
        var byte: UInt8 = 0
        _ = withUnsafeMutableBytes(of: &byte) { try? never.readEnd.read(into: $0) }
    }
    var byte: UInt8 = 0
    _ = try withUnsafeMutableBytes(of: &byte) { try isBusy.readEnd.read(into: $0) }
    let source = RunLoop.Source {}
    for loop in [RunLoop.main, busy.runLoop] { loop.add(source, forMode: .custom) }
    tell("signals") {
        source.signal()
        RunLoop.main.run(in: .custom, until: .distantPast)
    }
}
