import Reactor
import SystemPackage

/// A program whose every step leads to the next, so that it has one order of callbacks only. The last step stops the loop.
///
/// - Returns: What to keep until then.
func startTracedProgram(on loop: RunLoop, _ trace: Trace) throws -> [AnyObject] {
    let pipe = try TestPipe()
    loop.observe(in: .default) { trace("\($0)") }
    loop.observe(in: .tracking) { trace("tracking \($0)") }
    let signalled = RunLoop.Source {
        trace("signalled source")
        Timer.scheduled(after: .zero, forMode: .tracking) { _ in
            trace("tracking timer")
            loop.stop()
        }
        loop.run(in: .tracking)
        loop.perform { pipe.put() }
    }
    loop.add(signalled, forMode: .default)
    let (input, output) = Stream.boundPair(bufferSize: 16)
    let startTimer = {
        _ = Timer.scheduled(after: .milliseconds(1)) { _ in
            trace("timer")
            loop.perform(inModes: [.default]) {
                trace("block")
                signalled.signal()
            }
        }
    }
    let delegate = HandlerDelegate { stream, event in
        trace("\(event)")
        if event == .openCompleted { startTimer() }
        guard event == .hasBytesAvailable, let input = stream as? InputStream else { return }
        trace("read \(input.read(upTo: 16).count)")
        loop.stop()
    }
    input.delegate = delegate
    input.schedule(in: loop, forMode: .default)
    input.open()
    output.open()
    let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
        trace("descriptor")
        pipe.get()
        source.cancel()
        output.write([1, 2, 3])
    }
    try loop.add(source, forMode: .common)
    return [delegate, input, output]
}
