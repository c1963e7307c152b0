// What print and dump show, which ends up in logs: no credentials.

extension HTTPRequest: CustomStringConvertible, CustomReflectable {
    /// The method and the URL without a user and a password, such as `GET https://example.org/`.
    public var description: String { "\(method) \(HTTPError.withoutUser(url))".withVisibleControls }

    /// The properties, without credentials.
    public var customMirror: Mirror {
        let children: KeyValuePairs<String, Any> = [
            "method": method, "url": HTTPError.withoutUser(url), "fields": fields, "body": body as Any,
        ]
        return Mirror(self, children: children, displayStyle: .struct)
    }
}

extension HTTPFields.Field: CustomStringConvertible, CustomReflectable {
    /// The name and the value, such as `Accept: text/html`. The value of a field with credentials is not shown.
    public var description: String { "\(name): \(shownValue)" }

    /// The name and the value, without credentials.
    public var customMirror: Mirror {
        Mirror(self, children: ["name": name, "value": shownValue], displayStyle: .struct)
    }

    private var shownValue: String {
        Self.secretNames.contains { HTTPFields.matches($0, name) } ? "(not shown)" : value
    }

    /// Fields that carry credentials.
    private static let secretNames = ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"]
}
