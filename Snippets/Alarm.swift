import ReactorFoundation

// Runs a job every day at 03:00, also when summer time begins or ends and when the clock is set.
let nightly = try ClockTimer(matching: DateComponents(hour: 3, minute: 0)) { timer in
    print("cleaning up; next in \(timer.fireDate! - timer.clock.now)")
}
// And another ten seconds from now, even if the machine is suspended meanwhile.
let soon = try ClockTimer(.bootTime, at: ClockTimer.Clock.bootTime.now + .seconds(10)) { timer, _ in
    timer.cancel()
    print("ten seconds have passed")
}
for timer in [nightly, soon] { try RunLoop.current.add(timer, forMode: .default) }
RunLoop.current.run(in: .default)
