import Glibc
public import SystemPackage

/// Why a name has no addresses, as getaddrinfo(3) has it.
public struct ResolverError: Error, Sendable, Hashable {
    /// The resolver's own code, such as `EAI_NONAME`.
    public let code: CInt
    /// What the system said, if the code is `EAI_SYSTEM`.
    public let systemError: Errno?

    init(_ code: CInt, systemError: Errno? = nil) {
        self.code = code
        self.systemError = systemError
    }

    /// Neither the files nor the servers know the name, or it has no address of the family asked for.
    public static let unknownName = ResolverError(EAI_NONAME)

    /// The service has no port on the transport asked for.
    public static let unknownService = ResolverError(EAI_SERVICE)

    /// No server has answered; it may later.
    public static let temporaryFailure = ResolverError(EAI_AGAIN)

    /// A server has refused to answer.
    public static let permanentFailure = ResolverError(EAI_FAIL)

    /// The name is known but has no address.
    public static let noAddress = ResolverError(-5)  // EAI_NODATA, which Swift's Glibc module lacks

    /// The name has addresses, but none of the family asked for.
    public static let noAddressInFamily = ResolverError(-9)  // EAI_ADDRFAMILY, which it lacks too
}

extension ResolverError: CustomStringConvertible {
    /// What gai_strerror(3) says, or what the system's error means.
    public var description: String {
        if let systemError { return systemError.description }
        return unsafe String(cString: gai_strerror(code))
    }
}
