// ReactorFoundation on Apple's platforms, where Foundation itself is what ReactorFoundation provides on Linux: code that
// imports it builds there unchanged.
@_exported import Foundation

#if os(Linux)
#error("ReactorFoundation for Linux can only be built on Linux, because the manifest knows only the host.")
#endif
