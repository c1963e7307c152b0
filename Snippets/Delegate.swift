import Reactor

// A delegate that copies standard input to standard output.
final class Echo: StreamDelegate {
    let input = InputStream(descriptor: .standardInput)
    let output = OutputStream(descriptor: .standardOutput)

    func start() {
        input.delegate = self
        input.schedule(in: .current, forMode: .default)
        input.open()
        output.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        // Waits for room; a failure is an event.
        case .hasBytesAvailable: _ = output.write(input.read(upTo: 4096))
        case .endEncountered, .errorOccurred: RunLoop.current.stop()
        default: break
        }
    }
}

let echo = Echo()
echo.start()
RunLoop.current.run(in: .default)
if let error = echo.input.streamError ?? echo.output.streamError { throw error }
