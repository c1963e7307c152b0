import Glibc
import Reactor

/// The partial file of a download, open and locked (flock(2)): another download to the same path fails, in this process or
/// another. The lock ends with the process, so a later download can resume.
///
/// Another user may be able to make files in the folder. So nothing here waits for a FIFO, follows a symbolic link, writes
/// a file that another user owns or that has a second name, or removes what is not a regular file.
final class PartFile {
    private let path: FilePath
    private let number: CInt
    private let owner: DescriptorOwner
    private var isRemoved = false

    private init(_ path: FilePath, _ number: CInt) {
        (self.path, self.number, owner) = (path, number, DescriptorOwner(of: number))
    }

    deinit {
        // A child that another thread has just forked has the descriptor until it executes its program.
        flock(number, LOCK_UN)
        guard isRemoved, size >= slowToFree else { return owner.close(number) }
        DispatchWorkers.run { [owner, number] in owner.close(number) }
    }

    private var validatorPath: FilePath { path.appending(suffix: ".validator") }

    // MARK: Opening

    /// Opens and locks the file that an earlier download has left; nil if there is none that can be continued, unless
    /// `creates`.
    static func open(_ path: FilePath, creates: Bool) throws(Errno) -> PartFile? {
        while true {
            guard let part = try openAndLock(path) else {
                guard creates else { return nil }
                do throws(Errno) {
                    if let part = try openAndLock(path, O_CREAT | O_EXCL), part.hasName { return part }
                } catch .fileExists {}
                continue
            }
            // Between the opening and the locking, its owner may have renamed or removed it.
            guard part.hasName else { continue }
            if part.isTrusted { return part }
            guard creates else { return nil }
            try part.remove()
        }
    }

    /// Nil if there is no file.
    private static func openAndLock(_ path: FilePath, _ flags: CInt = 0) throws(Errno) -> PartFile? {
        let flags = flags | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        let number: CInt
        do throws(Errno) {
            number = try SystemCall.open(path, flags, mode: 0o666)
        } catch .noSuchFileOrDirectory where flags & O_CREAT == 0 {
            return nil
        }
        let part = PartFile(path, number)
        guard let status = try? FileStatus.of(number), status.fileType == S_IFREG else { throw .fileExists }
        // A file system without locks has other errors.
        if flock(number, LOCK_EX | LOCK_NB) != 0, errno == EWOULDBLOCK { throw .resourceBusy }
        return part
    }

    /// Whether the path still leads to this file.
    private var hasName: Bool {
        guard let own = try? FileStatus.of(number), let named = FileStatus.ofLink(path) else { return false }
        return own.st_dev == named.st_dev && own.st_ino == named.st_ino
    }

    private var isTrusted: Bool {
        guard let status = try? FileStatus.of(number) else { return false }
        return status.st_uid == geteuid() && status.st_nlink == 1
    }

    // MARK: Content

    var size: Int { (try? FileStatus.of(number)).map { Int($0.st_size) } ?? 0 }

    /// A stream that writes behind the first `offset` bytes, and cuts what follows them.
    func output(from offset: Int, writeBehindLimit: Int) throws(Errno) -> OutputStream {
        try SystemCall.make { ftruncate(number, offset) }
        try SystemCall.make { lseek(number, offset, SEEK_SET) }
        // The lock stays when the stream is closed.
        let copy = try SystemCall.duplicate(number)
        return OutputStream(descriptor: copy, path: path.string, writeBehindLimit: writeBehindLimit)
    }

    /// The server's validator of the version that the file belongs to; nil if that is not known.
    var validator: String? {
        let flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY
        guard let file = try? OwnedDescriptor(SystemCall.open(validatorPath, flags)),
            let status = try? FileStatus.of(file.number), status.fileType == S_IFREG,
            status.st_uid == geteuid()
        else { return nil }
        var bytes: [UInt8] = []
        _ = bytes.append(upTo: 1024) { room in (try? SystemCall.read(file.number, into: &room)) ?? 0 }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }

    /// Writes the validator beside the file.
    func writeValidator(_ validator: String) throws(Errno) {
        removeValidator()
        do {
            let file = FileDescriptor(
                rawValue: try SystemCall.open(validatorPath, O_WRONLY | O_CREAT | O_EXCL, mode: 0o644))
            try file.closeAfter { _ = try file.writeAll(validator.utf8) }
        } catch { throw error as? Errno ?? .ioError }
    }

    /// Removes what is kept of the validator, if that is a regular file.
    func removeValidator() {
        guard FileStatus.ofLink(validatorPath)?.fileType == S_IFREG else { return }
        try? SystemCall.unlink(validatorPath)
    }

    // MARK: The end

    /// Gives the file its final name, in place of a regular file.
    func rename(to final: FilePath) throws(Errno) {
        guard hasName else { throw .resourceBusy }
        if let status = FileStatus.ofLink(final), status.fileType != S_IFREG { throw .fileExists }
        try freeingOffLoop(final) { () throws(Errno) in
            try SystemCall.make(path) { old in
                unsafe final.withPlatformString { unsafe Glibc.rename(old, $0) }
            }
        }
    }

    func remove() throws(Errno) {
        guard hasName else { return }
        try SystemCall.unlink(path)
        isRemoved = true
    }
}

/// From this size on, the kernel takes milliseconds to free what a file occupies.
private let slowToFree = 16 << 20

/// Calls `body`, which removes the name of a file.
///
/// To free what a large file occupies takes the kernel tens of milliseconds. It does that when the file is closed: on a
/// worker, not on the loop.
private func freeingOffLoop<Failure: Error>(
    _ path: FilePath, _ body: () throws(Failure) -> Void
) throws(Failure) {
    let isLarge = FileStatus.ofLink(path).map { $0.st_size >= slowToFree } ?? false
    guard isLarge, let file = try? SystemCall.open(path, SystemCall.pathOnly | O_NOFOLLOW) else {
        return try body()
    }
    let owner = DescriptorOwner(of: file)
    defer { DispatchWorkers.run { owner.close(file) } }
    try body()
}
