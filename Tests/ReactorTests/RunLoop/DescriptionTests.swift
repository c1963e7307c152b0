import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DescriptionTests {
    @Test func `a loop says whether it runs, in which mode, and whether it waits`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.custom)
            loop.observe(.beforeTimers, in: .custom) { _ in trace(loop.description) }
            trace(loop.description)
            loop.poll(.custom)
        }
        #expect(trace[0].hasPrefix("run loop ") && trace[0].hasSuffix("(not running)"))
        #expect(trace[1].hasSuffix("(running in 'custom')"))
    }

    @Test func `a dump names every item of every mode`() async throws {
        let (dump, number) = try await onItsOwnThread { () -> (String, String) in
            let loop = RunLoop.current
            let pipe = try TestPipe()
            Timer.scheduled(every: .seconds(100), forMode: .custom, tolerance: .seconds(3)) { _ in }
            let source = RunLoop.Source(order: 7) {}
            loop.add(source, forMode: .common)
            loop.observe([.entry, .beforeWaiting], order: -2) { _ in }
            try loop.add(DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }, forMode: .default)
            source.signal()
            loop.perform(inModes: [.inner]) {}
            return (loop.debugDescription, "\(pipe.readEnd.rawValue)")
        }
        for line in [
            "  common modes: default, tracking",
            "  inbox: 1 blocks, 0 changes, 1 signals", "  mode 'custom': 0 blocks",
            "    source: order 7, signalled", "    observer: entry beforeWaiting, order -2",
            "    descriptor \(number): readable",
        ] {
            #expect(dump.split(separator: "\n").contains { $0.hasPrefix(line) }, "\(line) in:\n\(dump)")
        }
        #expect(dump.contains("every 100.0 seconds, tolerance 3.0 seconds"), "\(dump)")
    }

    @Test func `on another thread a description says that the modes are not known there`() async throws {
        let thread = try RunLoopThread(name: "described")
        let dump = thread.runLoop.debugDescription
        thread.stop()
        #expect(dump.contains("known on its own thread only"))
        #expect(dump.contains("common modes: "))
        #expect(thread.runLoop.description.hasSuffix("(ended)"))
    }

    @Test func `descriptions of ended items contain "invalid"`() async throws {
        let descriptions = try await onItsOwnThread { () -> [String] in
            let pipe = try TestPipe()
            let timer = Timer(interval: .seconds(1)) { _ in }
            let source = RunLoop.Source {}
            let observer = RunLoop.Observer { _, _ in }
            let descriptor = DescriptorSource(pipe.readEnd, for: [.readable, .writable]) { _, _ in }
            let before = [
                "\(source)", "\(observer)", descriptor.description.contains("readable writable").description,
            ]
            timer.invalidate()
            source.invalidate()
            observer.invalidate()
            descriptor.cancel()
            return before + [
                "\(timer)", "\(source)", "\(observer)", "\(descriptor.description.hasSuffix("(cancelled)"))",
            ]
        }
        #expect(
            descriptions == [
                "source: order 0", "observer: all activities, order 0", "true", "timer (invalid)",
                "source (invalid)", "observer (invalid)", "true",
            ])
    }
}
