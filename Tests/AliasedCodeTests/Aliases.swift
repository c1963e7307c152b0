// swift-format-ignore-file: AllPublicDeclarationsHaveDocumentation

// The file of aliases from the porting guide, which replaces edits in the client's files.
@_exported import ReactorFoundation

public typealias RunLoop = ReactorFoundation.RunLoop
public typealias Timer = ReactorFoundation.Timer
public typealias Stream = ReactorFoundation.Stream
public typealias InputStream = ReactorFoundation.InputStream
public typealias OutputStream = ReactorFoundation.OutputStream
public typealias StreamDelegate = ReactorFoundation.StreamDelegate
public typealias StreamSocketSecurityLevel = ReactorFoundation.StreamSocketSecurityLevel
public typealias StreamSOCKSProxyConfiguration = ReactorFoundation.StreamSOCKSProxyConfiguration
public typealias StreamSOCKSProxyVersion = ReactorFoundation.StreamSOCKSProxyVersion
public typealias StreamNetworkServiceTypeValue = ReactorFoundation.StreamNetworkServiceTypeValue
public typealias Port = ReactorFoundation.Port
public typealias SocketPort = ReactorFoundation.SocketPort
public typealias PortMessage = ReactorFoundation.PortMessage
public typealias PortDelegate = ReactorFoundation.PortDelegate
public typealias NotificationQueue = ReactorFoundation.NotificationQueue

extension FileHandle {
    func readInBackgroundAndNotify() {
        readInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
    func readToEndOfFileInBackgroundAndNotify() {
        readToEndOfFileInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
    func acceptConnectionInBackgroundAndNotify() {
        acceptConnectionInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
    func waitForDataInBackgroundAndNotify() {
        waitForDataInBackgroundAndNotify(forModes: [RunLoop.Mode.default])
    }
}
