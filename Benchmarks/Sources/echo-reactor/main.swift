// echo-reactor [PORT]  Streams and a delegate for each connection. Prints the port that it listens at.

import Glibc
import Measuring
import Reactor

allowDescriptors(20000)
let server = Server()
print(try server.start(at: UInt16(numbers(from: 1).0)))
fflush(nil)
RunLoop.current.run(in: .default)
