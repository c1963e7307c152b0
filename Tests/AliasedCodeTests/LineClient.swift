// swift-format-ignore-file: AllPublicDeclarationsHaveDocumentation

import Foundation

/// A client written for Cocoa, which imports only Foundation.
public final class LineClient: NSObject, StreamDelegate {
    public private(set) var lines: [String] = []
    private let input: InputStream
    private var rest = Data()

    public init(data: Data) {
        input = InputStream(data: data)
        super.init()
        input.delegate = self
    }

    public func run() {
        input.schedule(in: .current, forMode: .default)
        input.open()
        while input.streamStatus != .closed, RunLoop.current.run(mode: .default, before: .distantFuture) {}
    }

    public func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable:
            var buffer = [UInt8](repeating: 0, count: 16)
            let count = input.read(&buffer, maxLength: buffer.count)
            rest.append(buffer, count: max(count, 0))
        case .endEncountered:
            lines = String(decoding: rest, as: UTF8.self).components(separatedBy: "\n")
            aStream.close()
        default: break
        }
    }
}
