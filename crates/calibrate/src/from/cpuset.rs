//! CPU masks as hwloc writes them: `0x000000ff,0xffffffff`, words of 32 bits, the highest first.

/// More than the kernel's own limit on CPU numbers.
const BITS_MAX: usize = 65_536;

/// The numbers in a mask; none if it is no mask or has no end (`0xf...f`).
pub(super) fn numbers(text: &str) -> Option<Vec<usize>> {
    let words: Vec<&str> = text.trim().split(',').collect();
    if words.len() * 32 > BITS_MAX {
        return None;
    }
    let mut found = Vec::new();
    for (index, word) in words.iter().rev().enumerate() {
        let word = word.trim();
        let digits = word.strip_prefix("0x").unwrap_or(word);
        // hwloc leaves words of zeroes empty.
        let bits = match digits {
            "" => 0,
            digits => u32::from_str_radix(digits, 16).ok()?,
        };
        found.extend(
            (0..32)
                .filter(|bit| bits & 1 << bit != 0)
                .map(|bit| index * 32 + bit),
        );
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn words_are_read_from_the_end() {
        assert_eq!(numbers("0x00000005"), Some(vec![0, 2]));
        assert_eq!(numbers("0x00000001,0x80000000"), Some(vec![31, 32]));
        assert_eq!(numbers("0x00000002,,0x1"), Some(vec![0, 65]));
        assert_eq!(numbers("0x0"), Some(vec![]));
        for wrong in ["0xf...f", "x", "0x1ffffffff", &",".repeat(3_000)] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }
}
