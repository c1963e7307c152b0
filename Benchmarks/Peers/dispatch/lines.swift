// lines-dispatch FILE  A Dispatch I/O channel, 64 KiB at a time, and memchr for each line: cpu-s/GB GB/s

import Dispatch
import Glibc
import Workloads

@main
enum Peer {
    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let queue = DispatchQueue(label: "lines")
        let descriptor = open(CommandLine.arguments[1], O_RDONLY)
        let channel = DispatchIO(type: .stream, fileDescriptor: descriptor, queue: queue) { _ in }
        channel.setLimit(highWater: 65536)
        lines_begin()
        channel.read(offset: 0, length: .max, queue: queue) { done, data, _ in
            data?.enumerateBytes { bytes, _, _ in lines_take(bytes.baseAddress, bytes.count) }
            if done { exit(lines_end()) }
        }
        while true { sleep(1000) }  // valgrind fails in dispatchMain()
    }
}
