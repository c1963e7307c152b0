/// Whoever keeps a descriptor source of its own on a loop. Everything is called on the loop's thread.
protocol DescriptorSourceOwner: AnyObject {
    /// Serves what the descriptor is ready for, or what the owner itself has raised.
    func serve(_ source: DescriptorSource, _ readiness: Readiness)
    /// Lets go of the source, which the loop has ended with itself.
    func loopEnded(_ loop: RunLoop)
}
