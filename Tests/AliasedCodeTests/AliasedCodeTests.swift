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
}
