// hostile-reactor WORKLOAD [CERTIFICATE KEY]  A workload of Hostile/README.md. Prints `right`, its result and how many
//                                             descriptors are open, or `reported:` and the error.

import Glibc
import Measuring
import Outcome
import Reactor

let name = CommandLine.arguments.dropFirst().first ?? ""
if name == "--list" || name == "--version" {
    print(
        name == "--list"
            ? "timer timers ring storm posts nested echo tls child udp tail connect" : "Reactor")
    exit(0)
}
mark(begins: true)
switch name {
case "timer": Timers.one()
case "timers": Timers.periodic()
case "ring": Ring().start()
case "storm": attempt { try Storm().start() }
case "posts": attempt { try post() }
case "nested": Timers.nested()
case "echo": run { try await echo(security: nil, nil) }
case "tls": run { try await secureEcho() }
case "child": run(waitForChild)
case "udp": run(exchangeDatagrams)
case "tail": run(followFile)
case "connect": run(connect)
default: fail("no workload \(name)")
}
RunLoop.main.run(in: .default)
fail("the loop has nothing to wait for")
