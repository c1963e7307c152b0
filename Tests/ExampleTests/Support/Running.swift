import Dispatch
import Glibc
import ReactorTestSupport
import SystemPackage

/// What has come of a program that ran to its end.
struct Outcome {
    let ending: Child.Ending
    let output: String
    let errors: String

    /// The value of a number in the last line of the output, a JSON object.
    subscript(key: String) -> Double? {
        guard let line = output.split(separator: "\n").last, line.first == "{", line.last == "}" else {
            return nil
        }
        let members = line.dropFirst().dropLast().split(separator: ",").map { $0.split(separator: ":") }
        let member = members.first { $0.count == 2 && $0[0] == "\"\(key)\"" }
        return member.flatMap { Double($0[1]) }
    }

    /// The keys of that object, in their order.
    var keys: [String] {
        guard let line = output.split(separator: "\n").last else { return [] }
        return line.dropFirst().dropLast().split(separator: ",").compactMap {
            $0.split(separator: ":").first.map { String($0.dropFirst().dropLast()) }
        }
    }
}

/// Starts a program, has `body` deal with it, and waits until it has ended.
func running(
    _ program: String, _ arguments: [String], input: Child.End = .path("/dev/null"),
    output: Child.End = .pipe, _ body: @escaping @Sendable (Child) throws -> String = { $0.readOutput() }
) async throws -> Outcome {
    try await offThePool {
        let child = try Child(program, arguments, input: input, output: output)
        let output = try body(child)
        child.closeInput()
        return Outcome(ending: child.wait(), output: output, errors: child.readErrors())
    }
}

/// Does what waits on a thread that no other test needs.
func offThePool<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
        DispatchQueue(label: "child").async { continuation.resume(with: Swift.Result { try body() }) }
    }
}

/// A file that is gone when the test is.
final class TemporaryFile: Sendable {
    let path: String

    init(_ bytes: [UInt8]) throws {
        var template = Array("/tmp/reactor-example-XXXXXX".utf8CString)
        let descriptor = FileDescriptor(rawValue: mkstemp(&template))
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        try descriptor.closeAfter { _ = try descriptor.writeAll(bytes) }
    }

    convenience init(_ text: String) throws { try self.init(Array(text.utf8)) }

    deinit { unlink(path) }
}
