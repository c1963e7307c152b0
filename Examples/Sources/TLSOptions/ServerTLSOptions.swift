package import ArgumentParser
package import ReactorTLS
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

    /// The server's settings; nil without TLS.
    package var settings: TLSSettings? {
        get throws {
            guard tls, let certificate, let key else { return nil }
            return .server(try TLSIdentity(certificateFile: FilePath(certificate), keyFile: FilePath(key)))
        }
    }
}
