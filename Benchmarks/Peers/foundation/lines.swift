// lines-foundation FILE  An InputStream without a delegate, 64 KiB at a time, and memchr for each line: cpu-s/GB GB/s

import Foundation
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let input = InputStream(fileAtPath: CommandLine.arguments[1])!
        let buffer = UnsafeMutablePointer<UInt8>.allocate(capacity: 65536)
        lines_begin()
        input.open()
        while case let count = input.read(buffer, maxLength: 65536), count > 0 { lines_take(buffer, count) }
        exit(lines_end())
    }
}
