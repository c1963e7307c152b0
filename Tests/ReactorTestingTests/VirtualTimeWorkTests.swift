import Dispatch
import Glibc
import Reactor
import ReactorTestSupport
import ReactorTesting
import Testing

/// Work on threads of the library, which callers with virtual time have given it.
@Suite(.runLoop) struct VirtualTimeWorkTests {
    @Test func `jobs after the end of a loop run on one thread, whatever time their callers have`() throws {
        try withVirtualTime { time in
            time.skip(.seconds(3600))
            let (thread, now) = (try RunLoopThread(name: "ended"), Deadline.now)
            thread.stop()
            let (inside, outside) = (Answer<pthread_t>(), Answer<pthread_t>())
            Task(executorPreference: thread.executor) {
                #expect(Deadline.now == now)
                inside.give(pthread_self())
            }
            let worker = inside.wait()
            DispatchQueue.global().async {
                Task(executorPreference: thread.executor) {
                    #expect(Deadline.now < now)
                    outside.give(pthread_self())
                }
            }
            #expect(outside.wait() == worker)
        }
    }
}
