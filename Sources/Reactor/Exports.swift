// Types of the public interface, re-exported so that clients need not depend on swift-system.
@_exported public import struct SystemPackage.Errno
@_exported public import struct SystemPackage.FileDescriptor
@_exported public import struct SystemPackage.FilePath
@_exported public import struct SystemPackage.FilePermissions
