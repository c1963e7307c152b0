import Glibc

/// The numbers from one, with their prime factors, each deliberately slow.
struct Numbers: Rows {
    let count: Int
    /// How long a row takes, in microseconds.
    let delay: UInt32

    func text(at row: Int) -> String {
        usleep(delay)
        return "\(row + 1) = " + Self.factors(of: row + 1).map(String.init).joined(separator: " × ")
    }

    static func factors(of number: Int) -> [Int] {
        var (rest, factor) = (number, 2)
        var factors: [Int] = []
        while factor * factor <= rest {
            if rest.isMultiple(of: factor) {
                factors.append(factor)
                rest /= factor
            } else {
                factor += 1
            }
        }
        return rest > 1 || factors.isEmpty ? factors + [rest] : factors
    }
}
