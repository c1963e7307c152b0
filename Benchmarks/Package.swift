// swift-tools-version: 6.2
import PackageDescription

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// The program WORKLOAD-reactor, which does a workload with this library.
func reactor(_ workload: String, _ dependencies: [Target.Dependency] = []) -> Target {
    .executableTarget(
        name: "\(workload)-reactor",
        dependencies: [
            "Measuring",
            .product(name: "Reactor", package: "swift-reactor"),
            .product(name: "SystemPackage", package: "swift-system"),
        ] + dependencies,
        swiftSettings: settings
    )
}

/// The drivers of workloads that are not in C.
let drivers: [String: Target.Dependency] = [
    "tasks": "TaskWorkloads", "http": "HTTPWorkload", "hostile": "Outcome",
]

/// The programs WORKLOAD-PEER of a peer in Swift, each from one file.
func programs(of peer: String, _ workloads: [String]) -> [Target] {
    workloads.map { workload in
        .executableTarget(
            name: "\(workload)-\(peer)",
            dependencies: [drivers[workload] ?? "Workloads"],
            path: "Peers/\(peer)",
            exclude: workloads.filter { $0 != workload }.map { "\($0).swift" },
            sources: ["\(workload).swift"],
            swiftSettings: settings
        )
    }
}

let package = Package(
    name: "Benchmarks",
    products: [
        .library(name: "Workloads", targets: ["Workloads"]),
        .library(name: "TaskWorkloads", targets: ["TaskWorkloads"]),
        .library(name: "HTTPWorkload", targets: ["HTTPWorkload"]),
        .library(name: "Outcome", targets: ["Outcome"]),
    ],
    dependencies: [
        .package(name: "swift-reactor", path: ".."),
        .package(url: "https://github.com/apple/swift-system", from: "1.6.0"),
    ],
    targets: [
        .target(name: "Measuring", swiftSettings: settings),
        .executableTarget(name: "compare", dependencies: ["Measuring"], swiftSettings: settings),
        reactor("timers"),
        reactor("ring"),
        reactor("cross"),
        reactor("modes"),
        reactor("lines"),
        reactor("feed"),
        reactor("echo"),
        reactor("still"),
        reactor("watch"),
        reactor("await"),
        reactor("bulk"),
        reactor("send"),
        reactor("embed", [.product(name: "ReactorGLib", package: "swift-reactor")]),
        reactor("tasks", ["TaskWorkloads"]),
        reactor("http", ["HTTPWorkload", .product(name: "ReactorHTTP", package: "swift-reactor")]),
        reactor("tls", [.product(name: "ReactorTLS", package: "swift-reactor")]),
        reactor("testing", [.product(name: "ReactorTesting", package: "swift-reactor")]),
        reactor("hostile", ["Outcome", .product(name: "ReactorTLS", package: "swift-reactor")]),
        .target(name: "Outcome", swiftSettings: settings),
        .target(name: "HTTPWorkload", dependencies: ["Measuring"], swiftSettings: settings),
        .target(name: "TaskWorkloads", dependencies: ["Measuring"], swiftSettings: settings),
        .target(name: "Workloads", path: "Peers/Workloads", publicHeadersPath: "."),
        .executableTarget(name: "lines-readline", dependencies: ["Measuring"], swiftSettings: settings),
        // Depends only on the library, so that its start-up time is the library's.
        .executableTarget(
            name: "idle-reactor",
            dependencies: [.product(name: "Reactor", package: "swift-reactor")],
            swiftSettings: settings
        ),
    ] + programs(of: "dispatch", ["timers", "ring", "cross", "echo", "idle", "lines", "tasks"])
        + programs(of: "foundation", ["timers", "cross", "idle", "lines", "modes", "http", "hostile"]),
    swiftLanguageModes: [.v6]
)
