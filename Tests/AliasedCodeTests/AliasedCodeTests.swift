import ReactorTestSupport
import Testing

import struct Foundation.Data

@Suite struct AliasedCodeTests {
    @Test func `a client that imports only Foundation uses its module's aliases`() throws {
        let lines = try onAThread {
            let client = LineClient(data: Data("one\ntwo\nthree".utf8))
            client.run()
            return client.lines
        }
        #expect(lines == ["one", "two", "three"])
    }

    @Test func `a public client can use Core Foundation's names through the aliases`() throws {
        try onAThread {
            let client = CoreClient()
            #expect(client.send("hello") == .atEnd && client.echo == Data("hello".utf8))
        }
    }
}
