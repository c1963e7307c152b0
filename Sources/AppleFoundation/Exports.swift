// ReactorFoundation on Apple's platforms, where Foundation itself is what ReactorFoundation provides on Linux: code that
// imports it builds there unchanged.
@_exported import Foundation
