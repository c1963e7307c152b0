#if DEBUG
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import SystemPackage
import Testing

@Suite(.runLoop) struct DescriptorOwnerTests {
    @Test func `a descriptor that two objects are to close traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let pipe = try FileDescriptor.pipe()
            let first = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            let second = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            withExtendedLifetime((first, second)) {}
        }
        #expect(result.message.contains("has two owners"))
    }

    @Test func `a number that is reused because other code has closed it traps`() async {
        let result = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) {
            let pipe = try FileDescriptor.pipe()
            let input = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            try pipe.readEnd.close()
            let other = InputStream(descriptor: try FileDescriptor.pipe().readEnd, closeWhenDone: true)
            withExtendedLifetime((input, other)) {}
        }
        #expect(result.message.contains("has two owners"))
    }

    @Test func `a descriptor may be given to another object once its owner has closed it or given it up`()
        async
    {
        await #expect(processExitsWith: .success) {
            let (socket, pipe) = (FileDescriptor(rawValue: try socketPair().0), try FileDescriptor.pipe())
            let former = Connection(descriptor: socket).streams
            guard former.input.setProperty(false, forKey: .shouldCloseNativeSocketKey) else { exit(1) }
            let streams = [socket, pipe.readEnd].map { InputStream(descriptor: $0, closeWhenDone: true) }
            streams[1].open()
            streams[1].close()
            guard dup2(0, pipe.readEnd.rawValue) >= 0 else { exit(2) }
            let next = InputStream(descriptor: pipe.readEnd, closeWhenDone: true)
            withExtendedLifetime((former, streams, next)) {}
            exit(0)
        }
    }
}
#endif
