// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Core Foundation's names of stream properties and of their values. They are computed because `NSString` is
// not `Sendable`.

public import Foundation
public import Reactor

/// A dictionary of TLS settings, with keys that begin with `kCFStreamSSL`. An unknown key or value fails
/// the stream.
public var kCFStreamPropertySSLSettings: CFString { "kCFStreamPropertySSLSettings" }
/// The key of the level in that dictionary.
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
/// The result of the handshake, with the peer's certificates: a `TLSSession` of ReactorTLS.
public var kCFStreamPropertySSLPeerTrust: CFString { "kCFStreamPropertySSLPeerTrust" }
/// The certificates that the peer has sent, as an array of arrays of bytes (DER).
public var kCFStreamPropertySSLPeerCertificates: CFString { "kCFStreamPropertySSLPeerCertificates" }
/// The key of the peer's name in the TLS settings: the host if it is missing, and any if it is null.
public var kCFStreamSSLPeerName: CFString { "kCFStreamSSLPeerName" }
/// The key of whether to validate the peer's certificates, in the TLS settings. With false, any peer is
/// accepted.
public var kCFStreamSSLValidatesCertificateChain: CFString { "kCFStreamSSLValidatesCertificateChain" }
/// The key of this side's certificates in the TLS settings: an array of `TLSIdentity` of ReactorTLS.
public var kCFStreamSSLCertificates: CFString { "kCFStreamSSLCertificates" }
/// The key of whether this side is the server, in the TLS settings.
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
    /// `dataWrittenToMemoryStreamKey`.
    public static var dataWritten: Self { Self("kCFStreamPropertyDataWritten") }
    /// `fileCurrentOffsetKey`.
    public static var fileCurrentOffset: Self { .fileCurrentOffsetKey }
    /// `socketNativeHandleKey`.
    public static var socketNativeHandle: Self { Self("kCFStreamPropertySocketNativeHandle") }
    /// `shouldCloseNativeSocketKey`.
    public static var shouldCloseNativeSocket: Self { .shouldCloseNativeSocketKey }
    /// `socketRemoteHostNameKey`.
    public static var socketRemoteHostName: Self { .socketRemoteHostNameKey }
    /// `socketRemotePortNumberKey`.
    public static var socketRemotePortNumber: Self { .socketRemotePortNumberKey }
}
