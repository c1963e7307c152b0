// swift-tools-version: 6.2
import PackageDescription

let workloads = ["timers", "ring", "cross", "echo", "idle", "lines", "tasks", "hostile"]

/// The programs WORKLOAD-nio. A separate package, because SwiftNIO takes minutes to build.
let package = Package(
    name: "NIO",
    dependencies: [
        .package(name: "Benchmarks", path: "../.."),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    ],
    targets: workloads.map { workload in
        .executableTarget(
            name: "\(workload)-nio",
            dependencies: [
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "_NIOFileSystem", package: "swift-nio"),
                .product(name: "Workloads", package: "Benchmarks"),
                .product(name: "TaskWorkloads", package: "Benchmarks"),
                .product(name: "Outcome", package: "Benchmarks"),
            ],
            path: ".",
            exclude: workloads.filter { $0 != workload }.map { "\($0).swift" },
            sources: ["\(workload).swift"]
        )
    },
    swiftLanguageModes: [.v6]
)
