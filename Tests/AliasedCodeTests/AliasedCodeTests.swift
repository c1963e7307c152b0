import ReactorTestSupport
import Testing

import struct Foundation.Data

@Suite struct AliasedCodeTests {
    @Test func `a client that imports only Foundation uses its module's aliases`() async throws {
        let lines = try await onItsOwnThread { () -> [String] in
            let client = LineClient(data: Data("one\ntwo\nthree".utf8))
            client.run()
            return client.lines
        }
        #expect(lines == ["one", "two", "three"])
    }

    @Test func `a public client can use Core Foundation's names through the aliases`() async throws {
        let (echo, isAtEnd) = try await onItsOwnThread { () -> (Data, Bool) in
            let client = CoreClient()
            let status = client.send("hello")
            return (client.echo, status == .atEnd)
        }
        #expect(echo == Data("hello".utf8) && isAtEnd)
    }
}
