import Glibc
import Reactor
import SystemPackage

extension ChildProcess {
    /// Spawns a shell that runs `script`.
    static func shell(
        _ script: String, standardInput: Configuration.Redirection = .null,
        standardOutput: Configuration.Redirection = .stream, terminal: Terminal.Size? = nil,
        _ change: (inout Configuration) -> Void = { _ in }
    ) throws(IOError) -> sending Spawned {
        var configuration = Configuration(
            "/bin/sh", ["-c", script], standardInput: standardInput, standardOutput: standardOutput,
            terminal: terminal)
        change(&configuration)
        return try spawn(configuration)
    }

    /// What a shell that runs `script` writes, once it has ended.
    static func output(
        of script: String, _ change: (inout Configuration) -> Void = { _ in }
    ) throws(IOError) -> String {
        let child = try shell(script, change)
        let text = child.standardOutput!.readAll()
        _ = child.process.wait()
        return text
    }

    /// Whether the kernel knows a process of this number: running, or ended and not collected.
    static func exists(_ identifier: Int32) -> Bool { kill(identifier, 0) == 0 }
}

extension InputStream {
    /// Opens the stream, and reads it to its end, without a loop.
    func readAll() -> String { String(decoding: readAllBytes(), as: UTF8.self) }

    /// Opens the stream, and reads it to its end, without a loop.
    func readAllBytes() -> [UInt8] {
        open()
        defer { close() }
        var bytes: [UInt8] = []
        while case let chunk = read(upTo: 65_536), !chunk.isEmpty { bytes += chunk }
        return bytes
    }

    /// Reads an open stream until `isEnough` is true of what was read, or to its end.
    func read(until isEnough: (String) -> Bool) -> String {
        var text = ""
        while !isEnough(text), case let chunk = read(upTo: 4096), !chunk.isEmpty {
            text += String(decoding: chunk, as: UTF8.self)
        }
        return text
    }
}

extension OutputStream {
    /// Opens the stream, writes `text`, and closes it.
    func writeAllAndClose(_ text: String) {
        open()
        _ = write(Array(text.utf8))
        close()
    }
}

/// Whether the kernel identifies a process group by its leader's pidfd: Linux 6.9.
let identifiesGroups: Bool = {
    var name = utsname()
    uname(&name)
    let release = withUnsafeBytes(of: &name.release) {
        String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
    }
    let parts = release.split { !$0.isNumber }.prefix(2).compactMap { Int($0) }
    return parts.count == 2 && (parts[0], parts[1]) >= (6, 9)
}()
