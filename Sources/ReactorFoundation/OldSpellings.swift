public import Reactor

// What Swift 3 called things, and Swift 4 before its renamings.

/// The name of a set of things that a run loop attends to together.
public typealias RunLoopMode = Reactor.RunLoop.Mode

extension Reactor.RunLoop.Mode {
    /// ``default``.
    public static var defaultRunLoopMode: Self { .default }

    /// ``common``.
    public static var commonModes: Self { .common }

    // swift-format-ignore: AlwaysUseLowerCamelCase
    /// ``tracking``.
    public static var UITrackingRunLoopMode: Self { .tracking }

    /// ``eventTracking``.
    public static var eventTrackingRunLoopMode: Self { .eventTracking }

    /// ``modalPanel``.
    public static var modalPanelRunLoopMode: Self { .modalPanel }
}
