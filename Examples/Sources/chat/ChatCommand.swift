import ArgumentParser
import ExampleSupport
import Reactor
import SystemPackage
import TLSOptions

/// A chat server for line-based clients such as `nc`.
@main
struct ChatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat",
        abstract: "A chat server for line-based clients such as nc.",
        discussion: """
            Connect from two terminals with "nc 127.0.0.1 7008". A guest can send /nick NAME, /who and /quit. SIGINT and \
            SIGTERM disconnect all guests and end the server.
            """)

    @Option(help: "The address to listen on, such as 127.0.0.1, ::1, or :: for all addresses.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 lets the kernel choose one.")
    var port: UInt16 = 7008

    @Option(help: "Disconnect a guest that accepts no data for this many seconds.")
    var writeTimeout = 60.0

    @OptionGroup var tls: ServerTLSOptions

    func validate() throws {
        guard writeTimeout > 0, writeTimeout < 1e6 else {
            throw ValidationError("--write-timeout must be greater than 0 and less than 1000000 seconds.")
        }
        guard SocketAddress(host, port: port) != nil else {
            throw ValidationError("--host must be a numeric address; host names are not resolved: \(host)")
        }
    }

    private var options: Listener.Options {
        // Several hundred of the longest lines: a short delay of one guest does not stop the others.
        let writeBufferSize = 262_144
        return .init(
            connection: .init(writeTimeout: .seconds(writeTimeout), writeBufferSize: writeBufferSize))
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        guard let address = SocketAddress(host, port: port) else { return }
        let room = Room()
        let listener = try Listener(address, options: options, security: tls.security) { _, connection in
            Guest(connection, in: room).start()
        } acceptErrors: { _, error in
            _ = try? FileDescriptor.standardError.writeAll(Array("\(error)\n".utf8))
        }
        try RunLoop.main.add(listener, forMode: .common)
        try Interruption {
            listener.close()
            room.close { RunLoop.main.stop() }
        }
        try FileDescriptor.standardOutput.writeAll(Array("Listening on \(listener.localAddress)\n".utf8))
        RunLoop.main.run(in: .default)
    }
}
