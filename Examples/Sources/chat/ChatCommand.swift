import ArgumentParser
import ExampleSupport
import Reactor
import SystemPackage

/// A chat server: `nc 127.0.0.1 7008`, as often as you like, and talk to yourself.
@main
struct ChatCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat",
        abstract: "A chat server: nc 127.0.0.1 7008, as often as you like, and talk to yourself.")

    @Option(help: "Where to listen: an address, such as 127.0.0.1, ::1, or :: for all of this machine's.")
    var host = "127.0.0.1"

    @Option(help: "The port; 0 for one that the kernel chooses.")
    var port: UInt16 = 7008

    @Option(help: "How many seconds a guest may take nothing of what is sent to it.")
    var patience = 60.0

    func validate() throws {
        guard patience > 0, patience < 1e6 else {
            throw ValidationError("The patience is a number of seconds, more than 0 and less than a million.")
        }
        guard SocketAddress(host, port: port) != nil else {
            throw ValidationError("\(host) is no address; names are not looked up here.")
        }
    }

    func run() throws {
        guard let address = SocketAddress(host, port: port) else { return }
        let room = Room(patience: .seconds(patience))
        let listener = try Listener(address) { _, connection in
            room.welcome(connection)
        } faults: { _, error in
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
