import Foundation
package import Reactor

// Properties whose values are Foundation's. Numbers and strings need nothing: they can be cast to Foundation's.

extension Reactor.Stream.PropertyKey {
    /// A `Data`, or `NSData`: what has been written to a memory stream so far. Stays readable after closing.
    public static let dataWrittenToMemoryStreamKey = Self("kCFStreamPropertyDataWritten")

    /// A `Data` of four bytes, the number of the socket's descriptor. Nil before there is one, and after it is closed.
    public static let socketNativeHandleKey = Self("kCFStreamPropertySocketNativeHandle")
}

extension StreamProperties: StreamPropertyBridge {
    package static func property(
        _ key: Reactor.Stream.PropertyKey, native: (Reactor.Stream.PropertyKey) -> Any?
    ) -> Any? {
        switch key {
        case .dataWrittenToMemoryStreamKey: (native(.writtenBytesKey) as? [UInt8]).map { Data($0) }
        case .socketNativeHandleKey:
            (native(.socketDescriptorKey) as? FileDescriptor).map { descriptor in
                unsafe withUnsafeBytes(of: descriptor.rawValue) { unsafe Data($0) }
            }
        default: nil
        }
    }
}
