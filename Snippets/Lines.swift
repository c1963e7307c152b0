import Reactor

// Prints the long lines of a file, on the main actor. A Dispatch queue reads the file and cuts its lines.
let lines = InputStream(path: "/etc/services").lines
for try await line in lines where line.utf8.count > 70 {
    print("\(lines.progress.byteCount): \(line)")
}
