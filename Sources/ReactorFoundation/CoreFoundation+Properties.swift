// swift-format-ignore-file: AlwaysUseLowerCamelCase

// Core Foundation's names of properties and of their values.

public import Reactor

/// A dictionary of the settings of TLS, which this library has not: a stream that is asked for it does not open.
public let kCFStreamPropertySSLSettings = "kCFStreamPropertySSLSettings"
/// The key of the level among those settings.
public let kCFStreamSSLLevel = "kCFStreamSSLLevel"
/// `Stream.PropertyKey.socketSecurityLevelKey`.
public let kCFStreamPropertySocketSecurityLevel = "kCFStreamPropertySocketSecurityLevel"
/// `StreamSocketSecurityLevel.none`.
public let kCFStreamSocketSecurityLevelNone = "kCFStreamSocketSecurityLevelNone"
/// `StreamSocketSecurityLevel.tlSv1`.
public let kCFStreamSocketSecurityLevelTLSv1 = "kCFStreamSocketSecurityLevelTLSv1"
/// `StreamSocketSecurityLevel.negotiatedSSL`.
public let kCFStreamSocketSecurityLevelNegotiatedSSL = "kCFStreamSocketSecurityLevelNegotiatedSSL"
/// `Stream.PropertyKey.socksProxyConfigurationKey`.
public let kCFStreamPropertySOCKSProxy = "kCFStreamPropertySOCKSProxy"
/// `StreamSOCKSProxyConfiguration.hostKey`.
public let kCFStreamPropertySOCKSProxyHost = "SOCKSProxy"
/// `StreamSOCKSProxyConfiguration.portKey`.
public let kCFStreamPropertySOCKSProxyPort = "SOCKSPort"
/// `Stream.PropertyKey.networkServiceType`.
public let kCFStreamNetworkServiceType = "kCFStreamNetworkServiceType"
/// `StreamNetworkServiceTypeValue.voIP`.
public let kCFStreamNetworkServiceTypeVoIP = "kCFStreamNetworkServiceTypeVoIP"
/// `Stream.PropertyKey.shouldCloseNativeSocketKey`.
public let kCFStreamPropertyShouldCloseNativeSocket = "kCFStreamPropertyShouldCloseNativeSocket"
/// `Stream.PropertyKey.socketNativeHandleKey`.
public let kCFStreamPropertySocketNativeHandle = "kCFStreamPropertySocketNativeHandle"
/// `Stream.PropertyKey.socketRemoteHostNameKey`.
public let kCFStreamPropertySocketRemoteHostName = "kCFStreamPropertySocketRemoteHostName"
/// `Stream.PropertyKey.socketRemotePortNumberKey`.
public let kCFStreamPropertySocketRemotePortNumber = "kCFStreamPropertySocketRemotePortNumber"
/// `StreamSocketSecurityLevel.ssLv2`.
public let kCFStreamSocketSecurityLevelSSLv2 = "kCFStreamSocketSecurityLevelSSLv2"
/// `StreamSocketSecurityLevel.ssLv3`.
public let kCFStreamSocketSecurityLevelSSLv3 = "kCFStreamSocketSecurityLevelSSLv3"
/// The key of the peer's name among the settings of TLS.
public let kCFStreamSSLPeerName = "kCFStreamSSLPeerName"
/// The key of whether the peer's certificates are to be validated, among the settings of TLS.
public let kCFStreamSSLValidatesCertificateChain = "kCFStreamSSLValidatesCertificateChain"
/// The key of one's own certificates among the settings of TLS.
public let kCFStreamSSLCertificates = "kCFStreamSSLCertificates"
/// The key of whether the stream is the server's side, among the settings of TLS.
public let kCFStreamSSLIsServer = "kCFStreamSSLIsServer"
/// `StreamSOCKSProxyConfiguration.versionKey`.
public let kCFStreamPropertySOCKSVersion = "kCFStreamPropertySOCKSVersion"
/// `StreamSOCKSProxyConfiguration.userKey`.
public let kCFStreamPropertySOCKSUser = "kCFStreamPropertySOCKSUser"
/// `StreamSOCKSProxyConfiguration.passwordKey`.
public let kCFStreamPropertySOCKSPassword = "kCFStreamPropertySOCKSPassword"
/// `StreamSOCKSProxyVersion.version4`.
public let kCFStreamSocketSOCKSVersion4 = "kCFStreamSocketSOCKSVersion4"
/// `StreamSOCKSProxyVersion.version5`.
public let kCFStreamSocketSOCKSVersion5 = "kCFStreamSocketSOCKSVersion5"
/// `StreamNetworkServiceTypeValue.video`.
public let kCFStreamNetworkServiceTypeVideo = "kCFStreamNetworkServiceTypeVideo"
/// `StreamNetworkServiceTypeValue.background`.
public let kCFStreamNetworkServiceTypeBackground = "kCFStreamNetworkServiceTypeBackground"
/// `StreamNetworkServiceTypeValue.voice`.
public let kCFStreamNetworkServiceTypeVoice = "kCFStreamNetworkServiceTypeVoice"
/// `StreamNetworkServiceTypeValue.callSignaling`.
public let kCFStreamNetworkServiceTypeCallSignaling = "kCFStreamNetworkServiceTypeCallSignaling"

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
