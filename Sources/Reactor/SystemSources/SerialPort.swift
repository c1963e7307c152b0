import CReactorLinux
import Glibc
public import SystemPackage

/// A serial port, as two streams.
///
/// ```swift
/// let port = try SerialPort(at: "/dev/ttyUSB0", .init(speed: 9_600))
/// try await port.output.writeAll("AT\r")
/// for try await line in port.input.lines { print(line) }
/// ```
///
/// All bytes are delivered unchanged, except those that parity and flow control change. The streams are neither opened nor
/// scheduled yet; the port is closed when both are. The input ends when the device is removed. See termios(3).
public struct SerialPort {
    /// The settings of a serial port: 115,200 bits per second, 8 data bits, no parity, one stop bit and no flow control unless
    /// others are set.
    public struct Configuration: Sendable, Hashable {
        /// A bit that makes the number of ones even or odd. A byte with a wrong one is read as 0.
        @nonexhaustive public enum Parity: Sendable, Hashable {
            /// No such bit.
            case none
            /// An even number.
            case even
            /// An odd number.
            case odd
        }

        /// How a receiver that cannot keep up stops the sender.
        @nonexhaustive public enum FlowControl: Sendable, Hashable {
            /// Not at all.
            case none
            /// By the lines RTS and CTS.
            case hardware
            /// By the bytes 17 (XON) and 19 (XOFF), which are not passed on.
            case software
        }

        /// Bits per second. The driver picks the nearest rate that it supports.
        public var speed: Int
        /// The bits of a character, 5 to 8.
        public var dataBits = 8
        /// The parity.
        public var parity = Parity.none
        /// The stop bits, one or two.
        public var stopBits = 1
        /// The flow control.
        public var flowControl = FlowControl.none

        /// Settings with a speed.
        public init(speed: Int = 115_200) { self.speed = speed }

        fileprivate var raw: reactor_serial? {
            guard let speed = UInt32(exactly: speed), speed > 0, (5...8).contains(dataBits),
                (1...2).contains(stopBits)
            else { return nil }
            let letter: Unicode.Scalar = parity == .none ? "N" : parity == .odd ? "O" : "E"
            return reactor_serial(
                speed: speed, data_bits: CInt(dataBits), stop_bits: CInt(stopBits),
                parity: CChar(letter.value), has_hardware_flow_control: flowControl == .hardware,
                has_software_flow_control: flowControl == .software)
        }
    }

    /// Reads what arrives.
    public let input: InputStream
    /// Writes what is to be sent.
    public let output: OutputStream

    /// Opens a port, without waiting for a carrier, and sets it up.
    ///
    /// - Parameters:
    ///   - path: The device, such as `/dev/ttyS0`.
    ///   - configuration: Its settings.
    /// - Throws: ``IOError`` that names the path: with an error of open(2), `Errno(rawValue: ENOTTY)` for what is no terminal,
    ///   `Errno.invalidArgument` for settings that do not exist.
    public init(at path: FilePath, _ configuration: Configuration = Configuration()) throws(IOError) {
        let (input, output) = try attempt(.open, "\(path)") { () throws(Errno) in
            guard let settings = configuration.raw else { throw .invalidArgument }
            let input = SharedDescriptor(
                try SystemCall.open(path, O_RDWR | O_NOCTTY | O_NONBLOCK), closesWhenDone: true)
            try SystemCall.make { reactor_serial_configure(input.number, settings) }
            let copy = try SystemCall.duplicate(input.number)
            return (input, SharedDescriptor(copy, closesWhenDone: true))
        }
        self.input = InputStream(
            StreamEngine(UnopenedBackend(reading: input, endsAtHangUp: true), subject: "\(path)"))
        self.output = OutputStream(StreamEngine(UnopenedBackend(writing: output), subject: "\(path)"))
    }
}
