import ReactorTestSupport
import Testing

import struct Foundation.Data

@Suite struct AliasedCodeTests {
    @Test func `a public client that imports only Foundation uses its module's aliases`() throws {
        try onAThread {
            let client = CoreClient()
            #expect(client.send("hello") == .atEnd && client.echo == Data("hello".utf8))
        }
    }
}
