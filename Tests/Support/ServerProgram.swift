import Glibc
import Reactor
import SystemPackage

/// A server of another project that runs as a child process on a free port of loopback, until it is released.
package final class ServerProgram {
    package let port: UInt16
    private let child: Child

    /// Starts a server and waits until it accepts connections.
    ///
    /// - Parameter arguments: Its arguments for a port. Called again if another program has taken the port.
    package init(_ name: String, arguments: (UInt16) throws -> [String]) throws {
        for _ in 0..<10 {
            let port = try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress.port ?? 0
            // The kernel kills the server when the thread that started it ends.
            let command = ["--pdeathsig", "KILL", Self.path(of: name) ?? name] + (try arguments(port))
            let child = try Child("/usr/bin/setpriv", command)
            while !child.hasEnded {
                if (try? SocketPeer(connectedTo: .ipv4Loopback(port: port))) != nil {
                    (self.port, self.child) = (port, child)
                    return
                }
                sched_yield()
            }
            _ = child.wait()
        }
        throw Missing(name: name)
    }

    deinit {
        child.send(SIGKILL)
        _ = child.wait()
    }

    package struct Missing: Error { package let name: String }

    /// The path of an executable that is installed, or unpacked by `scripts/test`; nil if there is none.
    package static func path(of name: String) -> String? {
        // The folder of this file may be a symbolic link.
        let unpacked = FilePath(#filePath).removingLastComponent().string + "/../../.build/servers/bin"
        let folders = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin", unpacked]
        return folders.map { "\($0)/\(name)" }.first { access($0, X_OK) == 0 }
    }

    package static func isAvailable(_ name: String) -> Bool {
        path(of: name) != nil && access("/usr/bin/setpriv", X_OK) == 0
    }
}
