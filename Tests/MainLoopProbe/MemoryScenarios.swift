import CReactorTestSupport
import Glibc
import Reactor
import SystemPackage

// MARK: Memory growth

/// Prints how much the heap grows in 5,000 rounds; "nothing" if it is less than 16 bytes per round.
private func printGrowth(_ name: String, _ round: () -> Void) {
    for _ in 0..<500 { round() }
    let before = bytesInUse()
    let rounds = 5_000
    for _ in 0..<rounds { round() }
    let growth = bytesInUse() - before
    // malloc's smallest block has 32 bytes, so a leak in each round would exceed this.
    print("\(name): \(growth < 16 * rounds ? "nothing" : "\(growth) bytes")")
}

/// The bytes that malloc(3) has allocated.
private func bytesInUse() -> Int {
    let info = mallinfo2()
    return info.uordblks + info.hblkhd
}

/// Schedules work in two modes, one of which never runs.
@MainActor func leftInModes() {
    let (modes, loop) = ([RunLoop.Mode.custom, RunLoop.Mode("never")], RunLoop.main)
    hold(.custom)
    let source = RunLoop.Source {}
    for mode in modes { loop.add(source, forMode: mode) }
    let mailbox = Mailbox<Int>(inModes: modes) { _, _ in }
    func poll() { loop.run(in: .custom, until: .distantPast) }
    printGrowth("blocks") {
        loop.perform(inModes: modes) {}
        poll()
    }
    printGrowth("signals") {
        source.signal()
        poll()
    }
    printGrowth("messages") {
        mailbox.post(1)
        poll()
    }
    printGrowth("timers") {
        loop.perform(after: .zero, inModes: modes) {}
        poll()
    }
    printGrowth("ordered blocks") {
        loop.perform(order: 0, inModes: modes) {}
        poll()
    }
    printGrowth("cancelled ordered blocks") {
        loop.perform(order: 0, inModes: [RunLoop.Mode("never")]) {}.invalidate()
    }
    printGrowth("signals and removals") {
        source.signal()
        for mode in modes { loop.remove(source, forMode: mode) }
        for mode in modes { loop.add(source, forMode: mode) }
    }
}

/// Signals a source in two loops, one of which is blocked forever.
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
    printGrowth("signals") {
        source.signal()
        RunLoop.main.run(in: .custom, until: .distantPast)
    }
}
