package import Reactor

/// Makes a call that may wait from an asynchronous test whose subject is that call, or in which it does not wait.
package func synchronously<Result>(_ body: () throws -> Result) rethrows -> Result { try body() }

extension RunLoop {
    /// `performAndWait` in asynchronous code, such as that of an exit test.
    package func performSynchronously<Result: Sendable, Failure: Error>(
        inModes modes: [Mode] = [.common], file: StaticString = #fileID, line: UInt = #line,
        _ block: @escaping @Sendable () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try performAndWait(inModes: modes, file: file, line: line, block)
    }
}
