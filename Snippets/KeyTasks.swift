import Reactor

// Prints each key as it is pressed, and the size of the window when it changes, in tasks, until `q`. The terminal's settings
// are restored however the program ends.
let terminal = Terminal()
try await terminal.withMode(.cbreak) {
    async let _ = printSizes()
    for try await byte in InputStream(descriptor: .standardInput).bytes {
        print("key \(byte)")
        if byte == UInt8(ascii: "q") { break }
    }
}

@MainActor
func printSizes() async throws {
    for try await size in try RunLoop.main.sizes(of: terminal) {
        print("\(size.rows) rows, \(size.columns) columns")
    }
}
