import Reactor

// Prints each key as it is pressed, until `q`. The terminal's settings are restored however the program ends.
final class Keys: StreamDelegate {
    private let input = InputStream(descriptor: .standardInput)

    init() {
        input.delegate = self
        input.schedule(in: .current, forMode: .common)
        input.open()
    }

    func stream(_ stream: Stream, handle event: Stream.Event) {
        switch event {
        case .hasBytesAvailable:
            for byte in input.read(upTo: 64) where input.streamStatus != .closed {
                print("key \(byte)")
                if byte == UInt8(ascii: "q") { close() }
            }
        case .endEncountered, .errorOccurred: close()
        default: break
        }
    }

    private func close() {
        input.close()
        RunLoop.current.stop()
    }
}

try Terminal().withMode(.cbreak) {
    let keys = Keys()
    RunLoop.current.run(in: .default)
    withExtendedLifetime(keys) {}
}
