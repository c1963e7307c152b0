import Glibc
import Measuring
import Reactor
import SystemPackage

final class Ring {
    var start: Int64 = 0
    private let active: Int
    private let warmUp: Int
    private let measured: Int
    private let pipes: [(read: CInt, write: CInt)]
    private var events = 0
    private var writes: Int
    private var first: Int64 = 0
    private var begin: (wall: Int64, processor: Int64) = (0, 0)
    private var links: [Link] = []

    init(count: Int, active: Int, events: Int) {
        self.active = active
        measured = events
        warmUp = max(active, 100)
        writes = warmUp + measured
        allowDescriptors(2 * count + 200)
        pipes = (0..<count).map { _ in
            var ends: [CInt] = [0, 0]
            precondition(pipe(&ends) == 0, "cannot open a pipe: too few descriptors")
            for end in ends { _ = fcntl(end, F_SETFL, O_NONBLOCK) }
            return (ends[0], ends[1])
        }
    }

    func watch() throws(IOError) {
        for index in pipes.indices {
            let end = FileDescriptor(rawValue: pipes[index].read)
            let source = DescriptorSource(end, for: .readable) { [self] _, _ in
                var byte: UInt8 = 0
                pass(on: read(end.rawValue, &byte, 1), from: index)
            }
            try RunLoop.current.add(source, forMode: .default)
        }
    }

    func openStreams() {
        links = pipes.indices.map { index in
            Link(FileDescriptor(rawValue: pipes[index].read)) { [unowned self] in pass(on: $0, from: index) }
        }
    }

    func fill() {
        for index in 0..<active { push(index * (pipes.count / active)) }
    }

    private func push(_ index: Int) {
        var byte: UInt8 = 120
        precondition(write(pipes[index].write, &byte, 1) == 1)
    }

    private func pass(on count: Int, from index: Int) {
        if events == 0 { first = now() }
        guard count == 1 else { return }
        if writes > 0 {
            writes -= 1
            push(index + 1 == pipes.count ? 0 : index + 1)
        }
        events += 1
        if events == warmUp { begin = (now(), processorTime()) }
        if events == warmUp + measured { finish() }
    }

    private func finish() -> Never {
        let (wall, processor) = (now() - begin.wall, processorTime() - begin.processor)
        report([
            fixed(Double(processor) / Double(measured)), fixed(Double(wall) / Double(measured)),
            fixed(Double(first - start) / Double(pipes.count)),
        ])
    }
}
