import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct LifetimeTests {
    @Test func `every kind of item may end itself in its own callback, which continues`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let own = Shared<RunLoop.Source?>(nil)
            let source = RunLoop.Source { [witness = Witness()] in
                own.value?.invalidate()
                own.value = nil
                withExtendedLifetime(witness) { trace("source") }
            }
            own.value = source
            loop.add(source, forMode: .default)
            source.signal()
            let descriptor = DescriptorSource(pipe.readEnd, for: .readable) {
                [witness = Witness()] source, _ in
                source.cancel()
                withExtendedLifetime(witness) { trace("descriptor") }
            }
            try loop.add(descriptor, forMode: .default)
            loop.observe(.entry) { _ in trace("entry") }
            trace("\(loop.run(in: .default))")
            trace("\(loop.run(in: .default))")
        }
        #expect(trace == ["entry", "source", "descriptor", "finished", "finished"])
    }

    @Test func `a descriptor that another cancels in the same pass is not called`() async throws {
        let trace = try await traced { loop, trace in
            let pipes = [try TestPipe(), try TestPipe()]
            var sources: [DescriptorSource] = []
            for pipe in pipes {
                pipe.put()
                let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                    trace("called")
                    for each in sources { each.cancel() }
                }
                sources.append(source)
                try loop.add(source, forMode: .default)
            }
            loop.poll()
            loop.poll()
        }
        #expect(trace == ["called"])
    }

    @Test func `a descriptor's number that is closed and used again in a pass gets no stale event`()
        async throws
    {
        let trace = try await traced { loop, trace in
            let pipes = [try FileDescriptor.pipe(), try FileDescriptor.pipe()]
            let quiet = try TestPipe()
            var sources: [DescriptorSource] = []
            for (index, pipe) in pipes.enumerated() {
                _ = try pipe.writeEnd.writeAll([1])
                let source = DescriptorSource(pipe.readEnd, for: .readable) { own, _ in
                    trace("called")
                    let victim = sources[1 - index]
                    victim.cancel()
                    own.cancel()
                    // The other's number now is that of a pipe with nothing in it.
                    dup2(quiet.readEnd.rawValue, victim.descriptor.rawValue)
                    let heir = DescriptorSource(victim.descriptor, for: .readable) { _, _ in trace("stale") }
                    try? loop.add(heir, forMode: .default)
                }
                sources.append(source)
                try loop.add(source, forMode: .default)
            }
            for _ in 0..<3 { loop.poll() }
            for pipe in pipes { for end in [pipe.readEnd, pipe.writeEnd] { try end.close() } }
        }
        #expect(trace == ["called"])
    }

    @Test func `items that a callback adds are served, and those it removes are not`() async throws {
        let trace = try await traced { loop, trace in
            let pipe = try TestPipe()
            pipe.put()
            let removed = RunLoop.Source { trace("removed") }
            loop.add(removed, forMode: .default)
            loop.perform {
                removed.signal()
                RunLoop.current.remove(removed, forMode: .default)
                let added = RunLoop.Source { trace("added") }
                RunLoop.current.add(added, forMode: .default)
                added.signal()
            }
            Timer.scheduled(after: .zero) { _ in
                try? loop.add(DescriptorSource(pipe, trace, "descriptor"), forMode: .default)
            }
            for _ in 0..<2 { loop.poll() }
        }
        #expect(trace == ["added", "descriptor"])
    }

    @Test func `items that end in a nested activation are not called outside`() async throws {
        let trace = try await traced { loop, trace in
            loop.hold(.inner)
            let source = RunLoop.Source(order: 2) { trace("source") }
            let observer = RunLoop.Observer(for: .beforeSources) { _, _ in trace("observer") }
            loop.add(source, forMode: .default)
            loop.add(observer, forMode: .default)
            source.signal()
            let first = RunLoop.Observer(for: .beforeTimers, repeats: false) { _, _ in
                Timer.scheduled(after: .zero, forMode: .inner) { _ in
                    source.invalidate()
                    observer.invalidate()
                    trace("ended")
                }
                loop.poll(.inner)
            }
            loop.add(first, forMode: .default)
            loop.hold(.default)
            loop.poll()
        }
        #expect(trace == ["ended"])
    }

    @Test func `a source that another thread invalidates is never served after that`() async throws {
        for _ in 0..<50 {
            let isOver = Shared(false)
            let isLate = Shared(false)
            let thread = try RunLoopThread(name: "serving")
            let source = RunLoop.Source { if isOver.value { isLate.value = true } }
            thread.runLoop.add(source, forMode: .default)
            try await onItsOwnThread {
                for _ in 0..<20 {
                    source.signal()
                    thread.runLoop.wakeUp()
                }
                source.invalidate()
                // A callback that had begun may still be running: it ends before this.
                thread.runLoop.performAndWait(inModes: [.default]) { isOver.value = true }
                source.signal()
                thread.runLoop.wakeUp()
                thread.stop()
            }
            #expect(!isLate.value)
        }
    }
}
