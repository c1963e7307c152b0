import Reactor

/// Values by key up to a limit, beyond which the value goes that was not used for the longest time.
struct RecentValues<Key: Hashable, Value> {
    private let limit: Int
    private var entries: [Key: (value: Value, lastUse: UInt64)] = [:]
    private var useCount: UInt64 = 0

    init(limit: Int) { self.limit = limit }

    /// The value of `key`, which is used by that.
    mutating func value(for key: Key) -> Value? {
        guard let value = entries[key]?.value else { return nil }
        set(value, for: key)
        return value
    }

    mutating func set(_ value: Value, for key: Key) {
        if entries.count >= limit, entries[key] == nil,
            let oldest = entries.min(by: { $0.value.lastUse < $1.value.lastUse })
        {
            entries[oldest.key] = nil
        }
        useCount += 1
        entries[key] = (value, useCount)
    }

    mutating func remove(_ key: Key) { entries[key] = nil }

    mutating func removeAll(where isUnwanted: (Key) -> Bool) {
        entries = entries.filter { !isUnwanted($0.key) }
    }
}

extension TLSContext {
    /// The most contexts that are kept for later connections: more than programs have settings in use.
    private static let limit = 128

    private static let known = Mutex(RecentValues<Key, TLSContext>(limit: limit))

    /// The settings of a context. It keeps no object of them alive: with its last object goes the context.
    private struct Key: Hashable {
        let settings: TLSSettings
        /// The strings' bytes: strings of other bytes may be equal, and name other protocols.
        let texts: [[UInt8]]
        /// The identities and the verifier.
        let objects: [ObjectIdentifier]

        init(_ settings: TLSSettings) {
            self.settings = settings.shared
            texts = settings.applicationProtocols.map { Array($0.utf8) }
            let identities = settings.identities.map { ObjectIdentifier($0) }
            objects = identities + (settings.peerVerifier.map { [ObjectIdentifier($0)] } ?? [])
        }
    }

    /// The context of `settings`: the same one for equal settings.
    static func context(for settings: TLSSettings) throws(TLSError) -> TLSContext {
        let key = Key(settings)
        if let context = known.withLock({ $0.value(for: key) }) { return context }
        let new = try TLSContext(settings)
        return known.withLock { known in
            if let other = known.value(for: key) { return other }
            known.set(new, for: key)
            return new
        }
    }

    /// Releases the contexts of an object that is being released, which no settings can have again.
    static func removeAll(of object: AnyObject) {
        let identifier = ObjectIdentifier(object)
        known.withLock { $0.removeAll { $0.objects.contains(identifier) } }
    }
}

extension TLSSettings {
    /// Without what belongs to the program or to a connection.
    var shared: TLSSettings {
        var settings = self
        (settings.identities, settings.peerVerifier, settings.peerName) = ([], nil, nil)
        return settings
    }
}
