import Foundation

/// Describes the machine, and the versions of the software.
struct Machine {
    let package: URL

    /// Names and shell commands. A row whose command fails is omitted.
    private var rows: [(String, String)] {
        [
            ("Processor", "sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1"),
            ("Cores", "nproc"),
            ("Memory", "awk '/MemTotal/ { printf \"%.0f GiB\", $2 / 1048576 }' /proc/meminfo"),
            (
                "Virtual machine",
                "lscpu | sed -n 's/^Hypervisor vendor: *//p'"
            ),
            ("Kernel", "uname -sr"),
            ("System", ". /etc/os-release && echo $PRETTY_NAME"),
            ("Swift", "swift --version 2>/dev/null | sed -nE 's/.*Swift version ([0-9.]+).*/\\1, release/p'"),
            ("C and C++", "gcc --version | sed -n '1s/.*) //p' | sed 's/^/gcc /; s/$/, -O2/'"),
            ("libevent", "pkg-config --modversion libevent_core"),
            ("libuv", "pkg-config --modversion libuv"),
            ("libev", "sed -nE 's/#define EV_VERSION_(MAJOR|MINOR) //p' /usr/include/ev.h | paste -sd ."),
            ("GLib", "pkg-config --modversion glib-2.0"),
            (
                "Asio (Boost)",
                "sed -nE 's/#define BOOST_LIB_VERSION \"(.*)\"/\\1/p' /usr/include/boost/version.hpp | tr _ ."
            ),
            ("SwiftNIO", version(of: "swift-nio", in: "NIO")),
            ("AsyncHTTPClient", version(of: "async-http-client", in: "AsyncHTTPClient")),
            ("Commit", "git rev-parse --short HEAD && git diff --quiet HEAD -- .. || echo '(changed since)'"),
            ("Date", "date -u +%Y-%m-%d"),
        ]
    }

    private func version(of package: String, in peer: String) -> String {
        """
        awk '/\(package)"/ { found = 1 } found && /"version"/ { gsub(/[",]/, ""); print $3; exit }' \
        Peers/\(peer)/Package.resolved
        """
    }

    var table: Table {
        var table = Table(["", "the machine"])
        for (name, command) in rows {
            let folder = ["--chdir", package.path, "bash", "-c"]
            guard let lines = try? output(of: folder + [command]).split(whereSeparator: \.isNewline) else {
                continue
            }
            if !lines.isEmpty { table.append([name, lines.joined(separator: " ")]) }
        }
        return table
    }
}
