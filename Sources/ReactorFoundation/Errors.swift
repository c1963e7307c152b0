public import Foundation
public import Reactor
public import SystemPackage

// What `stream.streamError as NSError?` says.

// swift-format-ignore: AvoidRetroactiveConformances
extension Errno: @retroactive CustomNSError {
    /// The domain of errno's values.
    public static var errorDomain: String { NSPOSIXErrorDomain }

    /// The value of errno.
    public var errorCode: Int { Int(rawValue) }
}

extension ResolverError: CustomNSError {
    /// The domain of errors in names of hosts, as in Cocoa.
    public static var errorDomain: String { "kCFErrorDomainCFNetwork" }

    /// `kCFHostErrorUnknown`.
    public var errorCode: Int { 2 }

    /// The code of getaddrinfo(3), under the key that Cocoa has for it, and what it means.
    public var errorUserInfo: [String: Any] {
        ["kCFGetAddrInfoFailureKey": Int(code), NSLocalizedDescriptionKey: description]
    }
}

extension StreamRequirementError: CustomNSError {
    /// The domain of errors of protocols.
    public static var errorDomain: String { NSPOSIXErrorDomain }

    /// `EPROTONOSUPPORT`: the stream does not know the protocol that it was asked for.
    public var errorCode: Int { Int(Errno.protocolNotSupported.rawValue) }

    /// What the stream was asked for.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: description] }
}
