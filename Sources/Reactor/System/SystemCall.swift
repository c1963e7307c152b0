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

    /// Polls a descriptor without waiting (poll(2)): returns those of `events` that it is ready for, and errors.
    static func poll(_ descriptor: CInt, for events: CInt) throws(Errno) -> CInt {
        var request = pollfd(fd: descriptor, events: Int16(events), revents: 0)
        try make { unsafe Glibc.poll(&request, 1, 0) }
        return CInt(request.revents)
    }
}
