import CReactorTestSupport
import Glibc
import Reactor
import SystemPackage

// MARK: What is left in memory

/// Prints by how much the process grows in fifty thousand rounds, if it is more than a byte for each.
private func tell(_ name: String, _ round: () -> Void) {
    for _ in 0..<2_000 { round() }
    let before = bytesInUse()
    let rounds = 50_000
    for _ in 0..<rounds { round() }
    let growth = bytesInUse() - before
    // The smallest block of malloc's is of 32 bytes: what were left of each round would be more.
    print("\(name): \(growth < rounds ? "nothing" : "\(growth) bytes")")
}

/// The bytes that malloc(3) has given out and not got back.
private func bytesInUse() -> Int {
    let info = mallinfo2()
    return info.uordblks + info.hblkhd
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
