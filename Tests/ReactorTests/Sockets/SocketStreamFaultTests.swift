import Glibc
import Reactor
import ReactorFoundation
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

/// What ends an open connection of itself: its peer, the time, or a requirement.
@Suite(.runLoop) struct SocketStreamFaultTests {
    enum Fault: CaseIterable {
        case reset, lostBytes, idleTimeout, idleTimeoutSetEarly, writeTimeout, securityLevel

        /// A Unix-domain connection cannot be reset without a byte that is lost.
        func isPossible(_ origin: SocketOrigin) -> Bool {
            self != .reset || [.host, .ipv4, .ipv6].contains(origin)
        }

        /// Whether the output is full when it comes, so that this half alone would find it.
        var fillsOutput: Bool { self == .lostBytes || self == .writeTimeout }

        func matches(_ error: (any Error)?) -> Bool {
            switch self {
            case .reset: (error as? IOError)?.errno == .connectionReset
            case .lostBytes: [Errno.connectionReset, .brokenPipe].contains((error as? IOError)?.errno)
            case .idleTimeout, .idleTimeoutSetEarly, .writeTimeout: (error as? IOError)?.errno == .timedOut
            case .securityLevel: (error as? IOError)?.errno == .protocolNotSupported
            }
        }
    }

    private let loop = RunLoop.current
    private let timeout = Duration.milliseconds(20)

    private func fillOutput(of fixture: SocketFixture) {
        while fixture.output.hasSpaceAvailable { _ = fixture.output.writeOnce(pattern(5000)) }
    }

    @Test(arguments: SocketOrigin.allCases, Fault.allCases)
    func `a fault is delivered once to each half that was opened`(origin: SocketOrigin, fault: Fault) throws {
        guard fault.isPossible(origin) else { return }
        for opensInput in fault.fillsOutput ? [true, false] : [true] {
            try withVirtualTime { time in
                try deliver(fault, to: try SocketFixture(origin, isNarrow: true), opensInput, time)
            }
        }
    }

    private func deliver(
        _ fault: Fault, to fixture: SocketFixture, _ opensInput: Bool, _ time: VirtualTime
    ) throws {
        let (reader, writer) = (Recorder(), Recorder())
        reader.readsEverything(by: 4)
        if fault == .idleTimeoutSetEarly { fixture.connection.idleTimeout = timeout }
        if opensInput { fixture.input.start(reader) }
        fixture.output.start(writer)
        if fault != .idleTimeoutSetEarly { loop.serve { writer.events.count == 2 } }
        let peer = try fixture.peer
        if fault.fillsOutput { try fixture.narrow() }
        let begin = time.now
        switch fault {
        case .reset: peer.send(pattern(10))
        case .idleTimeout: fixture.connection.idleTimeout = timeout
        case .writeTimeout: fixture.connection.writeTimeout = timeout
        case .securityLevel:
            fixture.output.setProperty(StreamSocketSecurityLevel.ssLv3, forKey: .socketSecurityLevelKey)
        case .lostBytes, .idleTimeoutSetEarly: break
        }
        if fault.fillsOutput { fillOutput(of: fixture) }
        if fault == .reset || fault == .lostBytes { peer.reset() }
        let recorders = opensInput ? [reader, writer] : [writer]
        loop.serve { recorders.allSatisfy { $0.events.last == .errorOccurred } }
        if fault == .idleTimeout || fault == .writeTimeout { #expect(time.now - begin >= timeout) }
        loop.poll()
        for recorder in recorders { #expect(recorder.count(.errorOccurred) == 1) }
        #expect(fault != .reset || reader.bytes == pattern(10))
        #expect(reader.count(.endEncountered) == 0 && reader.events.isEmpty == !opensInput)
        #expect(fault.matches(fixture.output.streamError))
        #expect(opensInput ? fault.matches(fixture.input.streamError) : fixture.input.streamError == nil)
        #expect(fixture.output.writeOnce([1]) == -1 && loop.passesInAWhile() < 10)
        fixture.closeBoth()
        #expect(loop.run(in: .default) == .finished)
    }

    @Test(arguments: SocketOrigin.allCases, Fault.allCases)
    func `a fault ends a blocking call, and is also the other half's`(
        origin: SocketOrigin, fault: Fault
    ) throws {
        guard fault.isPossible(origin) else { return }
        let fixture = try SocketFixture(origin, isNarrow: true)
        try fixture.openBoth()
        let (peer, handed) = (try fixture.peer, Carrier(fixture.streams))
        if fault == .idleTimeout || fault == .idleTimeoutSetEarly { fixture.connection.idleTimeout = timeout }
        if fault == .writeTimeout { fixture.connection.writeTimeout = timeout }
        // A peer with unread bytes goes: a reset, in all families.
        if fault == .lostBytes { #expect(fixture.output.write([1]) == 1) }
        let cause = try JoinableThread(name: "cause") {
            guard [.reset, .lostBytes, .securityLevel].contains(fault) else { return }
            while handed.value[0].streamStatus != .reading { sched_yield() }
            if fault != .securityLevel { return peer.reset() }
            handed.value[1].setProperty(StreamSocketSecurityLevel.ssLv3, forKey: .socketSecurityLevelKey)
        }
        if fault == .writeTimeout {
            #expect(fixture.output.write(pattern(4_000_000)) < 4_000_000)
        } else {
            var byte: UInt8 = 0
            #expect(fixture.input.read(&byte, maxLength: 1) == -1)
        }
        cause.join()
        #expect(fixture.output.writeOnce([1]) == -1)
        waitUntil { fixture.streams.allSatisfy { $0.streamStatus == .error } }
        for stream in fixture.streams { #expect(fault.matches(stream.streamError)) }
    }

    @Test(arguments: SocketOrigin.allCases, [true, false])
    func `bytes before a fault of the output are read first`(origin: SocketOrigin, isScheduled: Bool) throws {
        for error in [Errno.timedOut, .brokenPipe] {
            if error == .brokenPipe, ![.path, .abstract, .descriptor].contains(origin) { continue }
            let fixture = try SocketFixture(origin, isNarrow: error == .timedOut)
            let (reader, writer) = (Recorder(), Recorder())
            try fixture.openBoth()
            if isScheduled { fixture.schedule(reader, writer) }
            try fixture.peer.send(pattern(10))
            if isScheduled { loop.serve { reader.events.last == .hasBytesAvailable } }
            waitUntil { fixture.input.hasBytesAvailable }
            if error == .timedOut {
                fixture.connection.writeTimeout = timeout
                while fixture.output.write(pattern(100_000)) > 0 {}
            } else {
                try fixture.peer.close()
            }
            if isScheduled, error == .timedOut { loop.serve { writer.events.last == .errorOccurred } }
            // A process that another test is starting has the peer's descriptor until it calls exec.
            waitUntil {
                error == .timedOut
                    ? fixture.output.streamStatus == .error : fixture.output.writeOnce([1]) == -1
            }
            #expect(fixture.output.streamErrno == error && fixture.input.streamStatus == .open)
            reader.readsEverything()
            #expect(fixture.input.read(upTo: 6) == pattern(6))
            #expect(fixture.input.read(upTo: 6) == [6, 7, 8, 9])
            if isScheduled {
                loop.serve { [reader, writer].allSatisfy { $0.events.last == .errorOccurred } }
                #expect(reader.count(.errorOccurred) == 1 && writer.count(.errorOccurred) == 1)
            } else {
                #expect(fixture.input.read(upTo: 6).isEmpty)
            }
            #expect(fixture.input.streamErrno == error)
            fixture.closeBoth()
            #expect(loop.run(in: .default) == .finished)
        }
    }

    @Test func `a descriptor that is not an open socket fails at the first byte`() throws {
        let pipe = try TestPipe()
        let cases = [
            (pipe.readEnd, Errno.notSocket), (FileDescriptor(rawValue: 1_000_000), .badFileDescriptor),
        ]
        for (descriptor, error) in cases {
            let pair = Connection(descriptor: descriptor, closeWhenDone: false).streams
            pair.input.open()
            pair.output.open()
            #expect(pair.output.writeOnce([1]) == -1 && pair.output.streamErrno == error)
            #expect(pair.input.read(upTo: 1).isEmpty && pair.input.streamErrno == error)
        }
    }
}
