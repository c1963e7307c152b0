import ReactorFoundation

// The second way: no file of the client's is edited, this one is added. A module's own names win over imported ones.
typealias RunLoop = ReactorFoundation.RunLoop
typealias Timer = ReactorFoundation.Timer
typealias Stream = ReactorFoundation.Stream
typealias InputStream = ReactorFoundation.InputStream
typealias OutputStream = ReactorFoundation.OutputStream
typealias StreamDelegate = ReactorFoundation.StreamDelegate
typealias StreamSocketSecurityLevel = ReactorFoundation.StreamSocketSecurityLevel
typealias StreamSOCKSProxyConfiguration = ReactorFoundation.StreamSOCKSProxyConfiguration
typealias StreamSOCKSProxyVersion = ReactorFoundation.StreamSOCKSProxyVersion
typealias StreamNetworkServiceTypeValue = ReactorFoundation.StreamNetworkServiceTypeValue
typealias Port = ReactorFoundation.Port
typealias SocketPort = ReactorFoundation.SocketPort
typealias PortMessage = ReactorFoundation.PortMessage
typealias PortDelegate = ReactorFoundation.PortDelegate
typealias NotificationQueue = ReactorFoundation.NotificationQueue
