// swift-tools-version: 6.2
import PackageDescription

// A separate package, so that packages that depend on the library do not fetch the examples' dependencies.

/// The tests call C functions directly, so they do not use strict memory safety.
let testSettings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]
let settings = testSettings + [.strictMemorySafety()]

let tls = Target.Dependency.product(name: "ReactorTLS", package: "swift-reactor")
let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")

func example(_ name: String, _ dependencies: Target.Dependency...) -> Target {
    .executableTarget(
        name: name,
        dependencies: [
            .product(name: "Reactor", package: "swift-reactor"),
            .product(name: "ArgumentParser", package: "swift-argument-parser"),
        ] + dependencies,
        swiftSettings: settings
    )
}

/// A program of one file, without options.
func program(_ name: String, _ dependencies: Target.Dependency...) -> Target {
    .executableTarget(
        name: name,
        dependencies: [.product(name: "Reactor", package: "swift-reactor"), "ExampleSupport", system]
            + dependencies,
        swiftSettings: settings
    )
}

let package = Package(
    name: "Examples",
    products: [
        // For programs in other languages.
        .library(name: "HostedLines", type: .dynamic, targets: ["HostedLines"])
    ],
    dependencies: [
        .package(name: "swift-reactor", path: ".."),
        .package(url: "https://github.com/apple/swift-system", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.5.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.5.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.6.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.5.0"),
    ],
    targets: [
        .systemLibrary(name: "CMalloc"),
        .systemLibrary(name: "CCrypto", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        // Shared by the programs: an argument and lines, signals, the process's limits and descriptors, JSON, and the
        // library's mutex.
        .target(
            name: "ExampleSupport",
            dependencies: [.product(name: "Reactor", package: "swift-reactor"), system],
            swiftSettings: settings
        ),
        // Shared by the servers: the options of TLS.
        .target(
            name: "TLSOptions",
            dependencies: [
                .product(name: "ReactorTLS", package: "swift-reactor"), system,
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: settings
        ),
        example("line-reader", "CMalloc", "ExampleSupport", system),
        example("chat", "ExampleSupport", "TLSOptions", system),
        example("echo-server", "ExampleSupport", "TLSOptions", system),
        example("tls-client", "ExampleSupport", tls, system),
        example("timers", "ExampleSupport"),
        example("scroller", "ExampleSupport", system),
        example("mcp-host", "ExampleSupport", system),
        example(
            "importer", "ExampleSupport", system, .product(name: "GRDB", package: "GRDB.swift"),
            .product(name: "ReactorFoundation", package: "swift-reactor")),
        example(
            "downloader", "CCrypto", "ExampleSupport", system,
            .product(name: "ReactorFoundation", package: "swift-reactor"),
            .product(name: "ReactorHTTP", package: "swift-reactor"),
            .product(name: "ReactorHTTPFoundation", package: "swift-reactor")),
        program("echo-tasks"),
        program("chat-tasks"),
        program("line-actor"),
        program("loop-metrics", .product(name: "CoreMetrics", package: "swift-metrics")),
        program(
            "echo-service", .product(name: "Logging", package: "swift-log"),
            .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            .product(name: "UnixSignals", package: "swift-service-lifecycle")),
        program("glib-lines", .product(name: "ReactorGLib", package: "swift-reactor")),
        .target(
            name: "HostedLines",
            dependencies: [.product(name: "Reactor", package: "swift-reactor"), system],
            swiftSettings: settings
        ),
        // In C; `asyncio-host.py` does the same in Python.
        .executableTarget(name: "poll-host", dependencies: ["HostedLines"]),
        // Symbolic links to the library's test support.
        .systemLibrary(name: "CReactorTestSupport", path: "Tests/CSupport"),
        .target(
            name: "ExampleTestSupport",
            dependencies: [
                "CReactorTestSupport", .product(name: "Reactor", package: "swift-reactor"), system,
            ],
            path: "Tests/Support",
            swiftSettings: testSettings
        ),
        // Runs the programs. `swift build --build-tests` builds them too.
        .testTarget(
            name: "ExampleTests",
            dependencies: [
                "ExampleTestSupport", .product(name: "Reactor", package: "swift-reactor"),
                .product(name: "ReactorTesting", package: "swift-reactor"), system,
                "downloader", "importer", "scroller", .product(name: "GRDB", package: "GRDB.swift"),
            ],
            swiftSettings: testSettings
        ),
    ],
    swiftLanguageModes: [.v6]
)
