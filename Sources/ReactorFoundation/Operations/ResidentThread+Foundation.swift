import Reactor

extension ResidentThread {
    /// What operations share that name no other loop.
    static let operations = ResidentThread(name: "operations")
    /// What serves the sockets of ports. It calls no delegates.
    static let ports = ResidentThread(name: "ports")
}
