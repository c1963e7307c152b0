import CReactorGLib
import Reactor
@_exported import ReactorTestSupport

/// A GLib main context with closures for callbacks.
///
/// `@unchecked Sendable`: any thread may attach sources to a context, reference and unreference it.
final class Context: @unchecked Sendable {
    let pointer = g_main_context_new()!

    deinit { g_main_context_unref(pointer) }

    /// Calls `body` after `milliseconds`, and again while it returns true.
    func timeout(_ milliseconds: UInt32, _ body: @escaping () -> Bool) {
        attach(g_timeout_source_new(milliseconds), body)
    }

    /// Calls `body` when nothing else is ready, and again while it returns true.
    func idle(_ body: @escaping () -> Bool) { attach(g_idle_source_new(), body) }

    /// Calls `body` once, after `milliseconds`.
    func after(_ milliseconds: UInt32, _ body: @escaping () -> Void) { timeout(milliseconds, once(body)) }

    /// Calls `body` once, when nothing else is ready.
    func whenIdle(_ body: @escaping () -> Void) { idle(once(body)) }

    private func once(_ body: @escaping () -> Void) -> () -> Bool {
        {
            body()
            return false
        }
    }

    /// Calls `body` while `descriptor` is readable, as long as it returns true.
    @discardableResult
    func watch(_ descriptor: CInt, _ body: @escaping () -> Bool) -> UnsafeMutablePointer<GSource> {
        let call: @convention(c) (CInt, GIOCondition, gpointer?) -> gboolean = { _, _, body in
            Callback.call(body)
        }
        let source = g_unix_fd_source_new(descriptor, G_IO_IN)!
        attach(source, body, unsafeBitCast(call, to: GSourceFunc.self))
        return source
    }

    /// Calls `body` when the child process has ended.
    func child(_ process: pid_t, _ body: @escaping () -> Void) {
        let call: @convention(c) (GPid, CInt, gpointer?) -> Void = { _, _, body in _ = Callback.call(body) }
        attach(g_child_watch_source_new(process), once(body), unsafeBitCast(call, to: GSourceFunc.self))
    }

    /// Calls `body` on the thread that owns the context; from any thread.
    func invoke(_ body: @escaping @Sendable () -> Void) {
        let callback = Callback(once(body))
        g_main_context_invoke_full(
            pointer, G_PRIORITY_DEFAULT, { Callback.call($0) }, Unmanaged.passRetained(callback).toOpaque(),
            { Callback.release($0) })
    }

    /// Attaches a source that never fires, and returns the fate of what it holds.
    func witness() -> Fate {
        let witness = Witness()
        timeout(60_000) { withExtendedLifetime(witness) { true } }
        return Fate(witness)
    }

    private func attach(
        _ source: UnsafeMutablePointer<GSource>?, _ body: @escaping () -> Bool,
        _ function: GSourceFunc = { Callback.call($0) }
    ) {
        g_source_set_callback(
            source, function, Unmanaged.passRetained(Callback(body)).toOpaque(), { Callback.release($0) })
        g_source_attach(source, pointer)
        g_source_unref(source)
    }
}

private final class Callback {
    private let body: () -> Bool

    init(_ body: @escaping () -> Bool) { self.body = body }

    static func call(_ pointer: gpointer?) -> gboolean {
        Unmanaged<Callback>.fromOpaque(pointer!).takeUnretainedValue().body() ? 1 : 0
    }

    static func release(_ pointer: gpointer?) { Unmanaged<Callback>.fromOpaque(pointer!).release() }
}

/// A GLib main loop.
///
/// `@unchecked Sendable`: any thread may quit, reference and unreference it.
final class MainLoop: @unchecked Sendable {
    let pointer: OpaquePointer

    init(_ context: Context) { pointer = g_main_loop_new(context.pointer, 0) }

    deinit { g_main_loop_unref(pointer) }

    func run() { g_main_loop_run(pointer) }

    func quit() { g_main_loop_quit(pointer) }
}
