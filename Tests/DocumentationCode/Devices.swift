// The code of the articles Devices.md and Terminal-programs.md; see Articles.swift.

import Reactor
import SystemPackage

private func readPort() async throws {
    let port = try SerialPort(at: "/dev/ttyUSB0", .init(speed: 9_600))
    try await port.output.writeAll("AT\r")
    for try await line in port.input.lines(timeout: .seconds(60)) { print(line) }
}

private func leave() {}

private func takeEscape(_ input: InputStream) async throws {
    do {
        _ = try await input.waitForBytes(timeout: .milliseconds(50))
    } catch let error as IOError where error.reason == .waitTimedOut {
        leave()  // Escape alone
    }
}
