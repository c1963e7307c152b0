import CReactorLinux

/// A weak reference without a side table.
///
/// `weak` gives the object a side table, through which every reference to the object is counted from then on: a release takes
/// 75 instructions instead of 17, and each event has two. This reference keeps the memory of a destroyed object, without its
/// contents, until it is destroyed itself.
///
/// `@safe`: the unowned reference that it owns keeps the object's reference counts readable, and the runtime retains no object
/// whose deinitializer has begun. The caller of `load()` ensures that its thread may use it.
@safe
struct WeakReference<Object>: ~Copyable {
    /// An `Object?`, whose first word is the object's address, and the second one of an existential.
    private var words: (UInt, UInt) = (0, 0)

    /// - Parameter object: An object, or an existential of a class.
    init(_ object: Object?) {
        unsafe withUnsafeMutableBytes(of: &words) { words in
            unsafe withUnsafeBytes(of: object) { unsafe words.copyMemory(from: $0) }
        }
        unsafe swift_unownedRetain(address)
    }

    deinit { unsafe swift_unownedRelease(address) }

    private var address: UnsafeMutableRawPointer? { unsafe UnsafeMutableRawPointer(bitPattern: words.0) }

    /// Whether there was an object. It may have been destroyed.
    var isSet: Bool { words.0 != 0 }

    /// The object, unless its deinitializer has begun.
    func load() -> Object? {
        guard unsafe isSet && swift_tryRetain(address) != nil else { return nil }
        // The reference that has just been counted moves out of a copy.
        var words = words
        return unsafe withUnsafeMutableBytes(of: &words) { words in
            unsafe words.baseAddress!.assumingMemoryBound(to: Object?.self).move()
        }
    }
}
