import CReactorGLib

/// A reference to a GLib main context.
///
/// `@safe`: the pointer is valid as long as this.
@safe
final class MainContext {
    @safe let pointer: OpaquePointer

    /// - Parameter pointer: A `GMainContext *`; nil for the default one.
    init(_ pointer: OpaquePointer?) {
        unsafe self.pointer = g_main_context_ref(pointer ?? g_main_context_default())
    }

    deinit { unsafe g_main_context_unref(pointer) }

    /// Makes the calling thread the owner; false if another thread is.
    func acquire() -> Bool { unsafe g_main_context_acquire(pointer) != 0 }

    func release() { unsafe g_main_context_release(pointer) }

    /// Whether there is something to dispatch without waiting. Sets the priority of the sources to ask for.
    func prepare(_ priority: inout gint) -> Bool { unsafe g_main_context_prepare(pointer, &priority) != 0 }

    /// Sets the timeout and as many records as there are; returns how many there should be.
    func query(_ priority: gint, _ timeout: inout gint, _ records: inout [GPollFD]) -> Int {
        let capacity = gint(records.count)
        return Int(unsafe g_main_context_query(pointer, priority, &timeout, &records, capacity))
    }

    /// Tells GLib what is ready; true if there is something to dispatch.
    func check(_ priority: gint, _ records: inout [GPollFD]) -> Bool {
        let count = gint(records.count)
        return unsafe g_main_context_check(pointer, priority, &records, count) != 0
    }

    func dispatch() { unsafe g_main_context_dispatch(pointer) }
}
