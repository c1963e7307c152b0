// A module's own declarations shadow those that it re-exports: where this module is imported in place of Foundation,
// these names mean the types that work.
@_exported public import Foundation
@_exported public import Reactor
@_exported public import ReactorCoreFoundation

/// A thread's event loop; see the module Reactor. It takes the place of Foundation's.
public typealias RunLoop = Reactor.RunLoop
/// What calls a closure at a date; see the module Reactor. It takes the place of Foundation's.
public typealias Timer = Reactor.Timer
/// What streams have in common; see the module Reactor. It takes the place of Foundation's.
public typealias Stream = Reactor.Stream
/// A stream of bytes to read; see the module Reactor. It takes the place of Foundation's.
public typealias InputStream = Reactor.InputStream
/// A stream of bytes to write; see the module Reactor. It takes the place of Foundation's.
public typealias OutputStream = Reactor.OutputStream
/// What a stream tells of its events; see the module Reactor. It takes the place of Foundation's.
public typealias StreamDelegate = Reactor.StreamDelegate
/// How a socket's bytes are protected; see the module Reactor. It takes the place of Foundation's.
public typealias StreamSocketSecurityLevel = Reactor.StreamSocketSecurityLevel
/// The keys that describe a SOCKS proxy; see the module Reactor. It takes the place of Foundation's.
public typealias StreamSOCKSProxyConfiguration = Reactor.StreamSOCKSProxyConfiguration
/// The versions of SOCKS; see the module Reactor. It takes the place of Foundation's.
public typealias StreamSOCKSProxyVersion = Reactor.StreamSOCKSProxyVersion
/// What a socket is for; see the module Reactor. It takes the place of Foundation's.
public typealias StreamNetworkServiceTypeValue = Reactor.StreamNetworkServiceTypeValue
