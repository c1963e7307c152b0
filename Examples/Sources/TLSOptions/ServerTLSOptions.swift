package import ArgumentParser
package import Reactor
import ReactorTLS
import SystemPackage

/// The options of a server that TLS may protect.
package struct ServerTLSOptions: ParsableArguments {
    @Flag(help: "Protect the connections with TLS.")
    package var tls = false

    @Option(help: "The server's certificate, followed by those of its issuers (PEM).")
    package var certificate: String?

    @Option(help: "The certificate's private key (PEM).")
    package var key: String?

    package init() {}

    package func validate() throws {
        guard tls == (certificate != nil), tls == (key != nil) else {
            throw ValidationError("--tls, --certificate and --key belong together.")
        }
    }

    /// The server's security; nil without TLS.
    package var security: Connection.Security? {
        get throws {
            guard tls, let certificate, let key else { return nil }
            let identity = try TLSIdentity(certificateFile: FilePath(certificate), keyFile: FilePath(key))
            return try .tls(.server(identity))
        }
    }
}
