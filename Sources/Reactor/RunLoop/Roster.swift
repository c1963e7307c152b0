/// The descriptor sources of one group of modes, in no order. Each knows its place here, so that it leaves at once.
///
/// Not a dictionary: to make the first one of its type, the runtime searches every loaded library for a conformance,
/// which costs a small program a megabyte of memory.
struct Roster: ~Copyable {
    /// Where a source is in the roster of one group.
    struct Place {
        let group: RunLoop.Mode
        let index: Int32

        static var none: Place { Place(group: .nowhere, index: -1) }

        var isNone: Bool { index < 0 }
    }

    /// Where a source is in the rosters: nearly always in one, which needs no memory of its own.
    struct Places {
        private var first = Place.none
        private var others: [Place] = []

        /// The groups in whose rosters it is.
        var groups: ModeSet {
            var groups = ModeSet(others.map(\.group))
            if !first.isNone { groups.insert(first.group) }
            return groups
        }

        mutating func insert(_ place: Place) {
            if first.isNone { first = place } else { others.append(place) }
        }

        /// Takes out the place in the roster of `group`.
        mutating func remove(_ group: RunLoop.Mode) -> Int? {
            if !first.isNone, first.group == group {
                defer { first = others.popLast() ?? .none }
                return Int(first.index)
            }
            return others.firstIndex { $0.group == group }.map { Int(others.remove(at: $0).index) }
        }

        mutating func move(_ group: RunLoop.Mode, to index: Int) {
            guard remove(group) != nil else { return }
            insert(Place(group: group, index: Int32(index)))
        }
    }

    private var sources = Vector<DescriptorSource>()

    var isEmpty: Bool { sources.isEmpty }
    var count: Int { sources.count }
    var members: [DescriptorSource] { sources.indices.map { sources[$0] } }

    /// Calls `body`, which changes nothing here, with each source.
    func visit(_ body: (DescriptorSource) -> Void) {
        for index in sources.indices { body(sources[index]) }
    }

    mutating func insert(_ source: DescriptorSource, of group: RunLoop.Mode) {
        source.places.insert(Place(group: group, index: Int32(sources.count)))
        sources.append(source)
    }

    mutating func remove(_ source: DescriptorSource, of group: RunLoop.Mode) {
        guard let hole = source.places.remove(group) else { return }
        let last = sources.removeLast()
        guard last !== source else { return }
        sources[hole] = last
        last.places.move(group, to: hole)
    }
}
