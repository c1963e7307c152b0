import Glibc
import Reactor

enum DescriptorLimit {
    /// Lets the process have as many descriptors as it may: each connection takes one, and the usual limit is
    /// low for the sake of programs that use select(2).
    static func raise() throws(Errno) {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { throw Errno(rawValue: errno) }
        limit.rlim_cur = limit.rlim_max
        guard unsafe setrlimit(resource, &limit) == 0 else { throw Errno(rawValue: errno) }
    }
}
