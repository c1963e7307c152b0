// swift-format-ignore-file: AllPublicDeclarationsHaveDocumentation

import CoreFoundation
import Foundation

/// A public client that uses Core Foundation's names, and imports that and Foundation.
open class CoreClient: NSObject, StreamDelegate {
    public let readStream: CFReadStream
    public let writeStream: CFWriteStream
    public var modes: [RunLoopMode] = [.defaultRunLoopMode]
    public private(set) var echo = Data()

    public override init() {
        var input: Unmanaged<CFReadStream>?
        var output: Unmanaged<CFWriteStream>?
        CFStreamCreateBoundPair(kCFAllocatorDefault, &input, &output, 16)
        readStream = input!.takeRetainedValue()
        writeStream = output!.takeRetainedValue()
        super.init()
        let settings = [kCFStreamSSLPeerName: NSNull()] as [NSObject: NSObject]
        precondition(
            !readStream.setProperty(settings, forKey: kCFStreamPropertySSLSettings as Stream.PropertyKey))
    }

    open func send(_ text: String) -> CFStreamStatus {
        readStream.delegate = self
        for mode in modes { readStream.schedule(in: CFRunLoopGetCurrent(), forMode: mode) }
        CFReadStreamOpen(readStream)
        CFWriteStreamOpen(writeStream)
        CFWriteStreamWrite(writeStream, Array(text.utf8), text.utf8.count)
        CFWriteStreamClose(writeStream)
        while CFReadStreamGetStatus(readStream) != .atEnd {
            _ = CFRunLoopRunInMode(CFRunLoopMode.defaultMode, 1, true)
        }
        return CFReadStreamGetStatus(readStream)
    }

    open func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        guard eventCode == .hasBytesAvailable else { return }
        var buffer = [UInt8](repeating: 0, count: 16)
        let count = CFReadStreamRead(readStream, &buffer, buffer.count)
        echo.append(buffer, count: max(0, count))
    }
}
