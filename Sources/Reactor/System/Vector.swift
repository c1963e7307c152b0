import Glibc

/// A growable run of elements with one owner: an array that is never shared.
///
/// It grows as realloc(3) does, which moves large ones without copying, and needs no type that the runtime would
/// have to make first: that is what a program's first array costs, some 600 KB of the runtime's pages. Elements
/// are moved as bits, which every type but one with weak references is fit for.
@safe
struct Vector<Element>: ~Copyable {
    private var storage: UnsafeMutablePointer<Element>?
    private var capacity = 0
    private(set) var count = 0

    init() {}

    deinit {
        unsafe storage?.deinitialize(count: count)
        unsafe free(storage)
    }

    var isEmpty: Bool { count == 0 }
    var indices: Range<Int> { 0..<count }
    var first: Element? { isEmpty ? nil : self[0] }

    /// Where the elements are, in a vector that is not empty and until it next grows. Nothing is checked there.
    @unsafe var start: UnsafeMutablePointer<Element> {
        @inline(__always) mutating get { unsafe storage.unsafelyUnwrapped }
    }

    subscript(index: Int) -> Element {
        @inline(__always) unsafeAddress { unsafe UnsafePointer(place(of: index)) }
        @inline(__always) unsafeMutableAddress { unsafe place(of: index) }
    }

    @inline(__always)
    private func place(of index: Int) -> UnsafeMutablePointer<Element> {
        precondition(UInt(bitPattern: index) < UInt(bitPattern: count), "no such element")
        return unsafe storage.unsafelyUnwrapped + index
    }

    mutating func append(_ element: consuming Element) {
        if count == capacity { grow() }
        unsafe (storage.unsafelyUnwrapped + count).initialize(to: element)
        count += 1
    }

    mutating func removeLast() -> Element {
        precondition(count > 0, "nothing to remove")
        count -= 1
        return unsafe (storage.unsafelyUnwrapped + count).move()
    }

    mutating func removeAll() {
        unsafe storage?.deinitialize(count: count)
        count = 0
    }

    @inline(never)
    private mutating func grow() {
        let wanted = max(4, capacity * 2)
        let (bytes, isTooMany) = wanted.multipliedReportingOverflow(by: MemoryLayout<Element>.stride)
        guard !isTooMany, let memory = unsafe realloc(storage, bytes) else { fatalError("out of memory") }
        unsafe storage = memory.assumingMemoryBound(to: Element.self)
        capacity = wanted
    }
}
