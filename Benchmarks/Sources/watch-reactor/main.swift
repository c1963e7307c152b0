// watch-reactor N tree    Watches a tree of N folders, moves it away and back, and removes it in another thread, while a
//                         timer fires every millisecond: the processor time of each on the loop's thread, and the longest
//                         between two firings, and the longest time: cpu-ns/watch cpu-ns/leave cpu-ns/join cpu-ns/remove
//                         busy-ms late-ms
// watch-reactor N wide    The same with all folders in one. Otherwise 100 are.
// watch-reactor N count   The same in one thread and without the timer, to be counted.

import Glibc
import Measuring
import Reactor
import SystemPackage

let (count, _, _) = numbers(from: 1)
let parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
var template = Array("\(parent)/watch-XXXXXX".utf8CString)
guard mkdtemp(&template) != nil else { fatalError("mkdtemp: \(Errno(rawValue: errno))") }
let base = String(decoding: template.dropLast().map(UInt8.init(bitPattern:)), as: UTF8.self)
let phases = try Phases(FolderTree(base, count, isWide: CommandLine.arguments.last == "wide"))
phases.run(isCounted: CommandLine.arguments.last == "count")
