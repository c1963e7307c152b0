// http-foundation body|small COUNT  Downloads from nginx with URLSession: see HTTPWorkload. A body is passed on in pieces.

import Foundation
import FoundationNetworking
import HTTPWorkload

final class Client: NSObject, URLSessionDataDelegate, @unchecked Sendable {
    // Used on the session's delegate queue, which is serial.
    private let workload: HTTPWorkload
    private var bytes = 0
    private var ended = 0

    init(_ workload: HTTPWorkload) { self.workload = workload }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        bytes += data.count
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        if let error { fatalError("\(error)") }
        ended += 1
        guard ended == (workload.isSmall ? workload.count : 1) else { return }
        guard bytes == workload.byteCount else { fatalError("bytes are missing") }
        workload.end()
    }
}

@main
enum Peer {
    static func main() throws {
        let workload = try HTTPWorkload()
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpMaximumConnectionsPerHost = 8
        let session = URLSession(configuration: configuration, delegate: Client(workload), delegateQueue: nil)
        for number in 0..<(workload.isSmall ? workload.count : 1) {
            session.dataTask(with: URL(string: "\(workload.url)?\(number)")!).resume()
        }
        while true { pause() }
    }
}
