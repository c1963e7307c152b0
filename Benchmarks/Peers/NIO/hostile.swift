// hostile-nio WORKLOAD  A workload of Hostile/README.md on one event loop, whose result the main thread waits for.

import Glibc
import NIOCore
import NIOPosix
import Outcome

@main
enum Peer {
    private static let workloads: KeyValuePairs<String, @Sendable (any EventLoop) throws -> String> = [
        "timer": timer, "timers": timers, "ring": ring, "echo": echo, "storm": storm, "udp": udp,
        "posts": posts,
        "connect": connect,
    ]

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        let name = CommandLine.arguments.dropFirst().first ?? ""
        if name == "--list" { return print(workloads.map(\.key).joined(separator: " ")) }
        if name == "--version" { return print("SwiftNIO \(version())") }
        guard let workload = workloads.first(where: { $0.key == name })?.value else {
            fail("no workload \(name)")
        }
        mark(begins: true)
        // Of the group that is never shut down. The shutdown of another one uses Dispatch, which is a peer of its own.
        NIOSingletons.groupLoopCountSuggestion = 1
        do { right(try workload(MultiThreadedEventLoopGroup.singleton.next())) } catch { reported(error) }
    }

    /// SwiftNIO does not have its version: Package.resolved does.
    private static func version() -> String {
        let folder = #filePath.dropLast("hostile.swift".count)
        close(STDIN_FILENO)  // the file takes its place
        guard open(folder + "Package.resolved", O_RDONLY) == STDIN_FILENO else { return "" }
        var isFound = false
        while let line = readLine() {
            if line.contains(#""swift-nio""#) { isFound = true }
            if isFound, line.contains(#""version""#) { return String(line.split(separator: "\"").last!) }
        }
        return ""
    }
}

// MARK: - Timers

@Sendable private func timer(on loop: any EventLoop) throws -> String {
    let begin = NIODeadline.now()
    let first = loop.scheduleTask(in: .milliseconds(20)) {
        if .now() - begin < .milliseconds(20) { fail("early") }
    }
    let second = first.futureResult.flatMap {
        loop.scheduleTask(in: .milliseconds(20)) {
            if .now() - begin < .milliseconds(40) { fail("early") }
        }.futureResult
    }
    try second.wait()
    return "2"
}

@Sendable private func timers(on loop: any EventLoop) throws -> String {
    let begin = NIODeadline.now()
    let ends = [2, 3, 5].map { (milliseconds: Int64) in
        let count = NIOLoopBoundBox.makeBoxSendingValue(Int64(0), eventLoop: loop)
        let ended = loop.makePromise(of: Void.self)
        let interval = TimeAmount.milliseconds(milliseconds)
        loop.scheduleRepeatedTask(initialDelay: interval, delay: interval, notifying: ended) { task in
            count.value += 1
            if count.value > 20 { fail("fired after its end") }
            if .now() - begin < .milliseconds(count.value * milliseconds) { fail("early") }
            if count.value == 20 { task.cancel() }
        }
        return ended.futureResult.map { count.value }
    }
    return "\(try EventLoopFuture.whenAllSucceed(ends, on: loop).wait().reduce(0, +))"
}

@Sendable private func posts(on loop: any EventLoop) throws -> String {
    let next = NIOLoopBoundBox.makeBoxSendingValue(0, eventLoop: loop)
    for number in 0..<1000 {
        loop.execute {
            if number != next.value { fail("block \(number) in place of \(next.value)") }
            next.value += 1
        }
    }
    return "\(try loop.submit { next.value }.wait())"
}

// MARK: - Pipes

/// Five channels, each of which reads a pipe and writes the next one.
@Sendable private func ring(on loop: any EventLoop) throws -> String {
    let pipes = try (0..<5).map { _ in
        var ends: [CInt] = [0, 0]
        if pipe(&ends) != 0 { throw IOError(errnoCode: errno, reason: "pipe") }
        return (input: ends[0], output: ends[1])
    }
    let count = NIOLoopBoundBox.makeBoxSendingValue(UInt8(0), eventLoop: loop)
    let ended = loop.makePromise(of: Void.self)
    let channels = try pipes.indices.map { index in
        try NIOPipeBootstrap(group: loop)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Hop(index, count, ended))
                }
            }
            .takingOwnershipOfDescriptors(input: pipes[index].input, output: pipes[(index + 1) % 5].output)
            .wait()
    }
    channels[4].writeAndFlush(ByteBuffer(bytes: [0])).whenFailure { reported($0) }
    try ended.futureResult.wait()
    for channel in channels {
        channel.close(promise: nil)
        try channel.closeFuture.wait()
    }
    return "\(try loop.submit { count.value }.wait())"
}

/// Passes on the byte that it gets, and counts up.
private final class Hop: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let index: Int
    private let count: NIOLoopBoundBox<UInt8>
    private let ended: EventLoopPromise<Void>

    init(_ index: Int, _ count: NIOLoopBoundBox<UInt8>, _ ended: EventLoopPromise<Void>) {
        self.index = index
        self.count = count
        self.ended = ended
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        guard Array(bytes.readableBytesView) == [count.value], index == Int(count.value) % 5 else {
            fail("\(bytes) at \(index), not \(count.value)")
        }
        count.value += 1
        if count.value == 100 { return ended.succeed() }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: [count.value]))).whenFailure { reported($0) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if count.value < 100 { fail("an end of a pipe that is open") }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { reported(error) }
}

// MARK: - Connections

@Sendable private func echo(on loop: any EventLoop) throws -> String {
    let server = try listen(on: loop) { Echo() }
    let bytes = ByteBuffer(bytes: (0..<256 << 10).map { UInt8(truncatingIfNeeded: $0 ^ $0 >> 8) })
    let received = try exchange(bytes, with: address(of: server), on: loop).wait()
    if received != bytes { fail("\(received.readableBytes) bytes, or other ones") }
    try server.close().wait()
    return "\(received.readableBytes)"
}

@Sendable private func storm(on loop: any EventLoop) throws -> String {
    let server = try listen(on: loop) { Greeter() }
    let clients = (0..<50).map { _ in exchange(nil, with: address(of: server), on: loop) }
    let greetings = try EventLoopFuture.whenAllSucceed(clients, on: loop).wait()
    for greeting in greetings where greeting != ByteBuffer(string: "hello") { fail("\(greeting)") }
    try server.close().wait()
    return "\(greetings.count)"
}

@Sendable private func connect(on loop: any EventLoop) throws -> String {
    let server = try listen(on: loop) { Greeter() }
    let address = address(of: server)
    let greeting = try exchange(nil, with: address, on: loop).wait()
    if greeting != ByteBuffer(string: "hello") { fail("\(greeting)") }
    try server.close().wait()
    do {
        _ = try exchange(nil, with: address, on: loop).wait()
        fail("connected to a closed port")
    } catch let error as IOError where error.errnoCode == ECONNREFUSED { return "refused" }
}

/// A channel has no address if the system has not returned it.
private func address(of channel: any Channel) -> SocketAddress {
    guard let address = channel.localAddress else { reported("the channel has no address") }
    return address
}

/// A server on the loop, which backs off when it cannot accept.
private func listen(
    on loop: any EventLoop, _ makeHandler: @escaping @Sendable () -> any ChannelHandler
) throws -> any Channel {
    try ServerBootstrap(group: loop)
        .serverChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandlers([AcceptBackoffHandler(), AcceptErrors()])
            }
        }
        .childChannelOption(.allowRemoteHalfClosure, value: true)
        .childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandler(makeHandler())
            }
        }
        .bind(to: SocketAddress(ipAddress: "127.0.0.1", port: 0)).wait()
}

/// Sends the bytes and an end, and receives until the server's end.
private func exchange(
    _ bytes: ByteBuffer?, with address: SocketAddress, on loop: any EventLoop
) -> EventLoopFuture<ByteBuffer> {
    let received = loop.makePromise(of: ByteBuffer.self)
    ClientBootstrap(group: loop)
        .connectTimeout(.seconds(1))
        .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandlers([
                    IdleStateHandler(readTimeout: .seconds(1)), Exchange(bytes, received),
                ])
            }
        }
        .connect(to: address)
        .cascadeFailure(to: received)
    return received.futureResult
}

private struct Silence: Error {}

/// Sends bytes, if it has some, and an end. Collects what it receives until the channel has closed.
private final class Exchange: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let bytes: ByteBuffer?
    private let received: EventLoopPromise<ByteBuffer>
    private var collected = ByteBuffer()

    init(_ bytes: ByteBuffer?, _ received: EventLoopPromise<ByteBuffer>) {
        self.bytes = bytes
        self.received = received
    }

    func channelActive(context: ChannelHandlerContext) {
        guard let bytes else { return }
        // A failed write may close the channel before it returns.
        let (written, ended) = (
            context.eventLoop.makePromise(of: Void.self), context.eventLoop.makePromise(of: Void.self)
        )
        for promise in [written, ended] { promise.futureResult.cascadeFailure(to: received) }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: written)
        context.close(mode: .output, promise: ended)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var chunk = unwrapInboundIn(data)
        collected.writeBuffer(&chunk)
    }

    func channelInactive(context: ChannelHandlerContext) { received.succeed(collected) }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is IdleStateHandler.IdleStateEvent { errorCaught(context: context, error: Silence()) }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        received.fail(error)
        context.close(promise: nil)
    }
}

private final class AcceptErrors: ChannelInboundHandler {
    typealias InboundIn = any Channel

    func errorCaught(context: ChannelHandlerContext, error: any Error) { note(error) }
}

/// Echoes what it reads, does not read while too much is not written, and closes after the client's end.
private final class Echo: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.write(data).whenFailure { reported($0) }
    }

    func channelReadComplete(context: ChannelHandlerContext) { context.flush() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        do { try context.channel.syncOptions?.setOption(.autoRead, value: context.channel.isWritable) } catch
        { reported(error) }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard event as? ChannelEvent == .inputClosed else {
            return context.fireUserInboundEventTriggered(event)
        }
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(ByteBuffer())).flatMap { channel.close() }.whenFailure {
            reported($0)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { reported(error) }
}

/// Sends a greeting, and closes the channel.
private final class Greeter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    func channelActive(context: ChannelHandlerContext) {
        let channel = context.channel
        channel.writeAndFlush(ByteBuffer(string: "hello")).flatMap { channel.close() }.whenFailure {
            reported($0)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { reported(error) }
}

// MARK: - Datagrams

@Sendable private func udp(on loop: any EventLoop) throws -> String {
    let server = try DatagramBootstrap(group: loop)
        .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Mirror()) }
        }
        .bind(to: SocketAddress(ipAddress: "127.0.0.1", port: 0)).wait()
    let address = address(of: server)
    let ended = loop.makePromise(of: Void.self)
    let client = try DatagramBootstrap(group: loop)
        .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.addHandlers([
                    IdleStateHandler(readTimeout: .seconds(1)), Asker(address, ended),
                ])
            }
        }
        .connect(to: address).wait()
    try ended.futureResult.wait()
    try client.close().wait()
    try server.close().wait()
    return "20"
}

/// Sends each datagram back.
private final class Mirror: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.writeAndFlush(data).whenFailure { reported($0) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { reported(error) }
}

/// Sends a number, waits for it, and sends the next one.
private final class Asker: ChannelInboundHandler {
    typealias InboundIn = AddressedEnvelope<ByteBuffer>
    typealias OutboundOut = AddressedEnvelope<ByteBuffer>
    private let address: SocketAddress
    private let ended: EventLoopPromise<Void>
    private var number: UInt8 = 0

    init(_ address: SocketAddress, _ ended: EventLoopPromise<Void>) {
        self.address = address
        self.ended = ended
    }

    func channelActive(context: ChannelHandlerContext) { send(context) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data).data
        if bytes != ByteBuffer(bytes: [number]) { fail("\(bytes) in place of \(number)") }
        number += 1
        if number == 20 { ended.succeed() } else { send(context) }
    }

    private func send(_ context: ChannelHandlerContext) {
        let datagram = AddressedEnvelope(
            remoteAddress: address, data: ByteBuffer(bytes: [number]))
        context.writeAndFlush(wrapOutboundOut(datagram)).cascadeFailure(to: ended)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is IdleStateHandler.IdleStateEvent { ended.fail(Silence()) }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { ended.fail(error) }
}
