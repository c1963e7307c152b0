public import Foundation
public import Reactor
public import SystemPackage

// The domains, codes and descriptions that `streamError as NSError?` has.

// swift-format-ignore: AvoidRetroactiveConformances
extension Errno: @retroactive CustomNSError {
    /// `NSPOSIXErrorDomain`.
    public static var errorDomain: String { NSPOSIXErrorDomain }

    /// The errno value.
    public var errorCode: Int { Int(rawValue) }
}

extension IOError: CustomNSError {
    /// `NSPOSIXErrorDomain`, as in Cocoa.
    public static var errorDomain: String { NSPOSIXErrorDomain }

    /// The errno value.
    public var errorCode: Int { errno.errorCode }

    /// The description.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: description] }
}

extension ResolverError: CustomNSError {
    /// `kCFErrorDomainCFNetwork`, as in Cocoa.
    public static var errorDomain: String { "kCFErrorDomainCFNetwork" }

    /// `kCFHostErrorUnknown`.
    public var errorCode: Int { 2 }

    /// The getaddrinfo(3) code, under Cocoa's key for it, and the description.
    public var errorUserInfo: [String: Any] {
        ["kCFGetAddrInfoFailureKey": Int(code.rawValue), NSLocalizedDescriptionKey: description]
    }
}

extension StreamProxyError: CustomNSError {
    /// `kCFErrorDomainCFNetwork`, as in Cocoa.
    public static var errorDomain: String { "kCFErrorDomainCFNetwork" }

    /// One of Cocoa's codes of SOCKS errors: bad credentials, no acceptable method, a failed request or
    /// identification; else an unknown status.
    public var errorCode: Int {
        switch reason {
        case .authenticationFailed: 120
        case .authenticationRequired, .noAcceptableMethod: 122
        case .rejected: 110
        case .userUnknown: 111
        default: 113
        }
    }

    /// The description.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: description] }
}

extension StreamRequirementError: CustomNSError {
    /// `NSPOSIXErrorDomain`.
    public static var errorDomain: String { NSPOSIXErrorDomain }

    /// `EPROTONOSUPPORT`: the stream does not support the requested protocol.
    public var errorCode: Int { Int(Errno.protocolNotSupported.rawValue) }

    /// The description.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: description] }
}
