/// Gives the properties whose values are of another module's types, which this one does not know.
package protocol StreamPropertyBridge {
    /// The value of a property that no stream knows by itself; `native` asks the stream for those that it does.
    static func property(_ key: Stream.PropertyKey, native: (Stream.PropertyKey) -> Any?) -> Any?
}

/// A ``StreamPropertyBridge`` in a program that has ReactorFoundation, which says so by its conformance: that is
/// looked up at run time, so there is nothing to register, and no moment before it is.
package enum StreamProperties {
    static var bridge: (any StreamPropertyBridge.Type)? {
        StreamProperties.self as? any StreamPropertyBridge.Type
    }
}
