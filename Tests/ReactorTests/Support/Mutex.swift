import Reactor

/// The library's, which the thread sanitizer can follow.
typealias Mutex<Value: ~Copyable> = Reactor.Mutex<Value>
