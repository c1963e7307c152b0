import Synchronization

extension RunLoop {
    /// The name of a set of things that a run loop attends to together.
    ///
    /// A loop runs in one mode at a time and serves only what was added to that mode. Two modes with the same
    /// raw value are the same mode. Names are remembered for the life of the process, so make modes from a
    /// fixed set of names, not from data.
    ///
    /// The raw values are Cocoa's, so that archived names and other libraries' constants mean the same here.
    public struct Mode: RawRepresentable, Hashable, Sendable {
        let index: Int32

        /// The mode called `rawValue`.
        public init(rawValue: String) { index = ModeNames.index(of: rawValue) }

        /// The mode called `rawValue`.
        public init(_ rawValue: String) { self.init(rawValue: rawValue) }

        init(_ index: Int32) { self.index = index }

        /// The mode's name.
        public var rawValue: String { ModeNames.name(at: index) }

        /// The mode for everything but tracking and dialogs; the one that `run()` runs.
        public static var `default`: Mode { Mode(0) }

        /// Stands for every mode of a loop's common set, and is never itself the mode that runs.
        public static var common: Mode { Mode(1) }

        /// The mode that runs while the user drags. A member of every loop's common set from the start.
        public static var tracking: Mode { Mode(2) }

        /// AppKit's name for its tracking mode.
        public static var eventTracking: Mode { Mode(3) }

        /// AppKit's mode for modal panels.
        public static var modalPanel: Mode { Mode(4) }

        /// Never runs, and equals no mode made from a name. A common item that was removed from each common mode
        /// by name is registered here, so that a mode that becomes common later still gets it.
        static var nowhere: Mode { Mode(5) }

        // Written out because those of a raw representable type would compare the names.

        /// Whether the two have the same name.
        public static func == (left: Mode, right: Mode) -> Bool { left.index == right.index }

        /// Hashes the name's number.
        public func hash(into hasher: inout Hasher) { hasher.combine(index) }
    }
}

extension RunLoop.Mode: CustomStringConvertible {
    /// The mode's name.
    public var description: String { rawValue }
}

/// Each name's number: modes are compared and looked up far more often than they are named.
private enum ModeNames {
    private struct Table {
        var names = [
            "kCFRunLoopDefaultMode", "kCFRunLoopCommonModes", "UITrackingRunLoopMode",
            "NSEventTrackingRunLoopMode", "NSModalPanelRunLoopMode", "(nowhere)",
        ]
        /// Without the last of the names above, which no client can name.
        lazy var indices = Dictionary(uniqueKeysWithValues: zip(names, 0..<RunLoop.Mode.nowhere.index))
    }

    private static let table = Mutex(Table())

    static func index(of name: String) -> Int32 {
        table.withLock { table in
            if let known = table.indices[name] { return known }
            let index = Int32(table.names.count)
            table.indices[name] = index
            table.names.append(name)
            return index
        }
    }

    static func name(at index: Int32) -> String {
        table.withLock { $0.names[Int(index)] }
    }
}
