/// What the client calls an item, and, in debug mode, where the item was made.
final class ItemName: Sendable {
    /// Where in the client's code.
    struct SourceLocation: Sendable {
        let file: StaticString
        let line: UInt
    }

    let label: String?
    private let location: SourceLocation?
    /// Whether the library has made the item for itself, and the client cannot know it. Noted in debug mode.
    let isInternal: Bool

    init(_ label: String?, _ location: SourceLocation? = nil, isInternal: Bool = false) {
        (self.label, self.location, self.isInternal) = (label, location, isInternal)
    }

    /// Nil if there is nothing to remember: no label, and no debug mode that shows the place.
    @inline(__always)
    static func make(_ label: String?, _ file: StaticString, _ line: UInt) -> ItemName? {
        guard label != nil || LoopDiagnostics.isReporting else { return nil }
        return remember(label, file, line)
    }

    @inline(never)
    private static func remember(_ label: String?, _ file: StaticString, _ line: UInt) -> ItemName? {
        let module = String("\(file)".prefix { $0 != "/" })
        guard LoopDiagnostics.isReporting else { return label.map { ItemName($0) } }
        if internalModules.contains(module) { return ItemName(label, isInternal: label == nil) }
        let isShown = !cocoaModules.contains(module)
        return label == nil && !isShown
            ? nil : ItemName(label, isShown ? SourceLocation(file: file, line: line) : nil)
    }

    /// The modules whose code makes items for itself.
    private static let internalModules: Set = ["Reactor", "ReactorHTTP", "ReactorTLS", "ReactorGLib"]

    /// The modules whose code makes items on behalf of a client, for Cocoa's spellings: their places tell nothing.
    private static let cocoaModules: Set = [
        "ReactorFoundation", "ReactorHTTPFoundation",
    ]

    /// The same place with another label; nil if nothing is left.
    static func relabel(_ name: ItemName?, _ label: String?) -> ItemName? {
        label == nil && name?.location == nil ? nil : ItemName(label, name?.location)
    }

    fileprivate var suffix: String {
        let quoted = label.map { " '\($0)'" } ?? ""
        return quoted + (location.map { " (\($0.file):\($0.line))" } ?? "")
    }
}

extension ItemName? {
    /// "timer", or "timer 'heartbeat' (App/main.swift:12)".
    func naming(_ noun: String) -> String { self.map { noun + $0.suffix } ?? noun }
}

extension Duration {
    /// In seconds, to the millisecond.
    package var rounded: String {
        // A timer in the distant future.
        guard components.seconds < 1_000_000_000 else { return "more than 30 years" }
        let milliseconds = components.seconds * 1000 + components.attoseconds / 1_000_000_000_000_000
        return "\(Double(milliseconds) / 1000) s"
    }
}
