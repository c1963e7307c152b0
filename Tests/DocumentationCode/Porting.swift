// The code of the article "Porting from Cocoa". scripts/check-code compares it with the article.

import ReactorFoundation
import ReactorTLS

private final class Client: NSObject, StreamDelegate {
    private var inputStream: InputStream!
    private var outputStream: OutputStream!

    func connect() {
        Stream.getStreamsToHost(
            withName: "example.org", port: 7, inputStream: &inputStream, outputStream: &outputStream)
        for stream in [inputStream, outputStream] as [Stream] {
            stream.delegate = self
            stream.schedule(in: .current, forMode: .default)
            stream.open()
        }
    }

    func stream(_ aStream: Stream, handle eventCode: Stream.Event) {
        switch eventCode {
        case .hasBytesAvailable: readAll()  // yours
        case .errorOccurred: report(aStream.streamError as NSError?)  // yours too
        case .endEncountered: aStream.close()
        default: break
        }
    }
}

extension Client {
    fileprivate func readAll() {}
    fileprivate func report(_ error: NSError?) {}
}

private func pin(_ pinnedCertificate: Data, of inputStream: InputStream) throws {
    var settings = TLSSettings.client()
    settings.peerVerifier = TLSPeerVerifier { evidence in
        evidence.failure == nil && evidence.chain.first == [UInt8](pinnedCertificate)
    }
    try inputStream.beginTLS(settings)
}

private func look(at aStream: Stream) {
    let trust = aStream.property(forKey: kCFStreamPropertySSLPeerTrust as Stream.PropertyKey) as? TLSSession
    let certificates = trust?.peerCertificates.map { Data($0) }  // DER, the peer's own first
    print(certificates ?? [])
}

private func readWithHandler(of handle: FileHandle, show: @escaping @Sendable (Data) -> Void) {
    let loop = RunLoop.current
    handle.readabilityHandler = { handle in
        let data = handle.availableData
        if data.isEmpty { handle.readabilityHandler = nil }  // the end
        loop.perform { show(data) }  // yours
    }
}

private func readWithSource(of handle: FileHandle, show: @escaping (Data) -> Void) throws {
    let descriptor = FileDescriptor(rawValue: handle.fileDescriptor)
    let source = DescriptorSource(descriptor, for: .readable) { source, _ in
        let data = handle.availableData
        if data.isEmpty { source.cancel() }  // the end
        show(data)  // yours
    }
    try RunLoop.current.add(source, forMode: .common)
}

private func runOnAThread(startClients: @escaping @Sendable () -> Void) throws {
    let network = try RunLoopThread(name: "network")
    network.runLoop.perform { startClients() }
}

private func readSensor() -> Double { 20 }

private final class Poller {
    private let thread: RunLoopThread

    init() throws { thread = try RunLoopThread(name: "poller") }

    func start() {
        thread.runLoop.perform {
            Timer.scheduledTimer(withTimeInterval: 5, repeats: true) { _ in
                let value = readSensor()
                RunLoop.main.perform { print(value) }
            }
        }
    }

    func stop() { thread.stop() }
}
