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

/// The workloads of a peer in Swift, named WORKLOAD-PEER: a file each.
func theirs(_ peer: String, _ workloads: [String]) -> [Target] {
    workloads.map { workload in
        .executableTarget(
            name: "\(workload)-\(peer)",
            dependencies: ["Workloads"],
            path: "Peers/\(peer)",
            exclude: workloads.filter { $0 != workload }.map { "\($0).swift" },
            sources: ["\(workload).swift"],
            swiftSettings: settings
        )
    }
}

let package = Package(
    name: "Benchmarks",
    products: [.library(name: "Workloads", targets: ["Workloads"])],
    dependencies: [
        .package(name: "swift-reactor", path: ".."),
        .package(url: "https://github.com/apple/swift-system", from: "1.6.0"),
    ],
    targets: [
        .target(name: "Measuring", swiftSettings: settings),
        .executableTarget(name: "compare", dependencies: ["Measuring"], swiftSettings: settings),
        ours("timers"),
        ours("ring"),
        ours("cross"),
        ours("modes"),
        ours("lines"),
        ours("echo"),
        ours("still"),
        .target(name: "Workloads", path: "Peers/Workloads", publicHeadersPath: "."),
        .executableTarget(name: "lines-readline", dependencies: ["Measuring"], swiftSettings: settings),
        // The smallest program: with nothing but the library, or its start-up would not be the library's.
        .executableTarget(
            name: "idle-reactor",
            dependencies: [.product(name: "Reactor", package: "swift-reactor")],
            swiftSettings: settings
        ),
    ] + theirs("dispatch", ["timers", "ring", "cross", "echo", "idle", "lines"])
        + theirs("foundation", ["timers", "cross", "idle", "lines", "modes"]),
    swiftLanguageModes: [.v6]
)
