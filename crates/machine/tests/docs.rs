//! `docs/profiles.md` shows what the profiles say. After a change of a profile:
//! `SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use schedlab_machine::{Machine, SourceKind};

const HEAD: &str = "\
# Profiles

Read this page to choose a machine for a simulation, or to check the source of one of its numbers. Each table lists a profile's numbers
with their sources; [Machines](machines.md) says what the fields and the words of the sources mean.

This file is generated from the profiles; a test compares the two.

";

fn render() -> String {
    let machines: Vec<Machine> = Machine::builtin_names()
        .map(|name| Machine::builtin(name).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let mut out = String::from(HEAD);
    out.push_str("| profile | CPUs | what it is | numbers | copied | guesses | calibrated on |\n|---|---|---|---|---|---|---|\n");
    for machine in &machines {
        let all = machine.provenance();
        let of_kind = |kind| all.iter().filter(|one| one.kind == kind).count();
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
            "| [`{0}`](#{0}) | {1} | {2} | {3} | {4} | {5} | {rows} |",
            machine.name,
            machine.topology.nr_cpus(),
            machine.summary,
            all.len(),
            of_kind(SourceKind::Copied),
            of_kind(SourceKind::Guess),
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
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/profiles.md");
    let rendered = render();
    if env::var_os("SCHEDLAB_BLESS").is_some() {
        fs::write(&file, &rendered).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/profiles.md differs from the profiles: SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs"
    );
}

/// The example of `docs/machines.md` is a profile.
#[test]
fn the_example_loads() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/machines.md");
    let page = fs::read_to_string(&page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let text = Machine::builtin("laptop").unwrap().to_toml();
    let start = text.find("[topology]").unwrap();
    let end = start + text[start..].find("\n\n").unwrap();
    let text = format!("{}{example}{}", &text[..start], &text[end..]);
    let machine = Machine::from_toml("example", &text).unwrap_or_else(|error| panic!("{error}"));
    let traits = machine.core_traits();
    let capacities: Vec<u32> = traits.iter().map(|one| one.capacity).collect();
    assert_eq!(capacities, [1_024, 1_024, 1_024, 1_024, 540, 540]);
    assert_eq!((traits[1].share_pct(1), traits[5].share_pct(0)), (62, 100));
}
