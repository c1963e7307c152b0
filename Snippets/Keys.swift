import Glibc
import Reactor

// Prints each key as it is pressed, until `q`, and then restores the terminal's settings.
final class Keys: StreamDelegate {
    private let input = InputStream(descriptor: .standardInput)
    private var settings = termios()

    init() {
        tcgetattr(STDIN_FILENO, &settings)
        var raw = settings
        raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
        tcsetattr(STDIN_FILENO, TCSANOW, &raw)
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
        tcsetattr(STDIN_FILENO, TCSANOW, &settings)
        RunLoop.current.stop()
    }
}

let keys = Keys()
RunLoop.current.run(in: .default)
