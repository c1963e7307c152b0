import Reactor

// Prints what happens to a folder and everything below it, and to a file that editors replace when they save.
let watcher = try FileWatcher { _, event in
    switch event {
    case .moved(let old, let new): print("\(old) is now \(new)")
    case .overflowed: print("too many changes at once: look at the files again")
    default: print(event)
    }
}
try watcher.watch(".", recursively: true)
try watcher.watch("/etc/hosts")

let interrupt = try SignalSource(.interrupt) { _, _ in watcher.cancel() }
for source in [watcher, interrupt] { try RunLoop.current.add(source, forMode: .default) }
while watcher.isValid { RunLoop.current.run(mode: .default, before: .distantFuture) }
