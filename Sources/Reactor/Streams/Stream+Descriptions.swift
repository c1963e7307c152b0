extension Stream.Event: CustomStringConvertible {
    /// The names of the events, such as `[openCompleted, hasBytesAvailable]`; a single event without brackets.
    public var description: String {
        let names = [
            "openCompleted", "hasBytesAvailable", "hasSpaceAvailable", "errorOccurred", "endEncountered",
        ]
        var parts = names.enumerated().compactMap { bit, name in rawValue & (1 << bit) == 0 ? nil : name }
        let unnamed = rawValue & ~31
        if unnamed != 0 { parts.append("0x" + String(unnamed, radix: 16)) }
        return parts.count == 1 ? parts[0] : "[\(parts.joined(separator: ", "))]"
    }
}

extension Stream.PropertyKey: CustomStringConvertible {
    /// The key's name.
    public var description: String { rawValue }
}
