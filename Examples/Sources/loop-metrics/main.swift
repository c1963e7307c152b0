// Prints what the main loop does, through swift-metrics, until Ctrl-C: loop-metrics [SECONDS]
import CoreMetrics
import ExampleSupport
import Reactor

/// A backend that prints. A program would use one for Prometheus or statsd.
struct PrintingFactory: MetricsFactory {
    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler { Printer(label) }
    func makeRecorder(label: String, dimensions: [(String, String)], aggregate: Bool) -> any RecorderHandler {
        Printer(label)
    }
    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler { Printer(label) }
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
}

final class Printer: CounterHandler, RecorderHandler, TimerHandler {
    private let label: String

    init(_ label: String) { self.label = label }

    func increment(by amount: Int64) { print("+\(amount)") }
    func reset() {}
    func record(_ value: Int64) { print("\(value)") }
    func record(_ value: Double) { print("\(value)") }
    func recordNanoseconds(_ duration: Int64) { print("\(Double(duration) / 1e9)") }

    private func print(_ value: String) { MainProgram.printLine("\(label) \(value)") }
}

MetricsSystem.bootstrap(PrintingFactory())
LoopDiagnostics.measuresCallbacks = true
let seconds = MainProgram.argument("SECONDS", otherwise: 10.0) { text in
    Double(text).flatMap { (0.001...1e6).contains($0) ? $0 : nil }
}
let metrics = LoopMetrics(of: .main, label: "main", every: .seconds(seconds))
let work = Reactor.Timer.scheduled(every: .milliseconds(100), label: "work") { _ in }
RunLoop.main.run(in: .default)
