import Dispatch
import Foundation
import Glibc
import ReactorTestSupport
import SystemPackage

/// What has come of a program that ran to its end.
struct Outcome {
    let ending: Child.Ending
    let output: String
    let errors: String

    /// The value of a number in the last line of the output, a JSON object.
    subscript(key: String) -> Double? { (object[key] as? NSNumber)?.doubleValue }

    /// The keys of that object.
    var keys: Set<String> { Set(object.keys) }

    /// The objects in a member of that object.
    func objects(_ key: String) -> [NSDictionary] { object[key] as? [NSDictionary] ?? [] }

    private var object: [String: Any] {
        let line = output.split(separator: "\n").last ?? ""
        return (try? JSONSerialization.jsonObject(with: Data(line.utf8))) as? [String: Any] ?? [:]
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
