import Reactor

// Appends a line to a log each second; every third one reports an error.
let log = OutputStream(path: "ticks.log", append: true)
log.open()
var count = 0
Timer.scheduled(every: .seconds(1)) { _ in
    count += 1
    let line = "\(count) \(count.isMultiple(of: 3) ? "error" : "ok")\n"
    if log.write(line) < line.utf8.count { fatalError("\(log.streamError!)") }
    print(line, terminator: "")
}
RunLoop.main.run(in: .default)
