import ReactorFoundation

/// A client that receives its streams' events on a dispatch queue, through Core Foundation's functions.
class QueueClient: NSObject, StreamDelegate {
    typealias Reader = (UnsafeMutablePointer<UInt8>, Int) -> Int
    typealias Writer = (UnsafePointer<UInt8>, Int) -> Int

    static let workQueue = DispatchQueue(label: "queue client", attributes: [])
    private var inputStream: InputStream?
    private var outputStream: OutputStream?
    private var received = Data()
    /// Called on the queue at the end, with all received data.
    var onEnd: ((Data, Error?) -> Void)?

    private var writer: Writer? { outputStream?.write }

    func connect(host: String, port: Int, settings: [NSObject: NSObject] = [:]) {
        var readStream: Unmanaged<CFReadStream>?
        var writeStream: Unmanaged<CFWriteStream>?
        let name = host as NSString
        CFStreamCreatePairWithSocketToHost(nil, name, UInt32(port), &readStream, &writeStream)
        inputStream = readStream!.takeRetainedValue()
        outputStream = writeStream!.takeRetainedValue()
        guard let inStream = inputStream, let outStream = outputStream else { return }
        inStream.delegate = self
        outStream.delegate = self
        if !settings.isEmpty {
            let key = CFStreamPropertyKey(rawValue: kCFStreamPropertySSLSettings)
            CFReadStreamSetProperty(inStream, key, settings as CFTypeRef)
            CFWriteStreamSetProperty(outStream, key, settings as CFTypeRef)
        }
        CFReadStreamSetDispatchQueue(inStream, QueueClient.workQueue)
        CFWriteStreamSetDispatchQueue(outStream, QueueClient.workQueue)
        inStream.open()
        outStream.open()
    }

    /// Polls until there is space, without a run loop, and writes.
    func write(_ data: Data) -> Bool {
        guard let outStream = outputStream else { return false }
        while !outStream.hasSpaceAvailable {
            if outStream.streamError != nil { return false }
            sched_yield()
        }
        var total = 0
        while total < data.count {
            let written = data.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) -> Int in
                writer!(bytes.bindMemory(to: UInt8.self).baseAddress! + total, data.count - total)
            }
            if written < 0 { return false }
            total += written
        }
        return true
    }

    func disconnect() {
        for stream in [inputStream, outputStream] as [Stream?] { stream?.delegate = nil }
        CFReadStreamSetDispatchQueue(inputStream, nil)
        CFWriteStreamSetDispatchQueue(outputStream, nil)
        inputStream?.close()
        outputStream?.close()
        inputStream = nil
        outputStream = nil
    }

    open func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable where aStream == inputStream: read(inputStream!.read)
        case .errorOccurred: end(aStream.streamError)
        case .endEncountered: if aStream == inputStream { end(nil) }
        default: break
        }
    }

    private func read(_ reader: Reader) {
        let bytes = UnsafeMutablePointer<UInt8>.allocate(capacity: 4096)
        defer { bytes.deallocate() }
        let length = reader(bytes, 4096)
        if length > 0 { received.append(Data(bytes: bytes, count: length)) }
    }

    private func end(_ error: Error?) {
        disconnect()
        onEnd?(received, error)
        onEnd = nil
    }
}
