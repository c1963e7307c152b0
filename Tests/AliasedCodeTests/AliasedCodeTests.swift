import ReactorTestSupport
import Testing

import struct Foundation.Data

@Suite struct AliasedCodeTests {
    @Test func `a client that imports Foundation alone works with aliases of its module's`() async throws {
        let lines = try await onItsOwnThread { () -> [String] in
            let client = LineClient(data: Data("one\ntwo\nthree".utf8))
            client.run()
            return client.lines
        }
        #expect(lines == ["one", "two", "three"])
    }

    @Test func `a public client in Core Foundation's spelling works, too`() async throws {
        let (echo, isAtEnd) = try await onItsOwnThread { () -> (Data, Bool) in
            let client = CoreClient()
            let status = client.send("hello")
            return (client.echo, status == .atEnd)
        }
        #expect(echo == Data("hello".utf8) && isAtEnd)
    }
}
