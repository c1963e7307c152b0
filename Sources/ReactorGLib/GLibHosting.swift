import CReactorGLib
public import Reactor
import SystemPackage

extension RunLoop {
    /// Runs this loop inside a GLib main loop, whose thread is the loop's.
    ///
    /// ```swift
    /// try RunLoop.main.attach(toGLib: mainLoop)
    /// g_main_loop_run(mainLoop)
    /// ```
    /// Timers, streams, posted blocks and everything else in `mode` are served from then on; on the main thread also
    /// `DispatchQueue.main` and `@MainActor`. GLib loops that handlers run, such as a dialog's, keep serving them.
    ///
    /// `RunLoop.stop()` quits the main loop. The hosting continues: running the main loop again serves this loop
    /// again. The main loop is retained until the hosting ends.
    ///
    /// - Parameters:
    ///   - mainLoop: A `GMainLoop *`.
    ///   - mode: The mode to be in.
    ///   - priority: The GSource's; lower numbers are dispatched first.
    /// - Returns: The hosting, which the context keeps: ending it is optional.
    /// - Throws: `IOError` if there are no descriptors left.
    /// - Precondition: Called on the loop's own thread.
    @discardableResult
    public func attach(
        toGLib mainLoop: OpaquePointer, mode: Mode = .default, priority: Int32 = 0
    ) throws(IOError) -> GLibHosting {
        let retained = unsafe RetainedMainLoop(mainLoop)
        return try unsafe attach(
            toGLibContext: g_main_loop_get_context(mainLoop), mode: mode, priority: priority
        ) { retained.quit() }
    }

    /// Runs this loop inside a GLib main context, which the loop's thread iterates.
    ///
    /// - Parameters:
    ///   - context: A `GMainContext *`; nil for the default one.
    ///   - mode: The mode to be in.
    ///   - priority: The GSource's; lower numbers are dispatched first.
    ///   - stopHandler: Called on the loop's thread after `RunLoop.stop()`.
    /// - Returns: The hosting. It and the context keep each other until it ends.
    /// - Throws: `IOError` if there are no descriptors left.
    /// - Precondition: Called on the loop's own thread.
    @discardableResult
    public func attach(
        toGLibContext context: OpaquePointer?, mode: Mode = .default, priority: Int32 = 0,
        stopHandler: @escaping () -> Void
    ) throws(IOError) -> GLibHosting {
        let hosting = GLibHosting(
            try Hosting(self, mode: mode), in: unsafe MainContext(context), stopHandler: stopHandler)
        hosting.attach(LoopOwned(hosting, on: self), priority: priority)
        return hosting
    }
}

/// A run loop inside a GLib main context: see `RunLoop.attach(toGLib:mode:priority:)`.
///
/// It ends with ``end()`` or with the loop's thread, and belongs to that thread. The context is retained until then. If other
/// code destroys the source on another thread, the loop stays in its mode until the last reference to the hosting is released.
/// If it does so while a handler runs the loop, the hosting ends after that run.
@safe
public final class GLibHosting {
    private let hosting: RunLoop.Hosting
    private let stopHandler: () -> Void
    /// The context's, and this object's until it is deallocated.
    private var source: UnsafeMutablePointer<GSource>?
    /// Retained until this object is deallocated: GLib locks a source's context when it destroys or releases the source.
    private let context: MainContext

    fileprivate init(
        _ hosting: RunLoop.Hosting, in context: MainContext, stopHandler: @escaping () -> Void
    ) {
        self.hosting = hosting
        self.stopHandler = stopHandler
        self.context = context
    }

    /// The source has been destroyed: it retained this object.
    deinit {
        hosting.endHandler = nil
        hosting.endAfterNestedRun()
        unsafe g_source_unref(source)
    }

    /// Whether the context runs the loop.
    public var isValid: Bool { unsafe hosting.isValid && g_source_is_destroyed(source) == 0 }

    /// The mode that the loop is in.
    public var mode: RunLoop.Mode { hosting.mode }

    /// Changes the mode, as `RunLoop.Hosting.setMode(_:)`.
    ///
    /// - Throws: `IOError` if the mode has never run and there are no descriptors left. The mode stays the same then.
    public func setMode(_ mode: RunLoop.Mode) throws(IOError) { try hosting.setMode(mode) }

    /// Ends the hosting and removes its source from the context. A handler may call this.
    ///
    /// - Precondition: Called on the loop's thread, and no run of the loop that a handler began is in progress.
    public func end() { hosting.end() }

    /// - Parameter owner: Owns this, and is released when the source is destroyed.
    fileprivate func attach(_ owner: LoopOwned<GLibHosting>, priority: Int32) {
        let functions = unsafe reactor_glib_functions(
            needs_dispatch: { hosted($0).hosting.needsDispatch },
            dispatch: { hosted($0).dispatch() },
            destroyed: { unsafe sourceDestroyed($0) })
        let source = unsafe reactor_glib_attach(
            context.pointer, hosting.descriptor.rawValue, priority, CallbackContext.address(of: self),
            CallbackContext.retain(owner), functions)
        unsafe self.source = source
        hosting.endHandler = { [context] in
            // The source's end may release this object, and with it this closure and the last reference to the context, which
            // GLib continues to use.
            withExtendedLifetime(context) { unsafe g_source_destroy(source) }
        }
    }

    /// Other code may destroy the source within a nested run of the loop.
    fileprivate func endWithSource() { hosting.endAfterNestedRun() }

    private func dispatch() -> Bool {
        if !hosting.dispatch(), isValid { stopHandler() }
        return isValid
    }
}

/// The hosting of a source that has not been destroyed, and whose owner retains it.
///
/// `@safe`: only a source's functions call it.
@safe
private func hosted(_ hosting: UnsafeMutableRawPointer?) -> GLibHosting {
    unsafe CallbackContext.object(hosting)
}

private func sourceDestroyed(_ owner: UnsafeMutableRawPointer?) {
    let owner = unsafe CallbackContext.take(owner, as: LoopOwned<GLibHosting>.self)
    if owner.isOnLoopThread { owner.value.endWithSource() }
}

/// A main loop to quit.
@safe
private final class RetainedMainLoop {
    private let pointer: OpaquePointer

    init(_ pointer: OpaquePointer) { unsafe self.pointer = g_main_loop_ref(pointer) }

    deinit { unsafe g_main_loop_unref(pointer) }

    func quit() { unsafe g_main_loop_quit(pointer) }
}
