//! Loads the examples that rt-app ships, from a checkout of its repository that `RT_APP_EXAMPLES` points to.

use std::path::{Path, PathBuf};

use schedlab_workload::Workload;

/// The fragments for merge.py are in the grammar of rt-app before 2014 (`lock_order`) or have no tasks; rt-app refuses
/// each of them, so what counts is that we do too, with the place.
const REFUSED_BY_RT_APP: [(&str, &str); 6] = [
    ("global.json", "has no `tasks` object"),
    ("resources.json", "has no `tasks` object"),
    ("thread0.json", "lock_order`: must be a string, not a list"),
    ("thread1.json", "lock_order`: must be a string, not a list"),
    ("thread2.json", "lock_order`: must be a string, not a list"),
    ("thread3.json", "lock_order`: must be a string, not a list"),
];

fn json_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            json_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "json") {
            found.push(path);
        }
    }
    found.sort();
}

#[test]
fn every_example_that_rt_app_reads_loads() {
    let Some(folder) = std::env::var_os("RT_APP_EXAMPLES") else {
        schedlab_testing::skipped(
            "the examples of rt-app: set RT_APP_EXAMPLES to doc/examples of an rt-app checkout",
        );
        return;
    };
    let mut files = Vec::new();
    json_files(Path::new(&folder), &mut files);
    assert!(files.len() > 20, "only {} files in {folder:?}", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let in_merge = path.parent().unwrap().ends_with("merge");
        let refused = REFUSED_BY_RT_APP
            .iter()
            .find(|(refused, _)| in_merge && *refused == name);
        match (Workload::parse(path.to_str().unwrap(), 8), refused) {
            (Ok(workload), None) => {
                println!(
                    "{name}: {} tasks {:?}",
                    workload.tasks.len(),
                    workload.notes
                );
            }
            (Err(error), Some((_, part))) if error.to_string().contains(part) => {
                println!("refused, as by rt-app: {error}");
            }
            (Ok(_), Some(_)) => wrong.push(format!("{name} loads, though rt-app refuses it")),
            (Err(error), _) => wrong.push(error.to_string()),
        }
    }
    println!("{} files", files.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}
