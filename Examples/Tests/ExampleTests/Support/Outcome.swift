import Dispatch
import Foundation
import Glibc
import ReactorTestSupport
import SystemPackage

/// The exit status and the output of a program that has ended.
struct Outcome {
    let ending: Child.Ending
    let output: String
    let errors: String

    /// The number for `key` in the last line of the output, a JSON object.
    subscript(key: String) -> Double? { (object[key] as? NSNumber)?.doubleValue }

    /// The keys of that object.
    var keys: Set<String> { Set(object.keys) }

    /// The array of objects for `key` in that object.
    func objects(_ key: String) -> [NSDictionary] { object[key] as? [NSDictionary] ?? [] }

    private var object: [String: Any] {
        let line = output.split(separator: "\n").last ?? ""
        return (try? JSONSerialization.jsonObject(with: Data(line.utf8))) as? [String: Any] ?? [:]
    }
}

/// Starts a program, calls `body`, which returns its output, and waits until the program has ended.
func run(
    _ program: String, _ arguments: [String], input: Child.End = .path("/dev/null"),
    output: Child.End = .pipe, errors: Child.End = .pipe,
    _ body: @escaping @Sendable (Child) throws -> String = { $0.readOutput() }
) async throws -> Outcome {
    try await onDispatchQueue {
        let child = try Child(program, arguments, input: input, output: output, errors: errors)
        let output = try body(child)
        child.closeInput()
        return Outcome(ending: child.wait(), output: output, errors: child.readErrors())
    }
}

/// Calls `body`, which may block, on a dispatch queue: Swift Testing's few threads must not block.
func onDispatchQueue<Result: Sendable>(_ body: @escaping @Sendable () throws -> Result) async throws -> Result
{
    try await withCheckedThrowingContinuation { continuation in
        DispatchQueue(label: "child").async { continuation.resume(with: Swift.Result { try body() }) }
    }
}
