import Dispatch
import Glibc
import Reactor
import SystemPackage

// Starts a program and reads its output line by line, as the lines come.
let pipe = try FileDescriptor.pipe()
var actions = posix_spawn_file_actions_t()
posix_spawn_file_actions_init(&actions)
posix_spawn_file_actions_adddup2(&actions, pipe.writeEnd.rawValue, STDOUT_FILENO)
posix_spawn_file_actions_addclose(&actions, pipe.readEnd.rawValue)
var (child, arguments) = (
    pid_t(), [strdup("sh"), strdup("-c"), strdup("for i in 1 2 3; do echo $i; sleep 1; done"), nil]
)
let code = posix_spawn(&child, "/bin/sh", &actions, nil, &arguments, environ)
guard code == 0 else { throw Errno(rawValue: code) }
try pipe.writeEnd.close()  // or the end of the output would never come

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
