import Glibc
package import SystemPackage

package enum DescriptorLimit {
    /// Raises the soft limit on open descriptors to the hard limit. Each connection needs one descriptor, and the
    /// default limit is low for programs that use select(2).
    package static func raise() throws(Errno) {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { throw Errno(rawValue: errno) }
        limit.rlim_cur = limit.rlim_max
        guard unsafe setrlimit(resource, &limit) == 0 else { throw Errno(rawValue: errno) }
    }

    /// Fails unless `count` more descriptors can be opened.
    static func require(_ count: Int) throws {
        var descriptors: [FileDescriptor] = []
        defer { for descriptor in descriptors { try? descriptor.close() } }
        for _ in 0..<count {
            descriptors.append(
                try FileDescriptor.open(FilePath("/dev/null"), .readOnly, options: .closeOnExec))
        }
    }
}
