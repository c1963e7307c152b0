import Glibc
import Reactor

// Prints each key as it is pressed, in a task, until `q`, and then restores the terminal's settings.
var settings = termios()
tcgetattr(STDIN_FILENO, &settings)
var raw = settings
raw.c_lflag &= ~tcflag_t(ICANON | ECHO)
tcsetattr(STDIN_FILENO, TCSANOW, &raw)
defer { tcsetattr(STDIN_FILENO, TCSANOW, &settings) }

let input = InputStream(descriptor: .standardInput)
for try await byte in input.bytes {
    print("key \(byte)")
    if byte == UInt8(ascii: "q") { break }
}
