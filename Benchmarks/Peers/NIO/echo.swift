// echo-nio [PORT]  A channel for each connection. Prints the port that it listens at.

import NIOCore
import NIOPosix
import Workloads

/// Writes back what it reads, and reads no more while that is not written.
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

    /// Not in `main`, whose closures would be the main actor's.
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
