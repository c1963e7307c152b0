import Reactor

// Passes messages between an editor and its language server, and logs their sizes: LanguageServer clangd --log=error
let command = Array(CommandLine.arguments.dropFirst())
let framer = Framer.contentLength(limit: 16 << 20)
let log = SendQueue(to: OutputStream(path: "messages.log", append: true), overflow: .dropOldest)
let server = try ChildProcess.spawn(
    .init(command[0], Array(command.dropFirst()), standardInput: .stream, standardOutput: .stream))

async let _ = passRequests()
try await pass(server.standardOutput!, to: OutputStream(descriptor: .standardOutput), "<")
let termination = try await RunLoop.main.termination(of: server.process)
try log.send("\(termination.reason)\n")
try await log.finish()

@MainActor
func passRequests() async throws {
    try await pass(InputStream(descriptor: .standardInput), to: server.standardInput!, ">")
    server.standardInput!.close()
}

@MainActor
func pass(_ input: InputStream, to output: OutputStream, _ direction: String) async throws {
    for try await message in input.messages(framer) {
        try log.send("\(direction) \(message.count) bytes\n")
        try await output.writeAll(framer.frame(for: message))
    }
}
