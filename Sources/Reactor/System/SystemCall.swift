import Glibc
package import SystemPackage

package enum SystemCall {
    /// Makes a system call that returns -1 and sets `errno`; repeats it when a signal interrupts it.
    @discardableResult
    package static func make<Result: SignedInteger>(_ call: () -> Result) throws(Errno) -> Result {
        while true {
            let result = call()
            guard result == -1 else { return result }
            let code = errno  // before anything else can overwrite it
            guard code == EINTR else { throw Errno(rawValue: code) }
        }
    }
}
