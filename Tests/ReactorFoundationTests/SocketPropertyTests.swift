import ReactorFoundation
import ReactorTesting
import Testing

@Suite(.runLoop) struct SocketPropertyTests {
    /// No program has them, with or without ReactorTLS.
    private static let levels: [any Sendable] = [
        StreamSocketSecurityLevel.ssLv3, StreamSocketSecurityLevel.ssLv2.rawValue,
        Foundation.StreamSocketSecurityLevel.ssLv3,
    ]

    private func stream(with value: Any?, forKey key: Stream.PropertyKey = .socketSecurityLevelKey)
        -> InputStream
    {
        let pair = Stream.connection(to: .ipv4Loopback(port: 9))
        #expect(pair.output.setProperty(value, forKey: key))
        return pair.input
    }

    @Test
    func
        `a security level that there is not may be a value, a string, an object or an entry of SSL settings`()
        throws
    {
        var values: [Any] = []
        for level in Self.levels {
            values += [level, level as AnyObject, [kCFStreamSSLLevel as String: level] as [String: Any]]
        }
        let name = StreamSocketSecurityLevel.ssLv3.rawValue as NSString
        values += [
            name, NSDictionary(dictionary: [kCFStreamSSLLevel: name]), NSNumber(value: true), NSNull(),
        ]
        for value in values {
            for key in [Stream.PropertyKey.socketSecurityLevelKey, .init(kCFStreamPropertySSLSettings)] {
                let input = stream(with: value, forKey: key)
                input.open()
                let error = try #require(input.streamError)
                #expect(error is StreamRequirementError)
                #expect((error as NSError).domain == NSPOSIXErrorDomain)
                #expect((error as NSError).code == Int(Errno.protocolNotSupported.rawValue))
                #expect(error.localizedDescription.contains("TLS"))
            }
        }
    }

    @Test func `the security level none may be a value, a string, an object or an entry of SSL settings`() {
        let none = StreamSocketSecurityLevel.none
        let values: [Any?] = [
            nil, none, none as AnyObject, none.rawValue as NSString,
            [kCFStreamSSLLevel: none.rawValue] as NSDictionary,
            Foundation.StreamSocketSecurityLevel.none,
        ]
        for value in values {
            #expect(
                stream(with: value).property(forKey: .socketSecurityLevelKey) as? NSString == none.rawValue
                    as NSString)
        }
    }

    @Test func `a SOCKS proxy is used, whatever type the dictionary has`() {
        let proxies: [Any] = [
            [StreamSOCKSProxyConfiguration.hostKey: "localhost", .portKey: NSNumber(value: 1080)]
                as [StreamSOCKSProxyConfiguration: Any],
            [kCFStreamPropertySOCKSProxyHost: "localhost", kCFStreamPropertySOCKSProxyPort: 1080]
                as NSDictionary,
        ]
        for proxy in proxies {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            #expect(input.proxy == StreamProxy(.socks5, host: "localhost", port: 1080))
        }
    }

    @Test func `a stream with an incomplete SOCKS proxy fails to open, whatever type the dictionary has`()
        throws
    {
        let proxies: [Any] = [
            [StreamSOCKSProxyConfiguration.hostKey: "localhost"] as [StreamSOCKSProxyConfiguration: Any],
            [kCFStreamPropertySOCKSProxyPort: 1080] as NSDictionary,
            [StreamSOCKSProxyConfiguration.versionKey.rawValue: StreamSOCKSProxyVersion.version5.rawValue],
        ]
        for proxy in proxies {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            input.open()
            let error = try #require(input.streamError)
            #expect(error as? StreamRequirementError == .proxyUnavailable)
            #expect(error.localizedDescription.contains("proxy"))
        }
    }

    @Test func `a network service type may be a value, a string or an object`() {
        let pair = Stream.connection(to: .ipv4Loopback(port: 9))
        let voice = StreamNetworkServiceTypeValue.voice
        for value in [voice, voice.rawValue as NSString, voice as AnyObject] as [Any] {
            #expect(pair.input.setProperty(value, forKey: .networkServiceType))
            #expect(pair.output.property(forKey: .networkServiceType) as? String == voice.rawValue)
        }
        // Foundation on Linux returns false for every property of a socket.
        #expect(pair.input.setProperty(NSNumber(value: true), forKey: .shouldCloseNativeSocketKey))
    }
}
