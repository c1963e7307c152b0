// echo-nio [PORT]  A channel per connection. Prints the port that it listens on.

import NIOCore
import NIOPosix
import Workloads

/// Echoes what it reads, and does not read again until it has written everything.
final class Echo: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.write(data, promise: nil) }
    func channelReadComplete(context: ChannelHandlerContext) { context.flush() }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        try? context.channel.syncOptions?.setOption(.autoRead, value: context.channel.isWritable)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

@main
enum Peer {
    static func main() throws { try run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() throws {
        let server = try ServerBootstrap(group: MultiThreadedEventLoopGroup(numberOfThreads: 1))
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Echo())
                }
            }
            .withBoundSocket(echo_listen(CommandLine.argc, CommandLine.unsafeArgv)).wait()
        try server.closeFuture.wait()
    }
}
