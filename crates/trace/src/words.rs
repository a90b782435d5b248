//! Numbers in sentences.

/// A number of things: `1 task`, `2 tasks`. The noun's plural ends in s.
pub fn counted(n: impl Into<u64>, noun: &str) -> String {
    match n.into() {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let told = [0u32, 1, 2].map(|n| counted(n, "CPU"));
        assert_eq!(told, ["0 CPUs", "1 CPU", "2 CPUs"]);
    }
}
