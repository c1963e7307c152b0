// A library for event loops in other languages, which need poll(2) and one descriptor: see poll-host/lines.h.

import Reactor
import SystemPackage

@MainActor private var hosting: RunLoop.Hosting?

/// Begins to read lines from `descriptor` and calls `handler` for each.
///
/// - Returns: The descriptor for the host to watch, or the negative of an errno value.
@_cdecl("lines_begin")
public func begin(
    _ descriptor: CInt, _ handler: @escaping @convention(c) @Sendable (UnsafePointer<CChar>) -> Void
) -> CInt {
    MainActor.assumeIsolated {
        do throws(IOError) {
            let hosting = try RunLoop.Hosting(.main)
            HostedLines.hosting = hosting
            Task { unsafe await read(FileDescriptor(rawValue: descriptor), handler) }
            return hosting.descriptor.rawValue
        } catch {
            return -(error.errno ?? .ioError).rawValue
        }
    }
}

/// An ordinary task of the main actor, which the host's loop runs.
@MainActor private func read(
    _ descriptor: FileDescriptor, _ handler: @convention(c) @Sendable (UnsafePointer<CChar>) -> Void
) async {
    do {
        for try await line in InputStream(descriptor: descriptor).lines {
            unsafe line.withCString { unsafe handler($0) }
        }
    } catch {
        unsafe "error: \(error)".withCString { unsafe handler($0) }
    }
    RunLoop.main.stop()
}

/// Does what is ready, without waiting; false once the last line has been read.
@_cdecl("lines_dispatch")
public func dispatch() -> Bool { MainActor.assumeIsolated { hosting?.dispatch() ?? false } }

/// Ends the hosting.
@_cdecl("lines_end")
public func end() { MainActor.assumeIsolated { hosting = nil } }
