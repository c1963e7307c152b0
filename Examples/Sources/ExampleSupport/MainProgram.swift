import Glibc
import SystemPackage

/// What the programs without options share: one argument, and the output.
package enum MainProgram {
    /// What `read` makes of the program's only argument, or `usual` without one. Ends the program with a sentence and
    /// EX_USAGE if `read` returns nil.
    package static func argument<Value>(
        _ name: String, otherwise usual: Value, _ read: (String) -> Value?
    ) -> Value {
        let arguments = CommandLine.arguments.dropFirst()
        guard let text = arguments.first else { return usual }
        if arguments.count == 1, let value = read(text) { return value }
        let all = arguments.joined(separator: " ")
        end(with: EX_USAGE, "'\(all)' is not valid. Usage: \(self.name) [\(name)]")
    }

    /// Writes a line to standard output, and ends the program with a sentence if that fails.
    package static func printLine(_ line: String) {
        do { try FileDescriptor.standardOutput.writeAll(Array("\(line)\n".utf8)) } catch {
            end(with: EXIT_FAILURE, "standard output: \(error)")
        }
    }

    /// Writes a line to standard error.
    package static func report(_ line: String) {
        _ = try? FileDescriptor.standardError.writeAll(Array("\(line)\n".utf8))
    }

    /// Ends the program because of an error.
    package static func end(with status: CInt = EXIT_FAILURE, _ sentence: String) -> Never {
        report("\(name): \(sentence)")
        exit(status)
    }

    private static var name: String {
        CommandLine.arguments.first.flatMap { FilePath($0).lastComponent?.string } ?? "program"
    }
}
