import Synchronization
public import SystemPackage

extension RunLoop {
    /// Listens at `address`, and accepts a connection each time that one is awaited.
    ///
    /// ```swift
    /// let connections = try RunLoop.main.connections(at: .ipv6Any(port: 7), acceptErrors: { print($0) })
    /// try await connections.run { connection in
    ///     for try await chunk in connection.chunks() { try await connection.write(chunk) }
    /// }
    /// ```
    ///
    /// From any thread.
    ///
    /// - Parameters:
    ///   - address: As in ``Listener/init(_:options:security:handler:acceptErrors:)``.
    ///   - options: Options to set before listening.
    ///   - modes: Where the loop waits for connections: the common modes unless others are named.
    ///   - acceptErrors: Called with the reason when accepting backs off, at most once a second, in the task that accepts and
    ///     on its thread.
    /// - Returns: The connections.
    /// - Throws: As ``Listener/init(_:options:security:handler:acceptErrors:)``.
    public func connections(
        at address: SocketAddress, options: Listener.Options = Listener.Options(),
        inModes modes: [Mode] = [.common], acceptErrors: @escaping @Sendable (IOError) -> Void = { _ in }
    ) throws(IOError) -> Listener.Connections {
        Listener.Connections(try Acceptor(address, options), self, modes, acceptErrors)
    }

    /// Takes ownership of a socket that listens already, as
    /// ``Listener/init(descriptor:connectionOptions:security:handler:acceptErrors:)`` does, and accepts a connection each time
    /// that one is awaited.
    ///
    /// - Parameters:
    ///   - descriptor: The socket, which is closed even if this fails.
    ///   - options: The options of accepted connections, which are set for each.
    ///   - modes: Where the loop waits for connections: the common modes unless others are named.
    ///   - acceptErrors: As in ``connections(at:options:inModes:acceptErrors:)``.
    /// - Throws: As ``Listener/init(descriptor:connectionOptions:security:handler:acceptErrors:)``.
    public func connections(
        descriptor: FileDescriptor, connectionOptions options: Connection.Options = Connection.Options(),
        inModes modes: [Mode] = [.common], acceptErrors: @escaping @Sendable (IOError) -> Void = { _ in }
    ) throws(IOError) -> Listener.Connections {
        Listener.Connections(try Acceptor(descriptor, options), self, modes, acceptErrors)
    }
}

extension Listener {
    /// The connections of a listening socket, for `for await`: the asynchronous form of ``Listener``.
    ///
    /// A connection is accepted when a task asks for one, on the task's thread, and not before: the others wait in the kernel's
    /// backlog. So a cancelled task takes no connection with it, and breaking out of `for await` loses none. While the process
    /// has no descriptor left, or the kernel no memory, also for epoll_ctl(2), accepting backs off as a ``Listener`` does.
    ///
    /// One task accepts at a time; a second one traps. The iteration ends when ``close()`` is called, and with the loop's
    /// thread. It throws `CancellationError` when its task is cancelled, and another one may continue. The socket is closed
    /// when the last reference to this object is released.
    public final class Connections: AsyncSequence, Sendable {
        /// An accepted connection.
        public typealias Element = Connection
        private let acceptor: Acceptor
        let arrivals: EventSubscription
        private let acceptErrors: @Sendable (IOError) -> Void
        /// How many connections ``run(security:limit:limitPerPeer:connectionErrors:_:)`` serves.
        let active = Atomic(0)

        fileprivate init(
            _ acceptor: Acceptor, _ loop: RunLoop, _ modes: [RunLoop.Mode],
            _ acceptErrors: @escaping @Sendable (IOError) -> Void
        ) {
            (self.acceptor, self.acceptErrors) = (acceptor, acceptErrors)
            arrivals = EventSubscription(
                on: loop, inModes: modes, watching: FileDescriptor(rawValue: acceptor.number), for: .readable,
                endsOnFailure: false, ended: { acceptor.close() })
        }

        deinit { close() }

        /// Runs the tasks of connections on the loop.
        var executor: RunLoop.Executor { arrivals.state.parker.executor }

        /// The socket's address, as completed by the kernel: with the port that it has chosen.
        public var localAddress: SocketAddress { acceptor.localAddress }

        /// The listening socket, to set an option, or to pass it on, as to a new version of the program
        /// (``ChildProcess/Configuration/sockets``, ``removesFile``). It belongs to this object: nil once that has closed it.
        public var descriptor: FileDescriptor? { acceptor.descriptor }

        /// How many connections ``run(security:limit:limitPerPeer:connectionErrors:_:)`` serves now: those whose tasks have not
        /// ended. One that is still being closed is not counted, though it counts for the limit. Any thread.
        public var activeCount: Int { active.load(ordering: .relaxed) }

        /// Whether the file of a Unix-domain path is removed; as ``Listener/removesFile``. Any thread.
        public var removesFile: Bool {
            get { acceptor.removesFile }
            set { acceptor.removesFile = newValue }
        }

        /// Stops listening and ends the iteration. Any thread: the loop closes the socket in its next pass, and ends the
        /// iteration then. No connection is accepted after the call.
        ///
        /// The file of a Unix-domain path is removed at once, if ``removesFile`` says so. Clients in the backlog are
        /// disconnected when the socket is closed.
        public func close() {
            acceptor.refuse()
            arrivals.end()
        }

        /// Ends the iteration once the connections in the backlog have been accepted, and then stops listening.
        ///
        /// The task that accepts does both: without one, the socket continues to listen until a task accepts. No client that
        /// the kernel has accepted, and that may have sent a request, is disconnected. At most as many connections are accepted
        /// as the backlog can hold. Any thread.
        public func drain() {
            acceptor.drain()
            arrivals.state.parker.unparkLater()
        }

        /// Accepts one connection.
        ///
        /// - Parameter timeout: How long to wait for one; nil for no limit.
        /// - Throws: ``IOError`` with ``IOError/Reason/waitTimedOut``, or with `Errno.badFileDescriptor` once the socket is
        ///   closed or the loop's thread has ended. `CancellationError`.
        /// - Precondition: No other task accepts.
        nonisolated(nonsending) public func accept(timeout: Duration? = nil) async throws
            -> Connection
        {
            arrivals.state.claim()
            defer { arrivals.state.unclaim() }
            do throws(Errno) { return try await next(until: timeout.deadline(on: arrivals.loop)) } catch {
                throw failure(error)
            }
        }

        nonisolated(nonsending) fileprivate func next(until deadline: Deadline?) async throws(Errno)
            -> Connection
        {
            while true {
                switch try await attemptNext(until: deadline) {
                case .connection(let descriptor, let peer):
                    return acceptor.connection(descriptor, from: peer)
                case .fault(let fault):
                    if fault.isReported {
                        let error = IOError(.accept, "\(localAddress)", fault.error)
                        LoopDiagnostics.report(acceptError: "\(error)")
                        acceptErrors(error)
                    }
                    try await arrivals.pause(until: arrivals.loop.now + fault.delay, deadline: deadline)
                case .over: close()
                }
            }
        }

        /// A failure to watch the socket, such as a lack of memory, may pass as one to accept does.
        nonisolated(nonsending) private func attemptNext(until deadline: Deadline?) async throws(Errno)
            -> Acceptor.Attempt
        {
            do throws(Errno) { return try await arrivals.next(until: deadline, acceptor.next) } catch {
                if error == .canceled || error == .timedOut { throw error }
                // Not why the kernel did not watch it, perhaps just before: that is no error any more.
                if arrivals.state.isOver { throw .badFileDescriptor }
                return .fault(acceptor.backOff(because: error))
            }
        }

        fileprivate func failure(_ error: Errno) -> any Error {
            error == .canceled ? CancellationError() : IOError(.accept, "\(localAddress)", .endOfWait(error))
        }

        /// Begins an iteration.
        ///
        /// - Precondition: No other is in progress.
        public func makeAsyncIterator() -> Iterator {
            Iterator(connections: self, claim: EventClaim(arrivals))
        }

        /// Accepts one connection after the other.
        public struct Iterator: AsyncIteratorProtocol, Sendable {
            fileprivate let connections: Connections
            fileprivate let claim: EventClaim

            /// The next connection; nil once the socket is closed.
            nonisolated(nonsending) public func next() async throws -> Connection? {
                guard !claim.isReleased else { return nil }
                do throws(Errno) { return try await connections.next(until: nil) } catch {
                    claim.release()
                    if error == .badFileDescriptor { return nil }
                    throw connections.failure(error)
                }
            }

            /// The next connection; nil once the socket is closed.
            public func next(isolation actor: isolated (any Actor)?) async throws -> Connection? {
                try await next()
            }
        }
    }
}
