import ReactorFoundation
import ReactorTesting
import Testing

@Suite(.runLoop) struct SocketPropertyTests {
    /// The input stream of a pair on whose other stream a property has been set.
    private func stream(with value: Any?, forKey key: Stream.PropertyKey = .socketSecurityLevelKey)
        -> InputStream
    {
        let pair = Stream.connection(to: .ipv4Loopback(port: 9))
        #expect(pair.output.setProperty(value, forKey: key))
        return pair.input
    }

    @Test func `a level that no program has may be a value, a string, an object or an entry of SSL settings`()
        throws
    {
        // With or without ReactorTLS.
        let levels: [Any] = [
            StreamSocketSecurityLevel.ssLv3, StreamSocketSecurityLevel.ssLv2.rawValue,
            Foundation.StreamSocketSecurityLevel.ssLv3,
        ]
        var values: [Any] = levels.flatMap { level in
            [level, level as AnyObject, [kCFStreamSSLLevel as String: level] as [String: Any]] as [Any]
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
                #expect(error is StreamRequirementError && (error as NSError).domain == NSPOSIXErrorDomain)
                #expect((error as NSError).code == Int(Errno.protocolNotSupported.rawValue))
                #expect(error.localizedDescription.contains("TLS"))
            }
        }
    }

    @Test func `the level none may be a value, a string, an object or an entry of SSL settings`() {
        let none = StreamSocketSecurityLevel.none
        let values: [Any?] = [
            nil, none, none as AnyObject, none.rawValue as NSString,
            Foundation.StreamSocketSecurityLevel.none,
            [kCFStreamSSLLevel: none.rawValue] as NSDictionary,
        ]
        for value in values {
            let level = stream(with: value).property(forKey: .socketSecurityLevelKey) as? NSString
            #expect(level == none.rawValue as NSString)
        }
    }

    @Test func `a SOCKS proxy is used whatever type the dictionary has, and an incomplete one fails`() {
        typealias Key = StreamSOCKSProxyConfiguration
        let proxies: [Any] = [
            [Key.hostKey: "localhost", .portKey: NSNumber(value: 1080)] as [Key: Any],
            [kCFStreamPropertySOCKSProxyHost: "localhost", kCFStreamPropertySOCKSProxyPort: 1080]
                as NSDictionary,
        ]
        for proxy in proxies {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            #expect(input.proxy == StreamProxy(.socks5, host: "localhost", port: 1080))
        }
        let incomplete: [Any] = [
            [Key.hostKey: "localhost"] as [Key: Any], [kCFStreamPropertySOCKSProxyPort: 1080] as NSDictionary,
            [Key.versionKey.rawValue: StreamSOCKSProxyVersion.version5.rawValue],
        ]
        for proxy in incomplete {
            let input = stream(with: proxy, forKey: .socksProxyConfigurationKey)
            input.open()
            #expect(input.streamError as? StreamRequirementError == .proxyUnavailable)
        }
    }

    @Test func `a network service type may be a value, a string or an object`() {
        let (pair, voice) = (
            Stream.connection(to: .ipv4Loopback(port: 9)), StreamNetworkServiceTypeValue.voice
        )
        for value in [
            voice, voice.rawValue as NSString, voice as AnyObject, kCFStreamNetworkServiceTypeVoice,
        ] as [Any] {
            #expect(pair.input.setProperty(value, forKey: .networkServiceType))
            #expect(pair.output.property(forKey: .networkServiceType) as? String == voice.rawValue)
        }
    }

    @Test func `whether to close the socket may be a number or Core Foundation's constant`() {
        let input = Stream.connection(to: .ipv4Loopback(port: 9)).input
        for value in [kCFBooleanFalse as Any, NSNumber(value: false)] {
            #expect(input.setProperty(true, forKey: .shouldCloseNativeSocketKey))
            #expect(input.setProperty(value, forKey: .shouldCloseNativeSocketKey))
            #expect(input.property(forKey: .shouldCloseNativeSocketKey) as? Bool == false)
        }
    }
}
