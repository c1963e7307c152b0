public import Foundation

/// What one port sends to another: a number, and components, which are bytes or ports.
open class PortMessage: NSObject {
    /// The number that the sender gave.
    open var msgid: UInt32 = 0
    /// Where to send an answer, for a message that has come in; nil if its sender has named no port.
    open private(set) var sendPort: Port?
    /// Where the message has come in; for one to be sent, where answers are to go.
    open private(set) var receivePort: Port?
    /// `NSData` and ``Port`` objects.
    open private(set) var components: [AnyObject]?

    /// Makes a message.
    ///
    /// - Parameters:
    ///   - sendPort: Where to send it.
    ///   - receivePort: Where answers are to go.
    ///   - components: `NSData`, or ``SocketPort`` objects.
    public init(sendPort: Port?, receivePort: Port?, components: [AnyObject]?) {
        self.sendPort = sendPort
        self.receivePort = receivePort
        self.components = components
    }

    /// Sends the message to its ``sendPort``, as ``Port/send(before:msgid:components:from:reserved:)`` does.
    open func send(before date: Date) -> Bool {
        guard let sendPort else { return false }
        let array = components.map { NSMutableArray(array: $0) }
        return sendPort.send(
            before: date, msgid: Int(msgid), components: array, from: receivePort,
            reserved: sendPort.reservedSpaceLength)
    }
}
