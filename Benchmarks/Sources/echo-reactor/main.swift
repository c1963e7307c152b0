// echo-reactor [PORT]  Two streams and a delegate per connection. Prints the port that it listens on.

import Glibc
import Measuring
import Reactor

allowDescriptors(20000)
let server = Server()
print(try server.start(at: UInt16(numbers(from: 1).0)))
fflush(nil)
RunLoop.current.run(in: .default)
