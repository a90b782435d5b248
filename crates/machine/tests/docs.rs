//! `docs/machines.md` shows what the profiles say. After a change of a profile:
//! `SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use schedlab_machine::{Machine, SourceKind};

const HEAD: &str = "\
# Machines

Read this page to choose a machine for a simulation, or to check the source of one of its numbers. Each table lists a profile's constants
with their sources.

A machine is a file in `machines/` (or one of your own: `-m path/to/file.toml`). A new file there is a new profile with
nothing else to edit. `schedlab calibrate` writes a profile of the machine that it runs on.

Every number stands beside its source, `field = { value = …, source = \"…\" }`, and a number without one does not load.
A source begins with one of these words:

| word | meaning |
|---|---|
| `measured` | measured by us, with the spread |
| `published` | in a paper, report or measurement that somebody published |
| `data sheet` | in the maker's manual or data sheet |
| `kernel` | in the source code or documentation of the kernel that is modelled |
| `derived` | computed from other sourced numbers |
| `tuned` | found by fitting the model to the rows in `calibrated_on` |
| `guess` | nobody knows; a plausible order of magnitude |

A profile whose `calibrated_on` is empty was fitted to no published result: it is made of data sheets and guesses.
`tuning_candidates` are the only fields that fitting may change. The meaning of each field is documented at its declaration in
`crates/machine/src/profile.rs`.

With `-c N` a run has the first N CPUs, as `maxcpus=N` would leave them: numbers run through one hardware thread of every core,
cache by cache and node by node, and only then through the second threads.

This file is generated from the profiles; a test compares the two.

## Profiles

";

fn render() -> String {
    let machines: Vec<Machine> = Machine::builtin_names()
        .map(|name| Machine::builtin(name).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let mut out = String::from(HEAD);
    out.push_str("| profile | CPUs | what it is | numbers | guesses | calibrated on |\n|---|---|---|---|---|---|\n");
    for machine in &machines {
        let all = machine.provenance();
        let guesses = all.iter().filter(|one| one.kind == SourceKind::Guess);
        let rows = match machine.calibrated_on.as_slice() {
            [] => "nothing".to_owned(),
            rows => rows
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) | {1} | {2} | {3} | {4} | {rows} |",
            machine.name,
            machine.topology.nr_cpus(),
            machine.summary,
            all.len(),
            guesses.count(),
        );
    }
    for machine in &machines {
        let _ = writeln!(out, "\n## {}\n\n{}.\n", machine.name, machine.summary);
        if !machine.tuning_candidates.is_empty() {
            let fields: Vec<String> = machine
                .tuning_candidates
                .iter()
                .map(|field| format!("`{field}`"))
                .collect();
            let _ = writeln!(out, "May be tuned: {}.\n", fields.join(", "));
        }
        out.push_str("| field | value | source |\n|---|---|---|\n");
        for one in machine.provenance() {
            let _ = writeln!(out, "| `{}` | {} | {} |", one.field, one.value, one.source);
        }
    }
    out
}

#[test]
fn the_document_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/machines.md");
    let rendered = render();
    if env::var_os("SCHEDLAB_BLESS").is_some() {
        fs::write(&file, &rendered).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/machines.md differs from the profiles: SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs"
    );
}
