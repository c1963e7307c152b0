public import ReactorFoundation
public import ReactorHTTP

extension HTTPRequest {
    /// Creates a request for a URL, as `init(_:method:headerFields:)` does for a string.
    public init(_ url: URL, method: Method = .get, headerFields: HTTPFields = [:]) {
        self.init(url.absoluteString, method: method, headerFields: headerFields)
    }
}
