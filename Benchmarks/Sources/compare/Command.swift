import Foundation

/// An error with a message for the user.
struct Failure: Error, CustomStringConvertible {
    let description: String
}

/// The directories of the programs and of the package.
struct Locations {
    let programs: URL
    let package: URL

    func path(of program: String) -> String { programs.appending(path: program).path }

    func has(_ program: String) -> Bool { FileManager.default.isExecutableFile(atPath: path(of: program)) }

    /// Replaces `@name` by the path of a program, and `%count` by the path of a text of `count` bytes.
    func resolved(_ command: [String]) throws -> [String] {
        try command.map { word in
            let rest = String(word.dropFirst())
            return word.hasPrefix("@") ? path(of: rest) : word.hasPrefix("%") ? try text(of: rest) : word
        }
    }

    /// Generates the text unless it exists, and has it in the page cache: otherwise the first program would read the disk.
    private func text(of bytes: String) throws -> String {
        let file = FileManager.default.temporaryDirectory.appending(
            path: "swift-reactor-\(getuid())-\(bytes).txt"
        ).path
        let make = """
            [ -e "$2" ] || { "$0" "$1" >"$2.part" && mv "$2.part" "$2"; } && cat "$2" >/dev/null
            """
        _ = try output(of: ["sh", "-c", make, path(of: "lines-text"), bytes, file])
        return file
    }
}

/// Runs a command, and returns its standard output.
func output(of command: [String], environment: [String: String] = [:]) throws -> String {
    let (process, pipe) = (Process(), Pipe())
    process.executableURL = URL(filePath: "/usr/bin/env")
    process.arguments = command
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = pipe
    try process.run()
    let bytes = pipe.fileHandleForReading.readDataToEndOfFile()
    process.waitUntilExit()
    guard process.terminationReason == .exit, process.terminationStatus == 0 else {
        throw Failure(description: "\(command.joined(separator: " ")) failed (\(process.terminationStatus)).")
    }
    return String(decoding: bytes, as: UTF8.self)
}

/// Runs a program of a workload, and returns the numbers that it prints.
func numbers(of command: [String], environment: [String: String] = [:]) throws -> [Double] {
    let timeout = ["timeout", "120"]  // many times the duration of any workload
    let text = try output(of: timeout + command, environment: environment)
    let numbers = text.split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
    guard !numbers.isEmpty else {
        throw Failure(description: "\(command.joined(separator: " ")) printed no numbers.")
    }
    return numbers
}

/// Prints progress and errors to standard error. The tables go to standard output.
func printStatus(_ text: String) {
    FileHandle.standardError.write(Data("\(text)\n".utf8))
}
