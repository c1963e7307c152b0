import Reactor
import SystemPackage

// Prints what a device at a serial port sends, line by line: serial /dev/ttyUSB0
let path = FilePath(CommandLine.arguments.dropFirst().first ?? "/dev/ttyUSB0")
let port = try SerialPort(at: path, .init(speed: 9_600))
try await port.output.writeAll("AT\r\n")
for try await line in port.input.lines { print(line) }
