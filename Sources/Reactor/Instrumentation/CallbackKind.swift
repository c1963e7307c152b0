import Synchronization

/// What kind of callback a loop is in: one word, which any thread may read.
struct CallbackKind: RawRepresentable, AtomicRepresentable, Equatable {
    /// The descriptor of an event source, -1 for one without a descriptor, or a constant.
    let rawValue: CInt

    init(rawValue: CInt) { self.rawValue = rawValue }

    /// The callback of an event source.
    init(descriptor: CInt) { rawValue = descriptor }

    static var none: CallbackKind { CallbackKind(rawValue: .min) }
    static var timer: CallbackKind { CallbackKind(rawValue: -2) }
    static var source: CallbackKind { CallbackKind(rawValue: -3) }
    static var observer: CallbackKind { CallbackKind(rawValue: -4) }
    static var block: CallbackKind { CallbackKind(rawValue: -5) }
    static var job: CallbackKind { CallbackKind(rawValue: -6) }

    /// What is being called; nil if nothing is.
    var name: String? {
        switch self {
        case .none: nil
        case .timer: "a timer"
        case .source: "a signalled source or a mailbox"
        case .observer: "an observer or an ordered block"
        case .block: "a posted block"
        case .job: "a job of an executor"
        case CallbackKind(descriptor: -1): "a source of events without a descriptor"
        default: "the source of \(descriptorName(rawValue))"
        }
    }
}
