// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Core Foundation's names of properties and of their values. They are computed, as an `NSString` is not `Sendable`.

public import Foundation
public import Reactor

/// A dictionary of the settings of TLS, which this library has not: a stream that is asked for it does not open.
public var kCFStreamPropertySSLSettings: CFString { "kCFStreamPropertySSLSettings" }
/// The key of the level among those settings.
public var kCFStreamSSLLevel: CFString { "kCFStreamSSLLevel" }
/// `Stream.PropertyKey.socketSecurityLevelKey`.
public var kCFStreamPropertySocketSecurityLevel: CFString { "kCFStreamPropertySocketSecurityLevel" }
/// `StreamSocketSecurityLevel.none`.
public var kCFStreamSocketSecurityLevelNone: CFString { "kCFStreamSocketSecurityLevelNone" }
/// `StreamSocketSecurityLevel.tlSv1`.
public var kCFStreamSocketSecurityLevelTLSv1: CFString { "kCFStreamSocketSecurityLevelTLSv1" }
/// `StreamSocketSecurityLevel.negotiatedSSL`.
public var kCFStreamSocketSecurityLevelNegotiatedSSL: CFString { "kCFStreamSocketSecurityLevelNegotiatedSSL" }
/// `Stream.PropertyKey.socksProxyConfigurationKey`.
public var kCFStreamPropertySOCKSProxy: CFString { "kCFStreamPropertySOCKSProxy" }
/// `StreamSOCKSProxyConfiguration.hostKey`.
public var kCFStreamPropertySOCKSProxyHost: CFString { "SOCKSProxy" }
/// `StreamSOCKSProxyConfiguration.portKey`.
public var kCFStreamPropertySOCKSProxyPort: CFString { "SOCKSPort" }
/// `Stream.PropertyKey.networkServiceType`.
public var kCFStreamNetworkServiceType: CFString { "kCFStreamNetworkServiceType" }
/// `StreamNetworkServiceTypeValue.voIP`.
public var kCFStreamNetworkServiceTypeVoIP: CFString { "kCFStreamNetworkServiceTypeVoIP" }
/// `Stream.PropertyKey.shouldCloseNativeSocketKey`.
public var kCFStreamPropertyShouldCloseNativeSocket: CFString { "kCFStreamPropertyShouldCloseNativeSocket" }
/// `Stream.PropertyKey.socketNativeHandleKey`.
public var kCFStreamPropertySocketNativeHandle: CFString { "kCFStreamPropertySocketNativeHandle" }
/// `Stream.PropertyKey.socketRemoteHostNameKey`.
public var kCFStreamPropertySocketRemoteHostName: CFString { "kCFStreamPropertySocketRemoteHostName" }
/// `Stream.PropertyKey.socketRemotePortNumberKey`.
public var kCFStreamPropertySocketRemotePortNumber: CFString { "kCFStreamPropertySocketRemotePortNumber" }
/// `StreamSocketSecurityLevel.ssLv2`.
public var kCFStreamSocketSecurityLevelSSLv2: CFString { "kCFStreamSocketSecurityLevelSSLv2" }
/// `StreamSocketSecurityLevel.ssLv3`.
public var kCFStreamSocketSecurityLevelSSLv3: CFString { "kCFStreamSocketSecurityLevelSSLv3" }
/// The key of the peer's name among the settings of TLS.
public var kCFStreamSSLPeerName: CFString { "kCFStreamSSLPeerName" }
/// The key of whether the peer's certificates are to be validated, among the settings of TLS.
public var kCFStreamSSLValidatesCertificateChain: CFString { "kCFStreamSSLValidatesCertificateChain" }
/// The key of one's own certificates among the settings of TLS.
public var kCFStreamSSLCertificates: CFString { "kCFStreamSSLCertificates" }
/// The key of whether the stream is the server's side, among the settings of TLS.
public var kCFStreamSSLIsServer: CFString { "kCFStreamSSLIsServer" }
/// `StreamSOCKSProxyConfiguration.versionKey`.
public var kCFStreamPropertySOCKSVersion: CFString { "kCFStreamPropertySOCKSVersion" }
/// `StreamSOCKSProxyConfiguration.userKey`.
public var kCFStreamPropertySOCKSUser: CFString { "kCFStreamPropertySOCKSUser" }
/// `StreamSOCKSProxyConfiguration.passwordKey`.
public var kCFStreamPropertySOCKSPassword: CFString { "kCFStreamPropertySOCKSPassword" }
/// `StreamSOCKSProxyVersion.version4`.
public var kCFStreamSocketSOCKSVersion4: CFString { "kCFStreamSocketSOCKSVersion4" }
/// `StreamSOCKSProxyVersion.version5`.
public var kCFStreamSocketSOCKSVersion5: CFString { "kCFStreamSocketSOCKSVersion5" }
/// `StreamNetworkServiceTypeValue.video`.
public var kCFStreamNetworkServiceTypeVideo: CFString { "kCFStreamNetworkServiceTypeVideo" }
/// `StreamNetworkServiceTypeValue.background`.
public var kCFStreamNetworkServiceTypeBackground: CFString { "kCFStreamNetworkServiceTypeBackground" }
/// `StreamNetworkServiceTypeValue.voice`.
public var kCFStreamNetworkServiceTypeVoice: CFString { "kCFStreamNetworkServiceTypeVoice" }
/// `StreamNetworkServiceTypeValue.callSignaling`.
public var kCFStreamNetworkServiceTypeCallSignaling: CFString { "kCFStreamNetworkServiceTypeCallSignaling" }

extension CFStreamPropertyKey {
    /// ``dataWrittenToMemoryStreamKey``.
    public static var dataWritten: Self { .dataWrittenToMemoryStreamKey }
    /// ``fileCurrentOffsetKey``.
    public static var fileCurrentOffset: Self { .fileCurrentOffsetKey }
    /// ``socketNativeHandleKey``.
    public static var socketNativeHandle: Self { .socketNativeHandleKey }
    /// ``shouldCloseNativeSocketKey``.
    public static var shouldCloseNativeSocket: Self { .shouldCloseNativeSocketKey }
    /// ``socketRemoteHostNameKey``.
    public static var socketRemoteHostName: Self { .socketRemoteHostNameKey }
    /// ``socketRemotePortNumberKey``.
    public static var socketRemotePortNumber: Self { .socketRemotePortNumberKey }
}
