// What a loop serves is equal only to itself, as streams and loops are: so that a client can keep it in a set.

extension Timer: Hashable {
    /// Whether the two are the same timer.
    public static func == (left: Timer, right: Timer) -> Bool { left === right }

    /// Hashes the timer's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension RunLoop.Source: Hashable {
    /// Whether the two are the same source.
    public static func == (left: RunLoop.Source, right: RunLoop.Source) -> Bool { left === right }

    /// Hashes the source's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension RunLoop.Observer: Hashable {
    /// Whether the two are the same observer.
    public static func == (left: RunLoop.Observer, right: RunLoop.Observer) -> Bool { left === right }

    /// Hashes the observer's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension EventSource: Hashable {
    /// Whether the two are the same source.
    public static func == (left: EventSource, right: EventSource) -> Bool { left === right }

    /// Hashes the source's identity.
    public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
