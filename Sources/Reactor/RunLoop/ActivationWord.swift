import Synchronization

/// The innermost activation of a loop: its mode, its depth, whether another event loop hosts it, and whether it has been asked
/// to stop.
///
/// Mode, depth and stop bit share one atomic word, so a stop request applies to the activation whose mode the caller saw.
struct ActivationWord: RawRepresentable, AtomicRepresentable {
    /// The mode's index in the low half, then ``stopBit``, ``hostedBit`` and the depth.
    private(set) var rawValue: UInt64

    private static let stopBit: UInt64 = 1 << 32
    private static let hostedBit: UInt64 = 1 << 33
    private static let depthShift: UInt64 = 34

    init(rawValue: UInt64) { self.rawValue = rawValue }

    /// Outside an activation.
    static var none: ActivationWord { ActivationWord(rawValue: 0) }

    /// An activation in `mode` within this one, which nothing has asked to stop.
    func nested(in mode: RunLoop.Mode, isHosted: Bool) -> ActivationWord {
        let hostedBit = isHosted ? Self.hostedBit : 0
        return ActivationWord(rawValue: UInt64(depth + 1) << Self.depthShift | hostedBit).moved(to: mode)
    }

    var isHosted: Bool { rawValue & Self.hostedBit != 0 }

    /// How many activations there are, one within the other.
    var depth: Int { Int(rawValue >> Self.depthShift) }

    /// Nil outside an activation.
    var mode: RunLoop.Mode? {
        depth == 0 ? nil : RunLoop.Mode(Int32(truncatingIfNeeded: rawValue))
    }

    /// The same activation in another mode.
    func moved(to mode: RunLoop.Mode) -> ActivationWord {
        ActivationWord(rawValue: rawValue & ~UInt64(UInt32.max) | UInt64(UInt32(bitPattern: mode.index)))
    }

    var isStopRequested: Bool {
        get { rawValue & Self.stopBit != 0 }
        set { rawValue = newValue ? rawValue | Self.stopBit : rawValue & ~Self.stopBit }
    }
}
