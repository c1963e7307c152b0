// A module's own declarations shadow those that it re-exports: in a file that imports this module in place of
// Foundation, these names mean Reactor's types.
@_exported public import Foundation
@_exported public import Reactor

/// A thread's event loop. Replaces Foundation's type.
public typealias RunLoop = Reactor.RunLoop
/// A timer that calls a closure on a run loop. Replaces Foundation's type.
public typealias Timer = Reactor.Timer
/// The base class of input and output streams. Replaces Foundation's type.
public typealias Stream = Reactor.Stream
/// A stream of bytes to read. Replaces Foundation's type.
public typealias InputStream = Reactor.InputStream
/// A stream of bytes to write. Replaces Foundation's type.
public typealias OutputStream = Reactor.OutputStream
/// A receiver of stream events. Replaces Foundation's type.
public typealias StreamDelegate = Reactor.StreamDelegate
