extension [SocketAddress] {
    /// The same addresses in the order in which to try to connect to them: the families take turns, so that one
    /// that does not work here holds up only every other attempt (RFC 8305, section 4).
    ///
    /// The family of the first address begins. Addresses of one family stay in their order, which for the
    /// resolver's answers is that of RFC 6724.
    ///
    /// - Parameter firstCount: How many of the first family come before one of another; one unless more are
    ///   wanted.
    public func interleavingFamilies(firstCount: Int = 1) -> [SocketAddress] {
        guard let family = first?.family else { return [] }
        var preferred = filter { $0.family == family }[...]
        var others = filter { $0.family != family }[...]
        var result = Array(preferred.prefix(Swift.max(firstCount, 1)))
        preferred = preferred.dropFirst(result.count)
        while let other = others.popFirst() {
            result.append(other)
            if let next = preferred.popFirst() { result.append(next) }
        }
        return result + preferred
    }
}
