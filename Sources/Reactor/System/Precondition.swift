import CReactorLinux
import Glibc

/// Ends the process with a message unless `condition` holds.
///
/// Unlike with `precondition(_:_:)`, an optimized build prints the message too.
@inline(__always)
package func require(
    _ condition: Bool, _ message: @autoclosure () -> String, file: StaticString = #fileID, line: UInt = #line
) {
    if !condition { fatalError(message(), file: file, line: line) }
}

/// The calling thread, for a message: "the main thread", or "thread 'worker-2'" with the up to 15 bytes that the kernel
/// keeps of its name.
var currentThreadName: String {
    if reactor_is_main_thread() { return "the main thread" }
    let name = String(size: 16) { name in
        unsafe pthread_getname_np(pthread_self(), name, 16) == 0 ? UnsafePointer(name) : nil
    }
    return "thread '\(name ?? "")'"
}
