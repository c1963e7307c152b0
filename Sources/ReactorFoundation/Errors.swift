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

extension IOError: LocalizedError {
    /// The description.
    public var errorDescription: String? { description }
}
