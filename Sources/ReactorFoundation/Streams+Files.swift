public import Foundation
public import Reactor

extension Reactor.InputStream {
    /// A stream of the file at `url`; nil if that is not a file's URL.
    ///
    /// Whether there is such a file shows when it is opened.
    public convenience init?(url: URL) {
        guard let path = url.systemPath else { return nil }
        self.init(path: path)
    }
}

extension Reactor.OutputStream {
    /// A stream into the file at `url`, which is made, and emptied unless it is appended to, when it is opened; nil if
    /// that is not a file's URL.
    public convenience init?(url: URL, append shouldAppend: Bool) {
        guard let path = url.systemPath else { return nil }
        self.init(path: path, append: shouldAppend)
    }
}

extension URL {
    /// The file's path, byte for byte, though it be no text.
    fileprivate var systemPath: FilePath? {
        guard isFileURL else { return nil }
        return unsafe withUnsafeFileSystemRepresentation { path in
            unsafe path.map { unsafe FilePath(platformString: $0) }
        }
    }
}
