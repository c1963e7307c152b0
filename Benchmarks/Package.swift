// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// A workload on this library, named WORKLOAD-reactor.
func ours(_ workload: String) -> Target {
    .executableTarget(
        name: "\(workload)-reactor",
        dependencies: [
            "Measuring",
            .product(name: "Reactor", package: "swift-reactor"),
            .product(name: "SystemPackage", package: "swift-system"),
        ],
        swiftSettings: settings
    )
}

let package = Package(
    name: "Benchmarks",
    dependencies: [
        .package(name: "swift-reactor", path: ".."),
        .package(url: "https://github.com/apple/swift-system", from: "1.6.0"),
    ],
    targets: [
        .target(name: "Measuring", swiftSettings: settings),
        .executableTarget(name: "tabulate", dependencies: ["Measuring"], swiftSettings: settings),
        ours("timers"),
        ours("ring"),
        ours("cross"),
        ours("modes"),
        ours("lines"),
        ours("echo"),
        ours("still"),
        .executableTarget(name: "lines-readline", dependencies: ["Measuring"], swiftSettings: settings),
        // The smallest program: with nothing but the library, or its start-up would not be the library's.
        .executableTarget(
            name: "idle-reactor",
            dependencies: [.product(name: "Reactor", package: "swift-reactor")],
            swiftSettings: settings
        ),
    ],
    swiftLanguageModes: [.v6]
)
