import Glibc
import Reactor
import ReactorTesting
import SystemPackage
import Testing

/// Cancelling, removing, closing and forgetting, in and out of callbacks.
@Suite(.runLoop) struct DescriptorLifetimeTests {
    @Test func `cancelling a source in its own callback ends it, and releases the closure when it returns`()
        async throws
    {
        try await onItsOwnThread {
            let pipe = try TestPipe()
            let freed = Shared(false)
            var inside: [Bool] = []
            let source = makeSource(pipe, AtEnd { freed.value = true }) { source in
                source.cancel()
                source.cancel()
                inside.append(freed.value || source.isValid)
            }
            try RunLoop.current.add(source, forMode: .common)
            pipe.put()
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(inside == [false])
            #expect(freed.value)
        }
    }

    @Test func `of two ready sources, one that the other's callback cancels is not called`() throws {
        let pipes = [try TestPipe(), try TestPipe()]
        var sources: [DescriptorSource] = []
        var calls = 0
        for pipe in pipes {
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                calls += 1
                for source in sources { source.cancel() }
            }
            sources.append(source)
            try RunLoop.current.add(source, forMode: .default)
            pipe.put()
        }
        RunLoop.current.poll()
        #expect(RunLoop.current.poll() == .finished)
        #expect(calls == 1)
    }

    @Test func `of two ready sources, one that the other's callback removes is not called`() throws {
        let loop = RunLoop.current
        let pipes = [try TestPipe(), try TestPipe()]
        var sources: [DescriptorSource] = []
        var calls = 0
        for pipe in pipes {
            let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in
                calls += 1
                for source in sources { loop.remove(source, forMode: .default) }
            }
            sources.append(source)
            try loop.add(source, forMode: .default)
            pipe.put()
        }
        loop.poll()
        #expect(calls == 1)
        #expect(sources.map(\.isValid) == [true, true])
        #expect(loop.poll() == .finished)
        for source in sources { try loop.add(source, forMode: .default) }
        loop.poll()
        #expect(calls == 2)
        for source in sources { source.cancel() }
    }

    @Test(arguments: [RunLoop.Mode.default, .common])
    func `a number closed and used again within a pass gets no event of the old one`(
        mode: RunLoop.Mode
    ) async throws {
        try await onItsOwnThread { try reuseNumberWithinPass(mode) }
    }

    @Test func `a source without other references works as long as it is in a mode`()
        async throws
    {
        try await onItsOwnThread {
            let pipe = try TestPipe()
            let freed = Shared(false)
            var calls = 0
            weak let source = try addSource(pipe, .default, AtEnd { freed.value = true }) { source in
                pipe.get()
                calls += 1
                if calls == 2 { RunLoop.current.remove(source, forMode: .default) }
            }
            pipe.put(2)
            #expect(source != nil)
            #expect(RunLoop.current.run(in: .default) == .finished)
            #expect(calls == 2)
            #expect(freed.value)
            #expect(source == nil)
        }
    }

    @Test func `a source that only its loop retains outlives the callback in which it leaves`() throws {
        let loop = RunLoop.current
        let changes: [(DescriptorSource) throws -> Void] = [
            { $0.cancel() },
            { loop.remove($0, forMode: .default) },
            {
                loop.remove($0, forMode: .default)
                $0.cancel()
            },
            {
                loop.remove($0, forMode: .default)
                try loop.add($0, forMode: .common)
                loop.remove($0, forMode: .common)
            },
        ]
        for change in changes {
            let pipe = try TestPipe()
            let freed = Shared(false)
            weak let source = try addSource(pipe, .default, AtEnd { freed.value = true }) { source in
                do { try change(source) } catch { Issue.record("\(error)") }
                #expect(!freed.value)
                #expect(!loop.contains(source, forMode: .default))
            }
            pipe.put()
            #expect(source != nil)
            loop.poll()
            #expect(freed.value)
            #expect(source == nil)
            #expect(loop.poll() == .finished)
        }
    }

    @Test func `a source that was never added is freed with its last owner`() throws {
        let pipe = try TestPipe()
        let freed = Shared(false)
        _ = makeSource(pipe, AtEnd { freed.value = true }) { _ in }
        #expect(freed.value)
    }

    @Test func `a thread that ends cancels its loop's sources and frees their closures`() async throws {
        let pipe = try TestPipe()
        let freed = Countdown(4)
        try await onItsOwnThread {
            for mode in [RunLoop.Mode.default, .default, .common, .custom] {
                _ = try addSource(pipe, mode, AtEnd { freed.count() }) { _ in }
            }
            pipe.put()
            RunLoop.current.run(mode: .default, before: .distantPast)  // leaves some unserved
        }
        freed.wait()
    }

    @Test func `a source is in the modes it was added to, and a cancelled one in none`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        let source = DescriptorSource(pipe.readEnd, for: .readable) { _, _ in }
        try loop.add(source, forMode: .custom)
        try loop.add(source, forMode: .common)
        try loop.add(source, forMode: .common)
        loop.remove(source, forMode: .common)
        #expect(loop.contains(source, forMode: .custom))
        #expect(!loop.contains(source, forMode: .default))
        loop.remove(source, forMode: .custom)
        #expect(loop.poll(.custom) == .finished)
        source.cancel()
        try loop.add(source, forMode: .custom)
        #expect(!loop.contains(source, forMode: .custom))
    }

    @Test func `ten thousand sources on one pipe come and go`() throws {
        let loop = RunLoop.current
        let pipe = try TestPipe()
        let live = Shared(0)
        for index in 0..<10_000 {
            live.update { $0 += 1 }
            let source = makeSource(pipe, AtEnd { live.update { $0 -= 1 } }) { _ in }
            try loop.add(source, forMode: index % 2 == 0 ? .common : .custom)
            source.cancel()
        }
        #expect(live.value == 0)
        #expect(loop.poll() == .finished)
    }
}

/// Two pipes are ready in one pass; whichever is called first has the other's number closed and given to a third.
private func reuseNumberWithinPass(_ mode: RunLoop.Mode) throws {
    let loop = RunLoop.current
    let pipes = [try TestPipe(), try TestPipe()]
    let spare = try TestPipe()
    var sources: [DescriptorSource] = []
    var (calls, strangers) = (0, 0)
    for (index, pipe) in pipes.enumerated() {
        let source = DescriptorSource(pipe.readEnd, for: .readable) { source, _ in
            calls += 1
            let victim = sources[1 - index]
            for source in sources { source.cancel() }
            // Closes and opens in one step, because tests on other threads open descriptors too.
            #expect(dup2(spare.readEnd.rawValue, victim.descriptor.rawValue) >= 0)
            let stranger = DescriptorSource(victim.descriptor, for: .readable) { _, _ in strangers += 1 }
            try? loop.add(stranger, forMode: mode)
        }
        sources.append(source)
        try loop.add(source, forMode: mode)
        pipe.put()
    }
    for _ in 0..<3 { loop.poll() }
    #expect(calls == 1)
    #expect(strangers == 0)
    spare.put()
    loop.poll()
    #expect(strangers == 1)
}
