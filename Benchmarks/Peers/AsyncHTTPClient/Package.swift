// swift-tools-version: 6.2
import PackageDescription

/// The program http-async-http-client. A separate package, because AsyncHTTPClient takes minutes to build.
let package = Package(
    name: "AsyncHTTPClientPeer",
    dependencies: [
        .package(name: "Benchmarks", path: "../.."),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.0"),
    ],
    targets: [
        .executableTarget(
            name: "http-async-http-client",
            dependencies: [
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "HTTPWorkload", package: "Benchmarks"),
            ],
            path: ".",
            sources: ["http.swift"]
        )
    ],
    swiftLanguageModes: [.v6]
)
