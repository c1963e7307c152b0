import CReactorTestSupport
import Glibc
import SystemPackage

/// Runs one scenario of the program `main-loop-probe`, or another, and answers the lines that it printed.
///
/// - Parameter arguments: What the scenario wants to know, before its name.
func probeMainLoop(
    _ scenario: String, _ arguments: [String] = [], of program: String = "main-loop-probe"
) async throws -> [String] {
    try await onItsOwnThread {
        let pipe = try FileDescriptor.pipe()
        defer { try? pipe.readEnd.close() }
        let process = try spawn([try path(of: program)] + arguments + [scenario], output: pipe)
        try pipe.writeEnd.close()
        var bytes: [UInt8] = []
        try withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 1) { buffer in
            while case let count = try pipe.readEnd.read(into: buffer), count > 0 {
                bytes += buffer.prefix(count)
            }
        }
        var status: CInt = 0
        while waitpid(process, &status, 0) == -1, errno == EINTR {}
        let lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
        return status == 0 ? lines : lines + ["ended with status \(status)"]
    }
}

/// The programs are built beside the test bundle.
private func path(of program: String) throws -> String {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    let length = readlink("/proc/self/exe", &buffer, buffer.count - 1)
    guard length > 0 else { throw Errno(rawValue: errno) }
    let bundle = FilePath(String(decoding: buffer.prefix(length).map(UInt8.init(bitPattern:)), as: UTF8.self))
    return bundle.removingLastComponent().appending(program).string
}

private func spawn(
    _ arguments: [String], output: (readEnd: FileDescriptor, writeEnd: FileDescriptor)
) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output.writeEnd.rawValue, STDOUT_FILENO)
    reactor_test_close_from(&actions, 3)
    var strings = arguments.map { strdup($0) } + [nil]
    defer { for string in strings { free(string) } }
    var process = pid_t()
    let code = posix_spawn(&process, arguments[0], &actions, nil, &strings, environ)
    guard code == 0 else { throw Errno(rawValue: code) }
    return process
}
