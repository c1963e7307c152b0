import CReactorLinux
import Glibc
import SystemPackage
import Testing

/// Both ends of a pseudo-terminal, which no process has as its controlling terminal.
struct PseudoTerminal {
    let master: FileDescriptor
    let slave: FileDescriptor

    init() {
        master = FileDescriptor(rawValue: open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC))
        #expect(reactor_terminal_unlock(master.rawValue) == 0)
        slave = FileDescriptor(rawValue: reactor_terminal_open(master.rawValue))
    }

    /// The path of the slave.
    var path: FilePath {
        FilePath(
            String(unsafeUninitializedCapacity: 64) { name in
                name.withMemoryRebound(to: CChar.self) { name in
                    #expect(ttyname_r(slave.rawValue, name.baseAddress!, name.count) == 0)
                    return strlen(name.baseAddress!)
                }
            })
    }

    var settings: termios {
        var settings = termios()
        #expect(tcgetattr(slave.rawValue, &settings) == 0)
        return settings
    }

    func close() {
        for descriptor in [slave, master] { try? descriptor.close() }
    }
}
