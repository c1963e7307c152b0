import Reactor

/// The kinds of items that modes have.
enum Kind: CaseIterable, Sendable {
    case source, descriptor, timer, observer

    /// An item that is ready, and that calls `served` in each pass; a timer only once.
    func makeItem(_ served: @escaping @Sendable () -> Void) throws -> TestItem {
        switch self {
        case .source:
            let source = RunLoop.Source(perform: served)
            source.signal()
            return .source(source)
        case .descriptor:
            let pipe = try TestPipe()
            pipe.put()
            return .descriptor(
                DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                    withExtendedLifetime(pipe, served)
                })
        case .timer: return .timer(Timer(fireDate: .distantPast) { _ in served() })
        case .observer: return .observer(RunLoop.Observer(for: .beforeSources) { _, _ in served() })
        }
    }
}

/// An item of some kind, which is used in the same way as every other.
enum TestItem {
    case source(RunLoop.Source)
    case descriptor(DescriptorSource)
    case timer(Timer)
    case observer(RunLoop.Observer)

    func add(to loop: RunLoop, _ mode: RunLoop.Mode) throws {
        switch self {
        case .source(let item): loop.add(item, forMode: mode)
        case .descriptor(let item): try loop.add(item, forMode: mode)
        case .timer(let item): loop.add(item, forMode: mode)
        case .observer(let item): loop.add(item, forMode: mode)
        }
    }

    func remove(from loop: RunLoop, _ mode: RunLoop.Mode) {
        switch self {
        case .source(let item): loop.remove(item, forMode: mode)
        case .descriptor(let item): loop.remove(item, forMode: mode)
        case .timer(let item): loop.remove(item, forMode: mode)
        case .observer(let item): loop.remove(item, forMode: mode)
        }
    }

    func isIn(_ loop: RunLoop, _ mode: RunLoop.Mode) -> Bool {
        switch self {
        case .source(let item): loop.contains(item, forMode: mode)
        case .descriptor(let item): loop.contains(item, forMode: mode)
        case .timer(let item): loop.contains(item, forMode: mode)
        case .observer(let item): loop.contains(item, forMode: mode)
        }
    }

    /// Whether it is still valid.
    var isValid: Bool {
        switch self {
        case .source(let item): item.isValid
        case .descriptor(let item): item.isValid
        case .timer(let item): item.isValid
        case .observer(let item): item.isValid
        }
    }

    func invalidate() {
        switch self {
        case .source(let item): item.invalidate()
        case .descriptor(let item): item.cancel()
        case .timer(let item): item.invalidate()
        case .observer(let item): item.invalidate()
        }
    }

    /// What the loop retains.
    var object: AnyObject {
        switch self {
        case .source(let item): item
        case .descriptor(let item): item
        case .timer(let item): item
        case .observer(let item): item
        }
    }
}
