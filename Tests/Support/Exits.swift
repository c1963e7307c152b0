import Testing

extension ExitTest.Result? {
    /// The message of the trap that ended the process: the first line of its standard error.
    package var message: String {
        let errors = String(decoding: self?.standardErrorContent ?? [], as: UTF8.self)
        return errors.split(separator: "\n").first.map(String.init) ?? ""
    }
}
