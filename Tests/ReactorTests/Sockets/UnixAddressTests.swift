import Reactor
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct UnixAddressTests {
    typealias UnixNameError = SocketAddress.UnixNameError

    @Test func `a path has 1 to 107 bytes, none of them zero`() throws {
        let longest = String(repeating: "x", count: 107)
        #expect(try SocketAddress(unixPath: longest).unixPath == FilePath(longest))
        #expect(throws: UnixNameError.tooLong(byteCount: 108)) { try SocketAddress(unixPath: longest + "x") }
        #expect(throws: UnixNameError.tooLong(byteCount: 108)) {
            try SocketAddress(unixPath: FilePath(longest + "x"))
        }
        #expect(throws: UnixNameError.tooLong(byteCount: 108)) {
            try SocketAddress(unixAbstractName: (longest + "x").utf8)
        }
        #expect(throws: UnixNameError.empty) { try SocketAddress(unixPath: "") }
        #expect(throws: UnixNameError.empty) { try SocketAddress(unixPath: FilePath()) }
        #expect(throws: UnixNameError.empty) { try SocketAddress(unixAbstractName: []) }
        #expect(throws: UnixNameError.containsZero) { try SocketAddress(unixPath: "/tmp/a\0b") }
    }

    @Test func `an error states the path's length and the limit`() {
        let text = UnixNameError.tooLong(byteCount: 200).description
        #expect(text.contains("200"))
        #expect(text.contains("107"))
    }

    @Test func `a path, an abstract name and no name differ`() throws {
        let path = try SocketAddress(unixPath: FilePath("/run/a"))
        let name = try SocketAddress(unixAbstractName: [0, 1])
        #expect(path.unixPath == "/run/a")
        #expect(path.unixAbstractName == nil)
        #expect(name.unixPath == nil)
        #expect(name.unixAbstractName == [0, 1])
        #expect(SocketAddress.unixUnnamed.unixPath == nil)
        #expect(SocketAddress.unixUnnamed.unixAbstractName == nil)
    }
}
