import Glibc

/// A growable array with one owner.
///
/// It grows with realloc(3), which moves large arrays without copying them. It also needs no generic class that the
/// runtime would have to instantiate: a program's first `Array` of a type touches some 600 KB of the runtime's pages.
///
/// `@safe`: the storage is this value's alone, its first `count` elements are initialized, and every index is compared with
/// the count. realloc(3) moves elements as bits, which is right for every type without weak references.
@safe
struct UniqueArray<Element>: ~Copyable {
    private var storage: UnsafeMutablePointer<Element>?
    private var capacity = 0
    private(set) var count = 0

    init() {}

    deinit {
        unsafe free(storage?.deinitialize(count: count))
    }

    var isEmpty: Bool { count == 0 }
    var indices: Range<Int> { 0..<count }
    var first: Element? { isEmpty ? nil : self[0] }

    /// The elements' address, valid until the array next grows. The array must not be empty; bounds are not checked.
    var start: UnsafeMutablePointer<Element> {
        @inline(__always) mutating get { unsafe storage.unsafelyUnwrapped }
    }

    subscript(index: Int) -> Element {
        @inline(__always) unsafeAddress { unsafe UnsafePointer(place(of: index)) }
        @inline(__always) unsafeMutableAddress { unsafe place(of: index) }
    }

    @inline(__always)
    private func place(of index: Int) -> UnsafeMutablePointer<Element> {
        require(
            UInt(bitPattern: index) < UInt(bitPattern: count), "UniqueArray: the index is out of bounds."
        )
        return unsafe storage.unsafelyUnwrapped + index
    }

    mutating func append(_ element: consuming Element) {
        if count == capacity { grow() }
        unsafe (storage.unsafelyUnwrapped + count).initialize(to: element)
        count += 1
    }

    mutating func removeLast() -> Element {
        require(count > 0, "UniqueArray: there is no element to remove.")
        count -= 1
        return unsafe (storage.unsafelyUnwrapped + count).move()
    }

    @inline(never)
    private mutating func grow() {
        let wanted = max(4, capacity * 2)
        let (bytes, isTooMany) = wanted.multipliedReportingOverflow(by: MemoryLayout<Element>.stride)
        guard !isTooMany, let memory = unsafe realloc(storage, bytes) else {
            fatalError("There is no memory for an array of \(wanted) elements.")
        }
        unsafe storage = memory.assumingMemoryBound(to: Element.self)
        capacity = wanted
    }
}
