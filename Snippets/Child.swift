import Dispatch
import Glibc
import Reactor
import SystemPackage

// Starts a program and prints its output line by line, as the lines arrive.
func start(_ command: String, output: FileDescriptor) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, output.rawValue, STDOUT_FILENO)
    let words = ["sh", "-c", command]
    var arguments = words.map { strdup($0) } + [nil]
    defer { for argument in arguments { free(argument) } }
    var child = pid_t()
    let code = posix_spawn(&child, "/bin/sh", &actions, nil, &arguments, environ)
    guard code == 0 else { throw Errno(rawValue: code) }
    return child
}

let pipe = try FileDescriptor.pipe()
for end in [pipe.readEnd, pipe.writeEnd] { _ = fcntl(end.rawValue, F_SETFD, FD_CLOEXEC) }
let child = try start("for i in 1 2 3; do echo $i; sleep 1; done", output: pipe.writeEnd)
try pipe.writeEnd.close()  // the output ends when its last writer closes it

let output = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
let reader = LineReader(output, text: .repair, into: (), on: DispatchQueue(label: "lines")) { _, text, line in
    print(line.number, text)
}
reader.start { report in
    print("\(report.output.lineCount) lines, \(report.ending)")
    RunLoop.current.stop()
}
RunLoop.current.run(in: .default)
waitpid(child, nil, 0)
