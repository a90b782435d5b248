/// The expected report of a wrong policy: texts, and the line that must be named, if one must.
pub struct Expected {
    pub says: Vec<String>,
    pub line: Option<usize>,
    /// Whether this kernel's verifier passes the policy, and sched_ext ends it when it runs.
    pub runs: bool,
}

/// Reads it from the policy's source (`wrong.h` says how), for a kernel of this version (`7.2`).
pub fn expected(source: &str, version: &str) -> Expected {
    let of_all = |line: &str| line.strip_prefix(" * says: ").map(str::to_owned);
    let of_one = |line: &str| {
        let (kernel, text) = line.strip_prefix(" * says in ")?.split_once(": ")?;
        Some((kernel == version, text.to_owned()))
    };
    let own: Vec<_> = source.lines().filter_map(of_one).collect();
    let mut says: Vec<String> = own
        .iter()
        .filter(|(fits, _)| *fits)
        .map(|(_, text)| text.clone())
        .collect();
    if says.is_empty() {
        says = source.lines().filter_map(of_all).collect();
    }
    let runs = format!(" * runs in {version}");
    let line = source.lines().position(|line| line.ends_with("/* here */"));
    Expected {
        says,
        line: line.map(|index| index + 1),
        runs: source.lines().any(|line| line == runs),
    }
}

impl Expected {
    /// Returns why a text is not the expected report of the policy of this name.
    pub fn judge(&self, name: &str, told: &str) -> Result<(), String> {
        let place = self.line.map(|line| match self.runs {
            true => format!("{name}.bpf.c:{line} "),
            false => format!("{name}.bpf.c:{line}: "),
        });
        let mut missing = self.says.iter().chain(&place);
        match missing.find(|text| !told.contains(text.as_str())) {
            Some(text) => Err(format!("{name}: `{told}` does not say `{text}`")),
            None if told.contains("correct it") => Err(format!("{name}: `{told}` says nothing")),
            None => Ok(()),
        }
    }
}
