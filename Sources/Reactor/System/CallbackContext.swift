import Glibc

/// The context that a C library passes to its callbacks: the address of an object.
package enum CallbackContext {
    /// The address of `object`, which the caller keeps for as long as the library may call.
    @safe
    package static func address(of object: AnyObject) -> UnsafeMutableRawPointer {
        unsafe Unmanaged.passUnretained(object).toOpaque()
    }

    /// The address of `object`, which is kept until ``take(_:as:)``.
    @safe
    package static func retain(_ object: AnyObject) -> UnsafeMutableRawPointer {
        unsafe Unmanaged.passRetained(object).toOpaque()
    }

    /// The object at an address that a callback got.
    @inline(__always)
    package static func object<Object: AnyObject>(
        _ address: UnsafeMutableRawPointer?, as type: Object.Type = Object.self
    ) -> Object {
        unsafe Unmanaged.fromOpaque(address.unsafelyUnwrapped).takeUnretainedValue()
    }

    /// Calls `body` with the object at an address, without retaining it.
    @inline(__always)
    static func borrow<Object: AnyObject, Result>(
        _ address: UnsafeMutableRawPointer?, _ body: (Object) -> Result
    ) -> Result {
        unsafe Unmanaged.fromOpaque(address.unsafelyUnwrapped)._withUnsafeGuaranteedRef(body)
    }

    /// The object at an address of ``retain(_:)``, which no longer keeps it.
    package static func take<Object: AnyObject>(
        _ address: UnsafeMutableRawPointer?, as type: Object.Type = Object.self
    ) -> Object {
        unsafe Unmanaged.fromOpaque(address.unsafelyUnwrapped).takeRetainedValue()
    }
}

/// A variable of the process's environment.
package func environmentVariable(_ name: String) -> String? { unsafe String(copying: getenv(name)) }

extension String {
    /// The string that a C function writes to memory of `size` bytes; nil if `write` returns NULL.
    ///
    /// `@safe`: `write` marks what it does with the memory.
    @safe
    init?(size: Int, writtenBy write: (UnsafeMutablePointer<CChar>) -> UnsafePointer<CChar>?) {
        let text = unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: size) { memory in
            unsafe String(copying: write(memory.baseAddress.unsafelyUnwrapped))
        }
        guard let text else { return nil }
        self = text
    }

    /// A copy of a string that a C function has returned; nil for NULL.
    package init?(copying text: UnsafePointer<CChar>?) {
        guard let text = unsafe text else { return nil }
        unsafe self.init(cString: text)
    }
}
