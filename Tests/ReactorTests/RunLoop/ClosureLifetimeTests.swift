import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct ClosureLifetimeTests {
    @Test func `invalidating or cancelling releases the closure at once`() async throws {
        let freed = try await onItsOwnThread { () -> [Bool] in
            let loop = RunLoop.current
            let pipe = try TestPipe()
            var fates: [Fate] = []
            var ends: [() -> Void] = []
            func witness() -> Witness {
                let witness = Witness()
                fates.append(Fate(witness))
                return witness
            }
            let source = RunLoop.Source { [witness = witness()] in withExtendedLifetime(witness) {} }
            loop.add(source, forMode: .common)
            ends.append { source.invalidate() }
            let observer = RunLoop.Observer { [witness = witness()] _, _ in withExtendedLifetime(witness) {} }
            loop.add(observer, forMode: .common)
            ends.append { observer.invalidate() }
            let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { [witness = witness()] _, _ in
                withExtendedLifetime(witness) {}
            }
            try loop.add(descriptor, forMode: .common)
            ends.append { descriptor.cancel() }
            let before = fates.map(\.isFreed)
            for end in ends { end() }
            return before + fates.map(\.isFreed)
        }
        #expect(freed == [false, false, false, true, true, true])
    }

    @Test func `a closure that captures its own item is freed with it when the item is invalidated`()
        async throws
    {
        let freed = try await onItsOwnThread { () -> [Bool] in
            let loop = RunLoop.current
            let pipe = try TestPipe()
            pipe.put()
            let descriptorFate: WeakBox<DescriptorSource>
            let observerFate: WeakBox<RunLoop.Observer>
            do {
                let descriptor = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in source.cancel()
                }
                let observer = RunLoop.Observer(for: .entry, repeats: false) { _, _ in
                    withExtendedLifetime(descriptor) {}
                }
                descriptorFate = WeakBox(descriptor)
                observerFate = WeakBox(observer)
                try loop.add(descriptor, forMode: .default)
                loop.add(observer, forMode: .default)
            }
            loop.poll()
            return [descriptorFate.value == nil, observerFate.value == nil]
        }
        #expect(freed == [true, true])
    }

    @Test func `the loop retains items that were added to it, and none that were removed`() async throws {
        let freed = try await onItsOwnThread { () -> [Bool] in
            let loop = RunLoop.current
            let fate: WeakBox<RunLoop.Source>
            do {
                let source = RunLoop.Source {}
                fate = WeakBox(source)
                loop.add(source, forMode: .default)
            }
            let kept = fate.value == nil
            if let source = fate.value { loop.remove(source, forMode: .default) }
            return [kept, fate.value == nil]
        }
        #expect(freed == [false, true])
    }
}

/// Something of one thread whose end can be seen there.
private final class WeakBox<Object: AnyObject> {
    weak var value: Object?
    init(_ value: Object) { self.value = value }
}
