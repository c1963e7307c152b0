import Reactor
import ReactorTesting
import Testing

@Suite(.runLoop) struct AddressOrderTests {
    /// Addresses as letters: capitals are IPv6, small ones IPv4, and a dot is a Unix-domain socket.
    private func addresses(_ letters: String) -> [SocketAddress] {
        letters.utf8.map { letter in
            switch letter {
            case 0x2e: .unixUnnamed
            case ..<0x60: .ipv6(UInt128(letter), port: 1)
            default: .ipv4(UInt32(letter), port: 1)
            }
        }
    }

    @Test(arguments: [
        ("", 1, ""), ("A", 1, "A"), ("ABC", 1, "ABC"), ("ABab", 1, "AaBb"), ("abAB", 1, "aAbB"),
        ("ABCDa", 1, "AaBCD"),
        ("Aabcd", 1, "Aabcd"), ("AaBb", 1, "AaBb"), ("ABCabc", 2, "ABaCbc"), ("ABCabc", 9, "ABCabc"),
        ("ABab", 0, "AaBb"), ("ABab", -5, "AaBb"), ("AB.a", 1, "A.Ba"),
    ])
    func `families alternate, and each keeps its order`(letters: String, firstCount: Int, wanted: String) {
        #expect(addresses(letters).interleavingFamilies(firstCount: firstCount) == addresses(wanted))
    }
}
