import CCrypto
import ExampleSupport
import ReactorFoundation
import SystemPackage

/// Computes the SHA-256 checksum of a file, on a thread of the operation queue.
final class Checksum: Operation, @unchecked Sendable {
    // `@unchecked Sendable` is required of every subclass of `Operation`. All properties are immutable and `Sendable`.

    /// As much as the disk reads at once.
    private static let pieceSize = 1 << 20

    private let download: RunLoopOperation
    private let file: FilePath
    private let outcome = Mutex<Result<String, any Error>?>(nil)

    /// - Parameter download: What saves the file. Nothing is computed if it fails.
    init(of file: FilePath, after download: RunLoopOperation) {
        self.file = file
        self.download = download
        super.init()
        addDependency(download)
    }

    /// The checksum in hexadecimal digits; nil if there is none.
    var result: Result<String, any Error>? { outcome.withLock { $0 } }

    override func main() {
        guard case .success? = download.result else { return }
        let result = Result { try compute() }
        outcome.withLock { $0 = result }
    }

    private func compute() throws -> String {
        let descriptor = try FileDescriptor.open(file, .readOnly, options: .closeOnExec)
        return try descriptor.closeAfter {
            let hash = SHA256()
            var piece = [UInt8](repeating: 0, count: Self.pieceSize)
            while true {
                if isCancelled { throw CancellationError() }
                let count = try unsafe piece.withUnsafeMutableBytes { unsafe try descriptor.read(into: $0) }
                guard count > 0 else { break }
                hash.update(with: piece, count: count)
            }
            return hash.finish().map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
    }
}

/// A checksum that OpenSSL computes. `@safe` is right because this alone uses the context, and frees it.
@safe private struct SHA256: ~Copyable {
    private static let size = 32

    private let context = unsafe EVP_MD_CTX_new()

    init() {
        let isAvailable = unsafe EVP_DigestInit_ex(context, EVP_sha256(), nil) == 1
        precondition(isAvailable, "OpenSSL has no SHA-256, or no memory.")
    }

    deinit { unsafe EVP_MD_CTX_free(context) }

    /// Adds the first `count` of `bytes`.
    func update(with bytes: [UInt8], count: Int) {
        precondition(count <= bytes.count)
        _ = unsafe bytes.withUnsafeBytes { unsafe EVP_DigestUpdate(context, $0.baseAddress, count) }
    }

    /// The checksum. Called once.
    func finish() -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: Self.size)
        _ = unsafe EVP_DigestFinal_ex(context, &digest, nil)
        return digest
    }
}
