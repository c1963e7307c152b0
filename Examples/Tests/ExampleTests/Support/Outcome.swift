import ExampleTestSupport
import Foundation

/// The exit status and the output of a program that has ended.
struct Outcome {
    let ending: Child.Ending
    let output: String
    let errors: String

    /// Whether the program has ended without an error.
    var isClean: Bool { ending == .exit(0) && errors == "" }

    /// Whether the program has failed with a message that has `text`.
    func failed(_ text: String) -> Bool { ending == .exit(1) && errors.contains(text) }

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
    _ program: String, _ arguments: [String] = [], input: Child.End = .path("/dev/null"),
    output: Child.End = .pipe, errors: Child.End = .pipe,
    _ body: (Child) throws -> String = { $0.readOutput() }
) throws -> Outcome {
    let child = try Child(program, arguments, input: input, output: output, errors: errors)
    let output = try body(child)
    child.closeInput()
    return Outcome(ending: child.wait(), output: output, errors: child.readErrors())
}

/// Runs a program of the package in a shell that sets a limit first, with an option of its command `ulimit`.
func run(limit: String, _ command: String) throws -> Outcome {
    try run("/bin/sh", ["-c", "ulimit \(limit) && exec \(Child.folder)/\(command)"])
}
