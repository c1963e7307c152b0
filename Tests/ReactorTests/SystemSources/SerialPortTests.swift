import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct SerialPortTests {
    @Test func `all bytes pass unchanged in both directions, and the end of the device ends the input`()
        async throws
    {
        let pair = PseudoTerminal()
        let port = try SerialPort(at: pair.path)
        let all = Array(UInt8.min...UInt8.max)
        try await port.output.writeAll(all)
        let other = InputStream(descriptor: pair.master)
        #expect(try await other.read(exactly: 256) == all)
        _ = try pair.master.writeAll(all)
        #expect(try await port.input.read(exactly: 256) == all)
        other.close()
        pair.close()
        #expect(try await port.input.readChunk() == nil)
        for stream in [port.input, port.output] { stream.close() }
    }

    @Test func `the port is closed when both streams are`() async throws {
        let pair = PseudoTerminal()
        let port = try SerialPort(at: pair.path)
        try pair.slave.close()
        port.input.open()
        port.input.close()
        try await port.output.writeAll("a")
        let other = InputStream(descriptor: pair.master)
        #expect(try await other.read(exactly: 1) == Array("a".utf8))
        port.output.close()
        // Nothing has the other end of the device open.
        #expect(await thrownError { _ = try await other.readChunk() }?.errno == .ioError)
        other.close()
        try pair.master.close()
    }

    @Test func `the settings are the port's`() throws {
        let pair = PseudoTerminal()
        defer { pair.close() }
        let path = pair.path
        var configuration = SerialPort.Configuration(speed: 9_600)
        configuration.stopBits = 2
        configuration.flowControl = .hardware
        let port = try SerialPort(at: path, configuration)
        var settings = pair.settings
        // The kernel's termios2, whose last words are the speeds (TCGETS2).
        var words = [UInt32](repeating: 0, count: 11)
        #expect(ioctl(pair.slave.rawValue, 0x802C_542A, &words) == 0 && words[9...] == [9_600, 9_600])
        #expect(settings.c_cflag & tcflag_t(CSTOPB) != 0)
        let hardwareFlowControl: tcflag_t = 0x8000_0000  // CRTSCTS
        #expect(settings.c_cflag & hardwareFlowControl != 0)
        #expect(settings.c_iflag & tcflag_t(IXON | IXOFF | ICRNL) == 0)
        #expect(settings.c_lflag == 0 && settings.c_oflag == 0)
        configuration.flowControl = .software
        let again = try SerialPort(at: path, configuration)
        settings = pair.settings
        #expect(settings.c_iflag & tcflag_t(IXON | IXOFF) == tcflag_t(IXON | IXOFF))
        for stream in [port.input, port.output, again.input, again.output] { stream.close() }
    }

    @Test func `what cannot be a port, or its settings, is an error that names the path`() throws {
        let pair = PseudoTerminal()
        defer { pair.close() }
        let path = pair.path
        for change in [{ $0.dataBits = 9 }, { $0.stopBits = 0 }, { $0.speed = 0 }, { $0.speed = -1 }]
            as [(inout SerialPort.Configuration) -> Void]
        {
            var configuration = SerialPort.Configuration()
            change(&configuration)
            let error = #expect(throws: IOError.self) { _ = try SerialPort(at: path, configuration) }
            #expect(error?.errno == .invalidArgument && error?.subject == path.string)
        }
        for (path, errno) in [("/dev/null", Errno(rawValue: ENOTTY)), ("/no/such", .noSuchFileOrDirectory)] {
            let error = #expect(throws: IOError.self) { _ = try SerialPort(at: FilePath(path)) }
            #expect(error?.errno == errno && error?.subject == path)
        }
    }
}
