import Reactor
import ReactorTestSupport

/// The kinds of items that modes have.
enum Kind: CaseIterable, Sendable {
    case source, descriptor, timer, observer

    /// An item that is ready, and that calls `served` in each pass; a timer only once.
    func makeItem(_ served: @escaping @Sendable () -> Void) throws -> any TestItem {
        switch self {
        case .source:
            let source = RunLoop.Source(perform: served)
            source.signal()
            return source
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            return DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                withExtendedLifetime(pipe, served)
            }
        case .timer: return Timer(fireDate: .distantPast) { _ in served() }
        case .observer: return RunLoop.Observer(for: .beforeSources) { _, _ in served() }
        }
    }
}

/// An item of some kind, which is used in the same way as every other.
protocol TestItem: AnyObject {
    func add(to loop: RunLoop, _ mode: RunLoop.Mode) throws
    func remove(from loop: RunLoop, _ mode: RunLoop.Mode)
    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool
    func invalidate()
    func explain() -> String
    var isValid: Bool { get }
}

extension RunLoop.Source: TestItem {
    func add(to loop: RunLoop, _ mode: RunLoop.Mode) { loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool { loop.contains(self, forMode: mode) }
}

extension DescriptorSource: TestItem {
    func add(to loop: RunLoop, _ mode: RunLoop.Mode) throws { try loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool { loop.contains(self, forMode: mode) }
    func invalidate() { cancel() }
}

extension Timer: TestItem {
    func add(to loop: RunLoop, _ mode: RunLoop.Mode) { loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool { loop.contains(self, forMode: mode) }
}

extension RunLoop.Observer: TestItem {
    func add(to loop: RunLoop, _ mode: RunLoop.Mode) { loop.add(self, forMode: mode) }
    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) { loop.remove(self, forMode: mode) }
    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool { loop.contains(self, forMode: mode) }
}
