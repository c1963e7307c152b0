// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Core Foundation's types of values. A Core Foundation reference is the object itself here. Strings and booleans are
// Foundation's objects, as they are by toll-free bridging on Apple's systems.

public import Foundation

/// `NSString`. A `String` or a property key converts with `as`.
public typealias CFString = NSString
/// A Boolean as an object.
public typealias CFBoolean = NSNumber
/// A count or an index.
public typealias CFIndex = Int
/// A memory allocator; there is only the default one.
public enum CFAllocator: Sendable {}
/// The default allocator.
public let kCFAllocatorDefault: CFAllocator? = nil
/// True, as a property's value.
public let kCFBooleanTrue: CFBoolean! = true
/// False, as a property's value.
public let kCFBooleanFalse: CFBoolean! = false

/// Any object.
public typealias CFTypeRef = AnyObject
/// A null, as a property's value: `NSNull`.
public typealias CFNull = NSNull
/// Null, as a property's value.
public var kCFNull: CFNull! { NSNull() }

/// Seconds.
public typealias CFTimeInterval = TimeInterval
/// Seconds since 2001-01-01, in UTC.
public typealias CFAbsoluteTime = CFTimeInterval
/// The system's date, in seconds since 2001-01-01.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date.timeIntervalSinceReferenceDate }
