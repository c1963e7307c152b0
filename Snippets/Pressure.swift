import Reactor

// Empties a cache whenever tasks of the system have lost 100 ms within two seconds because memory is short.
var cache = Array(repeating: 1 as UInt8, count: 1 << 20)
let pressure = try PressureSource(
    at: "/proc/pressure/memory", stalledFor: .milliseconds(100), within: .seconds(2)
) { _, event in
    guard event == .stalled else { return print(event) }
    print("dropping \(cache.count) bytes")
    cache = []
}
try RunLoop.current.add(pressure, forMode: .common)
RunLoop.current.run(in: .default)
