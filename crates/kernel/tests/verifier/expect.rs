/// What must be said of a wrong policy: texts, and the line that must be named, if one must.
pub struct Expected {
    pub says: Vec<String>,
    pub line: Option<usize>,
}

/// Reads it from the policy's source (`wrong.h` says how).
pub fn expected(source: &str) -> Expected {
    let says = source
        .lines()
        .filter_map(|line| line.strip_prefix(" * says: "));
    let line = source.lines().position(|line| line.ends_with("/* here */"));
    Expected {
        says: says.map(str::to_owned).collect(),
        line: line.map(|index| index + 1),
    }
}

impl Expected {
    /// Why `told` is not what must be said of the policy of this name.
    pub fn judge(&self, name: &str, told: &str) -> Result<(), String> {
        let place = self.line.map(|line| format!("{name}.bpf.c:{line}: "));
        let mut missing = self.says.iter().chain(&place);
        match missing.find(|text| !told.contains(text.as_str())) {
            Some(text) => Err(format!("{name}: `{told}` does not say `{text}`")),
            None if told.contains("correct it") => Err(format!("{name}: `{told}` says nothing")),
            None => Ok(()),
        }
    }
}
