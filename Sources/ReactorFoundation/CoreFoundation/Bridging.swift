public import Foundation
public import Reactor

/// A value identified by a name. A `CFString` converts to it with `as`, as on Apple's systems.
public protocol CFStringBridgeable: RawRepresentable<String>, _ObjectiveCBridgeable
where _ObjectiveCType == NSString {}

extension CFStringBridgeable {
    /// The name.
    public func _bridgeToObjectiveC() -> NSString { rawValue as NSString }

    /// Sets `result` to the value called `source`.
    public static func _forceBridgeFromObjectiveC(_ source: NSString, result: inout Self?) {
        result = Self(rawValue: source as String)
    }

    /// Sets `result` to the value called `source`, and returns whether there is one.
    public static func _conditionallyBridgeFromObjectiveC(_ source: NSString, result: inout Self?) -> Bool {
        result = Self(rawValue: source as String)
        return result != nil
    }

    /// The value called `source`.
    public static func _unconditionallyBridgeFromObjectiveC(_ source: NSString?) -> Self {
        guard let source, let value = Self(rawValue: source as String) else {
            fatalError("\(Self.self) has no value called \(source ?? "nil")")
        }
        return value
    }
}

extension Reactor.Stream.PropertyKey: CFStringBridgeable {
    /// The key called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue as String) }

    /// The key called `rawValue`.
    public init(_ rawValue: CFString) { self.init(rawValue as String) }
}

extension Reactor.RunLoop.Mode: CFStringBridgeable {
    /// The mode called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue as String) }

    /// The mode called `rawValue`.
    public init(_ rawValue: CFString) { self.init(rawValue as String) }
}

extension StreamSocketSecurityLevel: CFStringBridgeable {
    /// The level called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue: rawValue as String) }
}

extension StreamSOCKSProxyConfiguration: CFStringBridgeable {
    /// The key called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue: rawValue as String) }
}

extension StreamSOCKSProxyVersion: CFStringBridgeable {
    /// The version called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue: rawValue as String) }
}

extension StreamNetworkServiceTypeValue: CFStringBridgeable {
    /// The service called `rawValue`.
    public init(rawValue: CFString) { self.init(rawValue: rawValue as String) }
}
