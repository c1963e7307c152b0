extension ResidentThread {
    /// The thread on whose loop sockets are connected, timed and seen off, whichever loop their streams are on, or none;
    /// and which waits for streams whose events go to a queue. No client's code runs on it.
    static let streams = ResidentThread(name: "streams")
}
