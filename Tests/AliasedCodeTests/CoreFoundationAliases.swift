// swift-format-ignore-file: AllPublicDeclarationsHaveDocumentation, AlwaysUseLowerCamelCase

// The second file of aliases from the porting guide: for modules whose files import CoreFoundation, whose names these replace.
import ReactorFoundation

public typealias CFString = ReactorFoundation.CFString
public typealias CFBoolean = ReactorFoundation.CFBoolean
public typealias CFIndex = ReactorFoundation.CFIndex
public typealias CFAllocator = ReactorFoundation.CFAllocator
public typealias CFTypeRef = ReactorFoundation.CFTypeRef
public typealias CFNull = ReactorFoundation.CFNull
public typealias CFTimeInterval = ReactorFoundation.CFTimeInterval
public typealias CFAbsoluteTime = ReactorFoundation.CFAbsoluteTime
public typealias CFRunLoop = ReactorFoundation.CFRunLoop
public typealias CFRunLoopMode = ReactorFoundation.CFRunLoopMode
public typealias CFRunLoopRunResult = ReactorFoundation.CFRunLoopRunResult
public typealias CFReadStream = ReactorFoundation.CFReadStream
public typealias CFWriteStream = ReactorFoundation.CFWriteStream
public typealias CFStreamPropertyKey = ReactorFoundation.CFStreamPropertyKey
public typealias CFStreamStatus = ReactorFoundation.CFStreamStatus

public var kCFAllocatorDefault: CFAllocator? { ReactorFoundation.kCFAllocatorDefault }
public var kCFBooleanTrue: CFBoolean! { ReactorFoundation.kCFBooleanTrue }
public var kCFBooleanFalse: CFBoolean! { ReactorFoundation.kCFBooleanFalse }
public var kCFNull: CFNull! { ReactorFoundation.kCFNull }
public var kCFRunLoopDefaultMode: CFString { ReactorFoundation.kCFRunLoopDefaultMode }
public var kCFRunLoopCommonModes: CFString { ReactorFoundation.kCFRunLoopCommonModes }
public var kCFStreamPropertySSLSettings: CFString { ReactorFoundation.kCFStreamPropertySSLSettings }
public var kCFStreamSSLLevel: CFString { ReactorFoundation.kCFStreamSSLLevel }
public var kCFStreamPropertySocketSecurityLevel: CFString {
    ReactorFoundation.kCFStreamPropertySocketSecurityLevel
}
public var kCFStreamSocketSecurityLevelNone: CFString { ReactorFoundation.kCFStreamSocketSecurityLevelNone }
public var kCFStreamSocketSecurityLevelTLSv1: CFString { ReactorFoundation.kCFStreamSocketSecurityLevelTLSv1 }
public var kCFStreamSocketSecurityLevelNegotiatedSSL: CFString {
    ReactorFoundation.kCFStreamSocketSecurityLevelNegotiatedSSL
}
public var kCFStreamPropertySOCKSProxy: CFString { ReactorFoundation.kCFStreamPropertySOCKSProxy }
public var kCFStreamPropertySOCKSProxyHost: CFString { ReactorFoundation.kCFStreamPropertySOCKSProxyHost }
public var kCFStreamPropertySOCKSProxyPort: CFString { ReactorFoundation.kCFStreamPropertySOCKSProxyPort }
public var kCFStreamNetworkServiceType: CFString { ReactorFoundation.kCFStreamNetworkServiceType }
public var kCFStreamNetworkServiceTypeVoIP: CFString { ReactorFoundation.kCFStreamNetworkServiceTypeVoIP }
public var kCFStreamPropertyShouldCloseNativeSocket: CFString {
    ReactorFoundation.kCFStreamPropertyShouldCloseNativeSocket
}
public var kCFStreamPropertySocketNativeHandle: CFString {
    ReactorFoundation.kCFStreamPropertySocketNativeHandle
}
public var kCFStreamPropertySocketRemoteHostName: CFString {
    ReactorFoundation.kCFStreamPropertySocketRemoteHostName
}
public var kCFStreamPropertySocketRemotePortNumber: CFString {
    ReactorFoundation.kCFStreamPropertySocketRemotePortNumber
}
public var kCFStreamSocketSecurityLevelSSLv2: CFString { ReactorFoundation.kCFStreamSocketSecurityLevelSSLv2 }
public var kCFStreamSocketSecurityLevelSSLv3: CFString { ReactorFoundation.kCFStreamSocketSecurityLevelSSLv3 }
public var kCFStreamPropertySSLPeerTrust: CFString { ReactorFoundation.kCFStreamPropertySSLPeerTrust }
public var kCFStreamPropertySSLPeerCertificates: CFString {
    ReactorFoundation.kCFStreamPropertySSLPeerCertificates
}
public var kCFStreamSSLPeerName: CFString { ReactorFoundation.kCFStreamSSLPeerName }
public var kCFStreamSSLValidatesCertificateChain: CFString {
    ReactorFoundation.kCFStreamSSLValidatesCertificateChain
}
public var kCFStreamSSLCertificates: CFString { ReactorFoundation.kCFStreamSSLCertificates }
public var kCFStreamSSLIsServer: CFString { ReactorFoundation.kCFStreamSSLIsServer }
public var kCFStreamPropertySOCKSVersion: CFString { ReactorFoundation.kCFStreamPropertySOCKSVersion }
public var kCFStreamPropertySOCKSUser: CFString { ReactorFoundation.kCFStreamPropertySOCKSUser }
public var kCFStreamPropertySOCKSPassword: CFString { ReactorFoundation.kCFStreamPropertySOCKSPassword }
public var kCFStreamSocketSOCKSVersion4: CFString { ReactorFoundation.kCFStreamSocketSOCKSVersion4 }
public var kCFStreamSocketSOCKSVersion5: CFString { ReactorFoundation.kCFStreamSocketSOCKSVersion5 }
public var kCFStreamNetworkServiceTypeVideo: CFString { ReactorFoundation.kCFStreamNetworkServiceTypeVideo }
public var kCFStreamNetworkServiceTypeBackground: CFString {
    ReactorFoundation.kCFStreamNetworkServiceTypeBackground
}
public var kCFStreamNetworkServiceTypeVoice: CFString { ReactorFoundation.kCFStreamNetworkServiceTypeVoice }
public var kCFStreamNetworkServiceTypeCallSignaling: CFString {
    ReactorFoundation.kCFStreamNetworkServiceTypeCallSignaling
}

public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { ReactorFoundation.CFAbsoluteTimeGetCurrent() }
public func CFRunLoopGetCurrent() -> CFRunLoop! { ReactorFoundation.CFRunLoopGetCurrent() }
public func CFRunLoopGetMain() -> CFRunLoop! { ReactorFoundation.CFRunLoopGetMain() }
public func CFRunLoopRun() { ReactorFoundation.CFRunLoopRun() }
@discardableResult
public func CFRunLoopRunInMode(
    _ mode: CFRunLoopMode!, _ seconds: CFTimeInterval, _ returnAfterSourceHandled: Bool
) -> CFRunLoopRunResult { ReactorFoundation.CFRunLoopRunInMode(mode, seconds, returnAfterSourceHandled) }
@discardableResult
public func CFRunLoopRunInMode(_ mode: CFString!, _ seconds: CFTimeInterval, _ returnAfterSourceHandled: Bool)
    -> CFRunLoopRunResult
{ ReactorFoundation.CFRunLoopRunInMode(mode, seconds, returnAfterSourceHandled) }
public func CFRunLoopStop(_ runLoop: CFRunLoop!) { ReactorFoundation.CFRunLoopStop(runLoop) }
public func CFRunLoopWakeUp(_ runLoop: CFRunLoop!) { ReactorFoundation.CFRunLoopWakeUp(runLoop) }
public func CFRunLoopIsWaiting(_ runLoop: CFRunLoop!) -> Bool {
    ReactorFoundation.CFRunLoopIsWaiting(runLoop)
}
public func CFRunLoopCopyCurrentMode(_ runLoop: CFRunLoop!) -> CFRunLoopMode! {
    ReactorFoundation.CFRunLoopCopyCurrentMode(runLoop)
}
public func CFRunLoopPerformBlock(
    _ runLoop: CFRunLoop!, _ mode: Any!, _ block: @escaping @Sendable () -> Void
) { ReactorFoundation.CFRunLoopPerformBlock(runLoop, mode, block) }
public func CFStreamCreatePairWithSocketToHost(
    _ allocator: CFAllocator?, _ host: CFString, _ port: UInt32,
    _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?
) { ReactorFoundation.CFStreamCreatePairWithSocketToHost(allocator, host, port, readStream, writeStream) }
public func CFStreamCreatePairWithSocket(
    _ allocator: CFAllocator?, _ socket: CInt, _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?
) { ReactorFoundation.CFStreamCreatePairWithSocket(allocator, socket, readStream, writeStream) }
public func CFStreamCreateBoundPair(
    _ allocator: CFAllocator?, _ readStream: UnsafeMutablePointer<Unmanaged<CFReadStream>?>?,
    _ writeStream: UnsafeMutablePointer<Unmanaged<CFWriteStream>?>?, _ transferBufferSize: Int
) { ReactorFoundation.CFStreamCreateBoundPair(allocator, readStream, writeStream, transferBufferSize) }
@discardableResult
public func CFReadStreamOpen(_ stream: CFReadStream!) -> Bool { ReactorFoundation.CFReadStreamOpen(stream) }
public func CFReadStreamClose(_ stream: CFReadStream!) { ReactorFoundation.CFReadStreamClose(stream) }
public func CFReadStreamGetStatus(_ stream: CFReadStream!) -> CFStreamStatus {
    ReactorFoundation.CFReadStreamGetStatus(stream)
}
public func CFReadStreamCopyError(_ stream: CFReadStream!) -> (any Error)! {
    ReactorFoundation.CFReadStreamCopyError(stream)
}
public func CFReadStreamHasBytesAvailable(_ stream: CFReadStream!) -> Bool {
    ReactorFoundation.CFReadStreamHasBytesAvailable(stream)
}
public func CFReadStreamRead(
    _ stream: CFReadStream!, _ buffer: UnsafeMutablePointer<UInt8>!, _ bufferLength: Int
) -> Int { ReactorFoundation.CFReadStreamRead(stream, buffer, bufferLength) }
public func CFReadStreamCopyProperty(_ stream: CFReadStream!, _ propertyName: CFStreamPropertyKey!) -> Any! {
    ReactorFoundation.CFReadStreamCopyProperty(stream, propertyName)
}
@discardableResult
public func CFReadStreamSetProperty(
    _ stream: CFReadStream!, _ propertyName: CFStreamPropertyKey!, _ propertyValue: Any!
) -> Bool { ReactorFoundation.CFReadStreamSetProperty(stream, propertyName, propertyValue) }
public func CFReadStreamSetDispatchQueue(_ stream: CFReadStream!, _ queue: DispatchQueue!) {
    ReactorFoundation.CFReadStreamSetDispatchQueue(stream, queue)
}
@discardableResult
public func CFWriteStreamOpen(_ stream: CFWriteStream!) -> Bool {
    ReactorFoundation.CFWriteStreamOpen(stream)
}
public func CFWriteStreamClose(_ stream: CFWriteStream!) { ReactorFoundation.CFWriteStreamClose(stream) }
public func CFWriteStreamGetStatus(_ stream: CFWriteStream!) -> CFStreamStatus {
    ReactorFoundation.CFWriteStreamGetStatus(stream)
}
public func CFWriteStreamCopyError(_ stream: CFWriteStream!) -> (any Error)! {
    ReactorFoundation.CFWriteStreamCopyError(stream)
}
public func CFWriteStreamCanAcceptBytes(_ stream: CFWriteStream!) -> Bool {
    ReactorFoundation.CFWriteStreamCanAcceptBytes(stream)
}
@discardableResult
public func CFWriteStreamWrite(_ stream: CFWriteStream!, _ buffer: UnsafePointer<UInt8>!, _ bufferLength: Int)
    -> Int
{ ReactorFoundation.CFWriteStreamWrite(stream, buffer, bufferLength) }
public func CFWriteStreamCopyProperty(_ stream: CFWriteStream!, _ propertyName: CFStreamPropertyKey!) -> Any!
{ ReactorFoundation.CFWriteStreamCopyProperty(stream, propertyName) }
@discardableResult
public func CFWriteStreamSetProperty(
    _ stream: CFWriteStream!, _ propertyName: CFStreamPropertyKey!, _ propertyValue: Any!
) -> Bool { ReactorFoundation.CFWriteStreamSetProperty(stream, propertyName, propertyValue) }
public func CFWriteStreamSetDispatchQueue(_ stream: CFWriteStream!, _ queue: DispatchQueue!) {
    ReactorFoundation.CFWriteStreamSetDispatchQueue(stream, queue)
}
