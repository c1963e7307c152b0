#if DEBUG

import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

@testable import ReactorHTTP

/// Values that know neither loop nor network.
@Suite(.runLoop) struct PureTests {
    @Test func `a sleep counts fully, and a long callback only in part`() {
        var time = ServedTime()
        let second = Int64(1_000_000_000)
        time.note(.beforeTimers, at: 0)
        time.note(.beforeWaiting, at: 1000)
        #expect(time.elapsed(at: 1000) == 1000)
        time.note(.afterWaiting, at: 10 * second + 1000)
        #expect(time.elapsed(at: 10 * second + 1000) == 10 * second + 1000)
        time.note(.beforeTimers, at: 70 * second)
        #expect(time.elapsed(at: 70 * second) == 10 * second + 1000 + second / 10)
    }

    @Test(arguments: [
        (206, "bytes 5-10/11", Resumption.Meaning.rest(total: 11)), (206, "bytes 5-9/11", .useless),
        (206, "bytes 4-10/11", .useless), (206, "bytes 5-10/12", .useless), (206, "bytes 5-10/*", .useless),
        (416, "bytes */5", .nothing),
        (416, "bytes */6", .useless), (200, "", .other), (404, "", .other),
    ])
    func `a partial file is continued only by all of its rest`(
        status: Int, range: String, meaning: Resumption.Meaning
    ) {
        var resumption = Resumption(validator: "\"1\"")
        var request = HTTPRequest("http://127.0.0.1/")
        resumption.prepare(&request) { 5 }
        #expect(request.fields["Range"] == "bytes=5-")
        #expect(resumption.meaning(of: response(status, range, tag: "\"1\"")) == meaning)
        let isPart = status == 206 || status == 416
        #expect(resumption.meaning(of: response(status, range, tag: "\"2\"")) == (isPart ? .useless : .other))
    }

    private func response(_ status: Int, _ range: String, tag: String) -> HTTPResponse {
        HTTPResponse(
            status: status, fields: ["Content-Range": range, "ETag": tag], url: "", version: .http11)
    }

    @Test func `the time before a retry doubles, to an hour at most`() {
        var configuration = HTTPSession.Configuration()
        configuration.retryDelay = .seconds(1000)
        let delays = (1...4).map { configuration.delay(ofRetry: $0) }
        #expect(delays == [.seconds(1000), .seconds(2000), .seconds(3600), .seconds(3600)])
        configuration.retryDelay = .seconds(5000)
        #expect(configuration.delay(ofRetry: 2) == .seconds(5000))
    }

    @Test func `heads and trailers that are too large are noted`() {
        var parser = HTTPResponse.HeadParser()
        let field = Array("X: ".utf8) + [UInt8](repeating: 97, count: 200_000) + [13, 10]
        #expect(parser.take(Array("HTTP/1.1 200 OK\r\n".utf8)) == .status)
        #expect(parser.take(field) == .field)
        var other = parser
        #expect(other.take(field) == .tooLarge)
        #expect(parser.take([13, 10]) == .end)
        #expect(parser.take(field) == .field)
        #expect(parser.take(Array("HTTP/1.1 404 Not Found\r\n".utf8)) == .field)
        #expect(parser.status == 200)
        #expect(parser.take(field) == .tooLarge)
    }

    @Test func `a queue that is never empty keeps nothing that has been taken`() {
        var (queue, live) = (Queue<Witness>(), [Fate]())
        func append() {
            let witness = Witness()
            live.append(Fate(witness))
            queue.append(witness)
        }
        append()
        for _ in 0..<1000 {
            append()
            #expect(queue.popFirst() != nil)
            live.removeAll(where: \.isFreed)
            #expect(live.count == 1)
        }
        #expect(queue.count == 1)
    }

    @Test func `bytes join the last piece until it is full, but not one that has been taken`() {
        var queue = Queue<Outbox.Event>()
        var memory = queue.append([1])
        memory += queue.append([2, 3])
        guard case .event(.bytes(let piece))? = queue.popFirst() else {
            return #expect(queue.isEmpty == false)
        }
        #expect(piece == [1, 2, 3])
        #expect(memory == piece.memory)
        let half = [UInt8](repeating: 0, count: Outbox.pieceSize / 2)
        for bytes in [[4], half, half] { _ = queue.append(bytes) }
        #expect(queue.count == 2)
        #expect(queue.removeAll().count == 2)
        #expect(queue.isEmpty)
    }

    @Test func `credentials are not shown`() {
        let url = "https://me:secret@example.org/"
        let request = HTTPRequest(
            url, fields: ["authorization": "secret", "Cookie": "secret", "Accept": "*/*"])
        #expect("\(request)" == "GET https://example.org/")
        var dumped = ""
        dump(request, to: &dumped)
        dump(
            HTTPResponse(status: 200, fields: ["Set-Cookie": "secret"], url: url, version: .http2),
            to: &dumped)
        for text in ["\([request])", "\(request.fields)", dumped] { #expect(!text.contains("secret")) }
        #expect(dumped.contains("*/*") && dumped.contains("(not shown)"))
    }

    @Test func `fields are found in any case and keep their order`() {
        var fields: HTTPFields = ["Accept": "a", "X": "1"]
        fields.append("ACCEPT", "b")
        #expect(fields.values(for: "accept") == ["a", "b"])
        fields["x"] = nil
        #expect(fields["X"] == nil)
        fields["accept"] = "c"
        #expect(fields.fields.map(\.name) == ["accept"])
    }
}

#endif
