// The code of the article System-events.md; see Articles.swift.

import Reactor
import SystemPackage

private struct Certificate {
    var expiry = ClockTimer.Clock.wallClock.now
}

private func showStatus() async throws {
    let result = try await ChildProcess.run("git", ["status", "--short"], timeout: .seconds(10))
    if result.termination.isSuccess { print(String(decoding: result.standardOutput, as: UTF8.self)) }
}

private func build() async throws {
    let child = try ChildProcess.spawn(
        .init("make", ["-j4"], standardOutput: .stream, standardError: .mergedWithStandardOutput))
    for try await line in child.standardOutput!.lines { print(line) }
    let termination = try await RunLoop.main.termination(of: child.process)
    print(termination.reason, termination.userTime)
}

private func end(_ child: ChildProcess.Spawned) {
    child.process.terminate(killAfter: .seconds(5))
}

private func watchFiles(_ reload: @escaping (FilePath) -> Void, _ reloadAll: @escaping () -> Void) throws {
    let watcher = try FileWatcher { watcher, event in
        switch event {
        case .closedAfterWriting(let path), .created(let path): reload(path)
        case .vanished(let path): print("\(path) is gone")
        case .overflowed: reloadAll()
        default: break
        }
    }
    try watcher.watch("/etc/app/settings.json")
    try watcher.watch("/var/lib/app", recursively: true)
    try RunLoop.current.add(watcher, forMode: .default)
}

private func renewInTime(_ certificate: Certificate, _ renew: @escaping () -> Void) throws {
    let renewal = try ClockTimer(.wallClock, at: certificate.expiry - .seconds(86_400)) { timer, event in
        switch event {
        case .fired: renew()
        case .clockWasSet: print("the clock was set: \(timer)")
        @unknown default: break
        }
    }
    try RunLoop.current.add(renewal, forMode: .common)
}

private final class Cache {
    func removeAll() {}
}

private func freeMemory(_ cache: Cache) throws {
    let pressure = try PressureSource(
        at: "/proc/pressure/memory", stalledFor: .milliseconds(150), within: .seconds(2)
    ) { _, event in
        if event == .stalled { cache.removeAll() }
    }
    try RunLoop.current.add(pressure, forMode: .common)
}

private func receiveDescriptors(on loop: RunLoop, _ use: (FileDescriptor) async throws -> Void) async throws {
    var options = DatagramSocket.Options()
    options.descriptorLimit = 1
    options.receivesCredentials = true
    let datagrams = try loop.datagrams(boundTo: SocketAddress(unixPath: "/run/app.socket"), options: options)
    for try await datagram in datagrams {
        guard let file = datagram.metadata.descriptors.first else { continue }
        defer { try? file.close() }
        guard datagram.metadata.credentials?.userIdentifier == 0 else { continue }
        try await use(file)
    }
}

private func send(over output: OutputStream) async throws {
    let file = try FileDescriptor.open("/srv/image.iso", .readOnly)
    defer { try? file.close() }
    let size = try Int(file.seek(offset: 0, from: .end))
    try await output.writeAll(contentsOf: file, range: 0..<size)
}
