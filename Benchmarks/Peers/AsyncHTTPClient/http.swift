// http-async-http-client body|secure|small COUNT  Downloads from nginx with AsyncHTTPClient: see HTTPWorkload. A task iterates
//                                                 each body.

import AsyncHTTPClient
import HTTPWorkload
import NIOSSL

@main
enum Peer {
    static func main() async throws {
        let workload = try HTTPWorkload()
        var configuration = HTTPClient.Configuration()
        configuration.connectionPool.concurrentHTTP1ConnectionsPerHostSoftLimit = 8
        if let certificate = workload.certificate {
            var tls = TLSConfiguration.makeClientConfiguration()
            tls.trustRoots = .file(certificate)
            configuration.tlsConfiguration = tls
        }
        let client = HTTPClient(configuration: configuration)
        let count = try await withThrowingTaskGroup { group in
            for number in 0..<(workload.isSmall ? workload.count : 1) {
                let url = "\(workload.url)?\(number)"
                group.addTask { try await size(of: url, client) }
            }
            var total = 0
            for try await size in group { total += size }
            return total
        }
        guard count == workload.byteCount else { fatalError("bytes are missing") }
        workload.end()
    }

    private static func size(of url: String, _ client: HTTPClient) async throws -> Int {
        let response = try await client.execute(HTTPClientRequest(url: url), timeout: .minutes(10))
        var count = 0
        for try await piece in response.body { count += piece.readableBytes }
        return count
    }
}
