// lines-readline FILE  The standard library's readLine(), which makes a String of each line: cpu-s/GB GB/s

import Glibc
import Measuring

guard dup2(open(CommandLine.arguments[1], O_RDONLY), STDIN_FILENO) == STDIN_FILENO else { exit(1) }
let begin = now()
var bytes = 0
while let line = readLine(strippingNewline: false) { bytes += line.utf8.count }
print(Double(processorTime()) / Double(bytes), Double(bytes) / Double(now() - begin))
