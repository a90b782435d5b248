//! Counts the events of recordings by kind: `cargo run -p schedlab-recording --example counts -- FILE…`.

use std::collections::{BTreeMap, BTreeSet};

use schedlab_recording::{Event, What, read};

fn kind(event: &Event) -> &'static str {
    match event.what {
        What::Switch { .. } => "switch",
        What::Waking { .. } => "waking",
        What::New { .. } => "new",
        What::Fork { .. } => "fork",
        What::Process { .. } => "process",
        What::Exec { .. } => "exec",
        What::Migrate { .. } => "migrate",
        What::Enter(_) => "enter",
        What::Leave(_) => "leave",
        What::Lost(_) => "lost",
    }
}

fn main() {
    for path in std::env::args().skip(1) {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        let mut tasks = BTreeSet::new();
        let about = read(&path, &mut |event| {
            *counts.entry(kind(event)).or_default() += 1;
            if let What::Switch { prev, next, .. } = event.what {
                tasks.extend([prev, next].into_iter().filter(|tid| *tid != 0));
            }
        });
        match about {
            Ok(about) => {
                let ms = (about.last_ns - about.first_ns) / 1_000_000;
                println!(
                    "{path}: {}, {} tasks, {ms} ms, lost {}, late {}, passed over {}: {counts:?}",
                    about.format,
                    tasks.len(),
                    about.lost,
                    about.late,
                    about.passed_over
                );
            }
            Err(error) => println!("{error}"),
        }
    }
}
