import Glibc
import Reactor
import SystemPackage

/// A server of another project that runs as a child process on a free port of loopback, until it is released.
package final class ServerProgram {
    package let port: UInt16
    private let child: Child

    /// Starts a server and waits until it is ready: until it accepts connections, unless `isReady` is given.
    ///
    /// - Parameter arguments: Its arguments for a port. Called again if another program has taken the port.
    package init(
        _ name: String, isReady: (UInt16) -> Bool = ServerProgram.accepts,
        arguments: (UInt16) throws -> [String]
    ) throws {
        for _ in 0..<10 {
            let port = try Self.freePort()
            // The kernel kills the server when the thread that started it ends.
            let command = ["--pdeathsig", "KILL", Self.path(of: name) ?? name] + (try arguments(port))
            let child = try Child("/usr/bin/setpriv", command)
            var isRunning = false
            _ = becomesTrue {
                isRunning = isReady(port)
                return isRunning || child.hasEnded
            }
            if isRunning {
                (self.port, self.child) = (port, child)
                return
            }
            child.send(SIGKILL)
            child.wait()
        }
        throw Missing(name: name)
    }

    deinit { stop() }

    /// Kills the server and waits for its end.
    package func stop() {
        child.send(SIGKILL)
        child.wait()
    }

    package static func accepts(_ port: UInt16) -> Bool {
        (try? SocketPeer(connectedTo: .ipv4Loopback(port: port))) != nil
    }

    static func freePort() throws -> UInt16 {
        try SocketPeer(listeningAt: .ipv4Loopback(port: 0)).localAddress.port ?? 0
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
