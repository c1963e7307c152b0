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
    /// The description; and for a name that could not be resolved, the getaddrinfo(3) code under Cocoa's key for it.
    public var errorUserInfo: [String: Any] {
        var information: [String: Any] = [NSLocalizedDescriptionKey: description]
        if case .resolver(let code) = reason { information["kCFGetAddrInfoFailureKey"] = Int(code.rawValue) }
        return information
    }
}
