import Reactor
import Testing

@Suite struct MembershipTests {
    @Test func `a delayed block runs in whichever of its modes runs first, and once`() async throws {
        let events = try await traced { loop, trace in
            for mode in [RunLoop.Mode.default, .custom] { loop.hold(mode) }
            loop.perform(after: .zero, inModes: [.default, .custom]) { trace("block") }
            for mode in [RunLoop.Mode.custom, .default] {
                trace("\(mode)")
                loop.poll(mode)
            }
        }
        #expect(events == ["custom", "block", "kCFRunLoopDefaultMode"])
    }

    @Test func `an item that left one common mode is in it again once it joins the common modes again`()
        async throws
    {
        let events = try await traced { loop, trace in
            let source = RunLoop.Source {}
            loop.add(source, forMode: .common)
            loop.remove(source, forMode: .tracking)
            trace("\(loop.contains(source, forMode: .tracking))")
            loop.add(source, forMode: .common)
            trace("\(loop.contains(source, forMode: .tracking))")
        }
        #expect(events == ["false", "true"])
    }

    @Test func `each of many modes has its items, and no other's`() async throws {
        let wrong = try await traced { loop, trace in
            let modes = (0..<70).map { RunLoop.Mode("one of many \($0)") }
            let (even, odd) = (RunLoop.Source {}, RunLoop.Source {})
            for (index, mode) in modes.enumerated() { loop.add(index % 2 == 0 ? even : odd, forMode: mode) }
            for (index, mode) in modes.enumerated() {
                let isRight =
                    loop.contains(even, forMode: mode) == (index % 2 == 0)
                    && loop.contains(odd, forMode: mode) == (index % 2 == 1)
                if !isRight { trace("\(mode)") }
            }
        }
        #expect(wrong == [])
    }
}
