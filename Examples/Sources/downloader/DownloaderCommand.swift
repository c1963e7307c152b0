import ArgumentParser
import ExampleSupport
import SystemPackage

/// Downloads files, several at once.
@main
struct DownloaderCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "downloader",
        abstract: "Downloads files, several at once.",
        discussion: """
            A file has the name of the last component of its URL's path, percent-decoded, or index.html if there is none. \
            Characters that a name must not have stay percent-encoded, and a name that is too long is cut. If several \
            URLs end in the same name, the second file is NAME.1, and so on. A file replaces an older one of its name when it is whole; until then it is \
            NAME.part.

            A signal leaves what --resume can go on with: the partial files of servers that name the versions of what \
            they serve, with ETag or Last-Modified.

            If standard error is a terminal, it shows a bar for each download that is running, and one for all.

            With --json, a line of the output is an object with these members:
              url, file     from where, and to where
              bytes         the size of the file, or of the part that has been received
              seconds       from the start of the download to the end of its checksum
              status        the status of the response, or null
              sha256        with --checksum; otherwise null
              error         why the file is not there or has no checksum, or null

            The exit status is 0 if all files are whole, 1 if an error occurred, and 128 plus the signal's number \
            after a signal.
            """)

    @Argument(help: "The files to download, over http or https.")
    var urls: [String]

    @Option(help: "The folder to save the files in, which is created if it is missing.")
    var output = "."

    @Option(help: "How many downloads run at the same time.")
    var maxConcurrent = 4

    @Flag(help: "Go on with partial files if the server still has the same versions.")
    var resume = false

    @Option(help: "How often a failed download is tried again.")
    var retries = 2

    @Flag(help: "Print the SHA-256 checksum of each file, in the form of sha256sum(1).")
    var checksum = false

    @Flag(help: "Print a line of JSON for each file.")
    var json = false

    func validate() throws {
        guard maxConcurrent > 0 else { throw ValidationError("--max-concurrent must be at least 1.") }
        guard retries >= 0 else { throw ValidationError("--retries must not be negative.") }
        for url in urls where !FileName.isURL(url) {
            throw ValidationError("\(url) does not begin with http:// or https://.")
        }
    }

    func run() throws {
        try StandardDescriptors.fillGaps()
        // For each, two sockets that race, and two files.
        try Workers.prepare(descriptorCount: 4 * min(maxConcurrent, urls.count))
        let status = try MainActor.assumeIsolated { try Downloader(self).run() }
        if status != 0 { throw ExitCode(status) }
    }
}
