import SystemPackage

/// The right to read a stream's file, and where it continues. One thread at a time has it, and returns it by releasing it.
struct FileReader: ~Copyable, Sendable {
    private let file: FileInput
    private var position: Int
    private var ahead: FileInput.Ahead

    /// - Parameters:
    ///   - position: Where the file is read next.
    ///   - ahead: What has been read before that, and is the next to read.
    init(_ file: FileInput, at position: Int, after ahead: FileInput.Ahead = FileInput.Ahead()) {
        (self.file, self.position, self.ahead) = (file, position, ahead)
    }

    deinit { file.returnReader(at: position, ahead) }

    /// Reads the next bytes, as many as are there and fit; 0 at the end. May wait for a disk.
    mutating func read(into buffer: inout MutableRawSpan) throws(Errno) -> Int {
        var emptied: ByteQueue?
        if let transfer = try ahead.take(into: &buffer, emptying: &emptied) { return transfer.count }
        let count = try file.readFile(&buffer, at: position)
        position += count
        return count
    }

    /// Reads a chunk, or the end, and keeps it for the next reader.
    mutating func readAhead(into chunk: consuming ByteQueue) {
        do throws(Errno) {
            let count = try chunk.append(upTo: FileInput.chunkSize) {
                [file, position] (bytes) throws(Errno) in
                try file.readFile(&bytes, at: position)
            }
            position += count
            if count > 0 { ahead.put(chunk) } else { ahead.end() }
        } catch { ahead.end(error) }
    }

    /// Continues at another offset.
    mutating func seek(to offset: Int) { (position, ahead) = (offset, FileInput.Ahead()) }
}

/// The file of a stream, for a worker that reads it in the stream's place, without the stream's locks.
struct FileSource: Sendable {
    let engine: StreamEngine
    let file: FileInput

    /// Nil unless the stream is an open file's. A subclass is read by its own methods.
    init?(_ stream: InputStream) {
        guard type(of: stream) == InputStream.self, stream.engine.isOpen,
            let file = stream.engine.backend as? FileInput
        else { return nil }
        (engine, self.file) = (stream.engine, file)
    }

    /// Appends up to `size` bytes, and returns how many: 0 at the end. Ends the stream, or fails it, as its own reads do.
    func append(to bytes: inout [UInt8], upTo size: Int, by reader: inout FileReader) throws(Errno) -> Int {
        do throws(Errno) {
            let count = try bytes.append(upTo: size) { (bytes) throws(Errno) in try reader.read(into: &bytes)
            }
            if count == 0 { engine.finish(Transfer(count: 0, isAtEnd: true), of: size) }
            return count
        } catch {
            engine.fail(error)
            engine.refresh()
            throw error
        }
    }
}
