// swift-format-ignore-file: AlwaysUseLowerCamelCase

public import Foundation
public import Reactor

/// `RunLoop`.
public typealias CFRunLoop = Reactor.RunLoop
/// `RunLoop.Mode`.
public typealias CFRunLoopMode = Reactor.RunLoop.Mode
/// `RunLoop.RunResult`.
public typealias CFRunLoopRunResult = Reactor.RunLoop.RunResult

extension CFRunLoopMode {
    /// `default`.
    public static var defaultMode: Self { .default }
}

/// The name of `RunLoop.Mode.default`.
public var kCFRunLoopDefaultMode: CFString { "kCFRunLoopDefaultMode" }
/// The name of `RunLoop.Mode.common`.
public var kCFRunLoopCommonModes: CFString { "kCFRunLoopCommonModes" }

extension CFRunLoop {
    /// The loop itself.
    public func getCFRunLoop() -> CFRunLoop { self }
}

/// `RunLoop.current`.
public func CFRunLoopGetCurrent() -> CFRunLoop! { .current }
/// `RunLoop.main`.
public func CFRunLoopGetMain() -> CFRunLoop! { .main }

/// Runs the calling thread's loop in the default mode until it is stopped or has no items left in that mode.
public func CFRunLoopRun() { CFRunLoop.current.run(in: .default) }

/// Runs the calling thread's loop in `mode` for at most `seconds`.
@discardableResult
public func CFRunLoopRunInMode(
    _ mode: CFRunLoopMode!, _ seconds: CFTimeInterval, _ returnAfterSourceHandled: Bool
) -> CFRunLoopRunResult {
    let deadline = Deadline.now.advanced(by: Duration(timeInterval: seconds))
    return CFRunLoop.current.run(
        in: mode, until: deadline, returnAfterSourceHandled: returnAfterSourceHandled)
}

/// Runs the calling thread's loop in the mode called `mode` for at most `seconds`.
@discardableResult
public func CFRunLoopRunInMode(
    _ mode: CFString!, _ seconds: CFTimeInterval, _ returnAfterSourceHandled: Bool
) -> CFRunLoopRunResult { CFRunLoopRunInMode(mode as CFRunLoopMode, seconds, returnAfterSourceHandled) }

/// `stop()`.
public func CFRunLoopStop(_ runLoop: CFRunLoop!) { runLoop.stop() }
/// `wakeUp()`.
public func CFRunLoopWakeUp(_ runLoop: CFRunLoop!) { runLoop.wakeUp() }
/// `isWaiting`.
public func CFRunLoopIsWaiting(_ runLoop: CFRunLoop!) -> Bool { runLoop.isWaiting }
/// `currentMode`.
public func CFRunLoopCopyCurrentMode(_ runLoop: CFRunLoop!) -> CFRunLoopMode! { runLoop.currentMode }

/// `perform(inModes:block:)`. Wakes the loop, which Core Foundation does not.
///
/// - Precondition: `mode` is a `CFRunLoopMode` or the name of one.
public func CFRunLoopPerformBlock(
    _ runLoop: CFRunLoop!, _ mode: Any!, _ block: @escaping @Sendable () -> Void
) {
    guard let mode = mode as? CFRunLoopMode ?? (mode as? String).map({ CFRunLoopMode($0) }) else {
        fatalError("CFRunLoopPerformBlock: the mode must be a CFRunLoopMode or a mode's name.")
    }
    runLoop.perform(inModes: [mode], block)
}
