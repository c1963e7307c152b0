// The vocabulary of this library's interface: whoever imports Reactor can name it, without depending on swift-system.
@_exported public import struct SystemPackage.Errno
@_exported public import struct SystemPackage.FileDescriptor
@_exported public import struct SystemPackage.FilePath
@_exported public import struct SystemPackage.FilePermissions
