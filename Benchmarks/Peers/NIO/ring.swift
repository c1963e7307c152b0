// SwiftNIO's pipe channels. SwiftNIO has no events for plain descriptors.

import Glibc
import NIOCore
import NIOPosix
import Workloads

final class Reader: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    let index: Int

    init(_ index: Int) { self.index = index }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        ring_read(index, unwrapInboundIn(data).readableBytes)
    }
}

@main
enum Peer {
    static let loop = MultiThreadedEventLoopGroup(numberOfThreads: 1).next()

    static func watch(_ index: Int, _ descriptor: CInt) {
        let channel = NIOPipeBootstrap(group: loop)
            .channelOption(.recvAllocator, value: FixedSizeRecvByteBufferAllocator(capacity: 64))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Reader(index))
                }
            }
            .takingOwnershipOfDescriptor(input: descriptor)
        channel.whenFailure { fatalError("\($0)") }
    }

    static func main() { run() }

    /// Separate, because closures in `main` are isolated to the main actor.
    static func run() {
        var peer = ring_peer(
            prepare: { _ in },
            watch: { Peer.watch($0, $1) },
            run: { while true { sleep(1000) } }
        )
        exit(run_ring(&peer, CommandLine.argc, CommandLine.unsafeArgv))
    }
}
