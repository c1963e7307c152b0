// swift-tools-version: 6.3
import PackageDescription

/// The tests call C functions directly, so they do not use strict memory safety.
let testSettings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]
let settings = testSettings + [.strictMemorySafety()]

let system = Target.Dependency.product(name: "SystemPackage", package: "swift-system")
let httpTypes = Target.Dependency.product(name: "HTTPTypes", package: "swift-http-types")

let package = Package(
    name: "swift-reactor",
    products: [
        .library(name: "Reactor", targets: ["Reactor"]),
        .library(name: "ReactorFoundation", targets: ["ReactorFoundation"]),
        .library(name: "ReactorGLib", targets: ["ReactorGLib"]),
        .library(name: "ReactorTLS", targets: ["ReactorTLS"]),
        .library(name: "ReactorHTTP", targets: ["ReactorHTTP"]),
        .library(name: "ReactorHTTPFoundation", targets: ["ReactorHTTPFoundation"]),
        .library(name: "ReactorTesting", targets: ["ReactorTesting"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-system", from: "1.6.0"),
        // Without its default trait, which imports Foundation.
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
    ],
    targets: [
        .systemLibrary(
            name: "CReactorLibevent",
            pkgConfig: "libevent_core",
            providers: [.apt(["libevent-dev"]), .yum(["libevent-devel"])]
        ),
        .target(name: "CReactorLinux"),
        .target(
            name: "Reactor",
            dependencies: [
                "CReactorLibevent",
                "CReactorLinux",
                system,
            ],
            swiftSettings: settings
        ),
        .target(
            name: "ReactorFoundation",
            dependencies: [
                "CReactorLinux",
                "Reactor",
                system,
            ],
            swiftSettings: settings
        ),
        .systemLibrary(
            name: "CReactorOpenSSL",
            pkgConfig: "openssl",
            providers: [.apt(["libssl-dev"]), .yum(["openssl-devel"])]
        ),
        // TLS through OpenSSL.
        .target(
            name: "ReactorTLS",
            dependencies: ["CReactorOpenSSL", "Reactor", system],
            swiftSettings: settings
        ),
        .systemLibrary(
            name: "CReactorLibcurl",
            pkgConfig: "libcurl",
            providers: [.apt(["libcurl4-openssl-dev"]), .yum(["libcurl-devel"])]
        ),
        // HTTP through libcurl.
        .target(
            name: "ReactorHTTP",
            dependencies: ["CReactorLibcurl", "Reactor", httpTypes, system],
            swiftSettings: settings
        ),
        // Transfers as operations.
        .target(
            name: "ReactorHTTPFoundation",
            dependencies: ["Reactor", "ReactorFoundation", "ReactorHTTP"],
            swiftSettings: settings
        ),
        .systemLibrary(
            name: "CReactorGLib",
            pkgConfig: "glib-2.0",
            providers: [.apt(["libglib2.0-dev"]), .yum(["glib2-devel"])]
        ),
        // Run loops inside GLib's, and the reverse.
        .target(
            name: "ReactorGLib",
            dependencies: ["CReactorGLib", "CReactorLinux", "Reactor", system],
            swiftSettings: settings
        ),
        // For tests of code that runs on a loop.
        .target(
            name: "ReactorTesting",
            dependencies: ["CReactorLinux", "Reactor"],
            swiftSettings: settings
        ),
        .systemLibrary(name: "CReactorTestSupport", path: "Tests/CSupport"),
        .target(
            name: "ReactorTestSupport",
            dependencies: ["CReactorTestSupport", "Reactor", system],
            path: "Tests/Support",
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ReactorTests",
            dependencies: [
                "CReactorLinux",
                "CReactorTestSupport",
                "Reactor",
                "ReactorFoundation",
                "ReactorTesting", "ReactorTestSupport",
                "async-main-probe",
                "main-loop-probe",
                system,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ReactorTestingTests",
            dependencies: ["Reactor", "ReactorTesting", "ReactorTestSupport", system],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ReactorFoundationTests",
            dependencies: [
                "Reactor", "ReactorFoundation", "ReactorTesting", "ReactorTestSupport", "foundation-probe",
            ],
            swiftSettings: testSettings
        ),
        // The code of the articles, which has to compile.
        .testTarget(
            name: "DocumentationCode",
            dependencies: ["Reactor", "ReactorFoundation", "ReactorTLS", system],
            path: "Tests/DocumentationCode",
            packageAccess: false,
            swiftSettings: testSettings
        ),
        // Cocoa code in Swift 5: with one import replaced, and with Foundation's import and a file of aliases.
        .testTarget(
            name: "PortedCodeTests",
            dependencies: ["ReactorFoundation", "ReactorTesting", "ReactorTestSupport"],
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        .testTarget(
            name: "AliasedCodeTests",
            dependencies: ["ReactorFoundation", "ReactorTestSupport"],
            swiftSettings: [.swiftLanguageMode(.v5)]
        ),
        // A program with a synchronous main, in which the main loop runs. The tests run it as a child process.
        .executableTarget(
            name: "main-loop-probe",
            dependencies: ["CReactorTestSupport", "Reactor", system],
            path: "Tests/MainLoopProbe",
            swiftSettings: testSettings
        ),
        // The same with an asynchronous main.
        .executableTarget(
            name: "async-main-probe",
            dependencies: ["Reactor"],
            path: "Tests/AsyncMainProbe",
            packageAccess: false,
            swiftSettings: testSettings
        ),
        .executableTarget(
            name: "foundation-probe",
            dependencies: ["Reactor", "ReactorFoundation"],
            path: "Tests/FoundationProbe",
            packageAccess: false,
            swiftSettings: testSettings
        ),
        // A program whose main thread runs a GLib main loop.
        .executableTarget(
            name: "glib-probe",
            dependencies: ["CReactorGLib", "Reactor", "ReactorGLib"],
            path: "Tests/GLibProbe",
            packageAccess: false,
            swiftSettings: testSettings
        ),
        // Runs openssl(1) if it is available.
        .testTarget(
            name: "ReactorTLSTests",
            dependencies: [
                "CReactorOpenSSL", "Reactor", "ReactorFoundation", "ReactorTLS", "ReactorTesting",
                "ReactorTestSupport", system,
            ],
            swiftSettings: testSettings
        ),
        // Runs nginx if it is available.
        .testTarget(
            name: "ReactorHTTPTests",
            dependencies: [
                "CReactorTestSupport", "Reactor", "ReactorFoundation", "ReactorHTTP",
                "ReactorHTTPFoundation", "ReactorTesting", "ReactorTestSupport", httpTypes, system,
            ],
            swiftSettings: testSettings
        ),
        .testTarget(
            name: "ReactorGLibTests",
            dependencies: [
                "CReactorGLib", "Reactor", "ReactorGLib", "ReactorTesting", "ReactorTestSupport",
                "glib-probe", system,
            ],
            swiftSettings: testSettings
        ),
        // Runs Redis if it is available.
        .testTarget(
            name: "IntegrationTests",
            dependencies: ["ReactorFoundation", "ReactorTesting", "ReactorTestSupport"],
            swiftSettings: testSettings
        ),
    ],
    swiftLanguageModes: [.v6]
)

#if !os(Linux)
// Not tested. The condition is the host's, and a Mac may build for Linux with a Swift SDK: the products that do not need
// ReactorFoundation are here too, and say so when they are built for another system than Linux. ReactorFoundation is
// Foundation on Apple's platforms.
package.products.removeAll { $0.name == "ReactorHTTPFoundation" }
package.targets.removeAll {
    $0.isTest || $0.path?.hasPrefix("Tests/") ?? false || $0.name.hasSuffix("Foundation")
}
package.targets.append(.target(name: "ReactorFoundation", path: "Sources/AppleFoundation"))
#endif
