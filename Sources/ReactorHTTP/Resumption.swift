/// Where a download continues, and what a response means for it (RFC 9110, 13.1.5 and 14). Pure: knows no file.
struct Resumption {
    enum Meaning: Equatable {
        /// It has the rest of the file, whose length is `total`.
        case rest(total: Int)
        /// There is no rest: the file is whole.
        case nothing
        /// The request is to be sent again, without a range.
        case useless
        /// It has all of the file, or is an error.
        case other
    }

    /// The server's validator of the version that the partial file belongs to; nil if that is not known.
    private(set) var validator: String?
    /// The length of the partial file that is continued; 0 if the download begins anew.
    private(set) var offset = 0
    private var isPossible = true

    init(validator: String?) { self.validator = validator.flatMap(Self.sendable) }

    /// Asks for the rest of a partial file of `size` bytes.
    mutating func prepare(_ request: inout HTTPRequest, hasBody: Bool, size: () -> Int) {
        // Ranges are defined for GET, which may be sent twice. A range of the client's own is another resource.
        isPossible = request.method == .get && !hasBody && !request.headerFields.contains(.range)
        if !isPossible { forget() }
        offset = validator == nil ? 0 : size()
        guard offset > 0, let validator else { return }
        request.headerFields[.range] = "bytes=\(offset)-"
        request.headerFields[.ifRange] = validator
    }

    func meaning(of response: HTTPTransfer.Response) -> Meaning {
        let range = response.headerFields.first(.contentRange)
        switch response.status.code {
        case 206 where offset > 0:
            guard isSameVersion(response), let total = totalLength(range) else { return .useless }
            return .rest(total: total)
        case 416 where offset > 0:
            return range == "bytes */\(offset)" && isSameVersion(response) ? .nothing : .useless
        default: return .other
        }
    }

    mutating func forget() { validator = nil }

    /// Begins anew with a response that has all of the file.
    mutating func begin(with response: HTTPTransfer.Response) {
        offset = 0
        validator = isPossible ? Self.validator(of: response).flatMap(Self.sendable) : nil
    }

    /// The length of a file whose rest a range is; nil if it is another part, or the length is not known.
    private func totalLength(_ range: String?) -> Int? {
        guard let range, range.hasPrefix("bytes \(offset)-") else { return nil }
        let numbers = range.dropFirst("bytes \(offset)-".count).split(separator: "/", maxSplits: 1)
        guard numbers.count == 2, let last = Int(numbers[0]), let total = Int(numbers[1]) else { return nil }
        return last >= offset && total > last && last + 1 == total ? total : nil
    }

    private func isSameVersion(_ response: HTTPTransfer.Response) -> Bool {
        let isTag = validator?.hasPrefix("\"") == true
        guard let version = response.headerFields.first(isTag ? .eTag : .lastModified) else { return true }
        return version == validator
    }

    /// A validator becomes a field of the next request, so one with control characters is none.
    private static func sendable(_ validator: String) -> String? {
        validator.utf8.allSatisfy { $0 >= 32 && $0 != 127 } ? validator : nil
    }

    private static func validator(of response: HTTPTransfer.Response) -> String? {
        if let tag = response.headerFields.first(.eTag) { return tag.hasPrefix("\"") ? tag : nil }
        // In the second in which a resource was modified, it may be modified again.
        let date = response.headerFields.first(.lastModified)
        return date == response.headerFields.first(.date) ? nil : date
    }
}
