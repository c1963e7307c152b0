import Foundation
import Reactor

extension PortFrame {
    /// What an array of Cocoa's carries; nil if there is something in it that cannot be sent.
    static func components(_ array: NSMutableArray?) -> [Component]? {
        var components: [Component] = []
        for object in array ?? [] {
            switch object {
            case let data as Data: components.append(.data(Array(data)))
            case let data as NSData: components.append(.data(Array(data as Data)))
            case let port as SocketPort: components.append(.port(port.signature))
            default: return nil
            }
        }
        return components
    }
}

extension PortFrame.Component {
    /// What a delegate gets.
    var object: AnyObject {
        switch self {
        case .data(let bytes): NSData(data: Data(bytes))
        case .port(let signature): SocketPort(remote: signature)
        }
    }
}
