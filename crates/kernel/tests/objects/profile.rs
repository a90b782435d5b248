//! Profiles of the repository with other prices.

use std::path::{Path, PathBuf};

/// An instruction of an object takes no time.
pub const NO_INSTRUCTIONS: &[(&str, u64)] = &[("instruction_ps", 0)];

/// No load and no store takes time.
pub const NO_MEMORY: &[(&str, u64)] = &[
    ("hit_ps", 0),
    ("llc_hit_ps", 0),
    ("miss_ps", 0),
    ("transfer_llc_ps", 0),
    ("transfer_node_ps", 0),
    ("transfer_remote_ps", 0),
    ("bus_ps", 0),
];

/// Writes the profile `name` with other values of some keys, as `KIND-NAME.toml`, and returns its path.
///
/// Objects that calls share are left out: they are in the caches beside what the policy touches, which differs between a native build and
/// an object.
///
/// # Panics
/// If the profile lacks one of the keys.
pub fn with(name: &str, kind: &str, values: &[(&str, u64)]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(format!("machines/{name}.toml"))).unwrap();
    let text = text.split("\n[shared.").next().unwrap();
    let mut changed = 0;
    let lines = text.lines().map(|line| {
        let key = line.split(' ').next().unwrap();
        let Some((_, value)) = values.iter().find(|(of, _)| *of == key) else {
            return line.to_owned();
        };
        changed += 1;
        format!("{key} = {{ value = {value}, source = \"guess: a test\" }}")
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(changed, values.len(), "{name} has all of these");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{kind}-{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}
