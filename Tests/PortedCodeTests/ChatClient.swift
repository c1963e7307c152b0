import ReactorFoundation

/// A client as many packages have it, written against Cocoa.
class ChatClient: NSObject, StreamDelegate {
    var inputStream: InputStream!
    var outputStream: OutputStream? {
        didSet { outputChanges += 1 }
    }
    var outputChanges = 0
    var received = Data()
    var isOver = false
    var lastError: NSError?
    var pingTimer: Timer?
    var pings = 0

    func connect(host: String, port: Int) {
        Stream.getStreamsToHost(
            withName: host, port: port, inputStream: &inputStream, outputStream: &outputStream)
        inputStream.delegate = self
        outputStream?.delegate = self
        inputStream.setProperty(StreamSocketSecurityLevel.none as AnyObject, forKey: .socketSecurityLevelKey)
        inputStream.schedule(in: .current, forMode: .default)
        outputStream!.schedule(in: RunLoop.current, forMode: RunLoop.Mode.default)
        inputStream.open()
        outputStream?.open()
    }

    func startPinging() {
        pingTimer = Timer(timeInterval: 0.001, repeats: true) { [weak self] timer in
            guard let self = self else { return timer.invalidate() }
            self.pings += 1
        }
        pingTimer?.tolerance = 0.0001
        pingTimer!.fireDate = Date().addingTimeInterval(0.002)
        RunLoop.current.add(pingTimer!, forMode: .common)
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch aStream {
        case inputStream!: handleInput(eventCode)
        case outputStream!: if eventCode == .errorOccurred { fail(aStream) }
        default: preconditionFailure("ChatClient received an event of another object's stream.")
        }
    }

    private func handleInput(_ eventCode: Stream.Event) {
        switch eventCode {
        case Stream.Event.hasBytesAvailable:
            var buffer = [UInt8](repeating: 0, count: 1024)
            while inputStream.hasBytesAvailable {
                let length = inputStream.read(&buffer, maxLength: buffer.count)
                if length <= 0 { break }
                received.append(buffer, count: length)
            }
        case .errorOccurred: fail(inputStream)
        case .endEncountered: disconnect()
        default: break
        }
    }

    private func fail(_ aStream: Stream) {
        if lastError == nil { lastError = aStream.streamError as NSError? }
        disconnect()
    }

    func send(_ data: Data) -> Int {
        data.withUnsafeBytes {
            outputStream!.write($0.bindMemory(to: UInt8.self).baseAddress!, maxLength: data.count)
        }
    }

    func disconnect() {
        for stream in [inputStream, outputStream] as [Stream?] {
            stream?.delegate = nil
            stream?.close()
            stream?.remove(from: .current, forMode: .default)
        }
        isOver = true
    }

    deinit { pingTimer?.invalidate() }
}
