@_exported import ReactorTestSupport
