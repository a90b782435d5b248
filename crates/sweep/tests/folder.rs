//! A sweep's folder: the same bytes under every division of the work, and no foreign file is taken for a result.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use schedlab_sim::{Scheduler, SimSpec};
use schedlab_sweep::{
    Asked, BUILD, Definition, Host, Options, Row, Shard, Space, SweepError, Work, read, run, run_by,
};

fn asked(workloads: &[&str], sample: u64, seed: u64) -> Asked {
    Asked {
        workloads: workloads.iter().map(|text| text.to_string()).collect(),
        space: Space::of("feature", &[]).unwrap(),
        sample: Some(sample),
        repeat: 2,
        run: SimSpec {
            cpus: Some(2),
            ..SimSpec::new("", Scheduler::parse("feature"), "laptop")
        },
        seed,
        live: None,
        each: false,
        budget: None,
    }
}

fn small() -> Definition {
    let asked = asked(
        &["cpu:duration=20ms", "chat:rooms=1,users=2,messages=2"],
        15,
        1,
    );
    Definition::new(asked).unwrap()
}

fn options(threads: usize) -> Options {
    Options {
        threads: NonZeroUsize::new(threads).unwrap(),
        keep_after: Duration::from_secs(10),
    }
}

/// Runs until so many more jobs are done.
fn some(definition: &Definition, folder: &Path, shard: Shard, more: u64) -> bool {
    let stop = AtomicBool::new(false);
    let mut first = None;
    let options = Options {
        threads: NonZeroUsize::MIN,
        keep_after: Duration::ZERO,
    };
    let summary = run(definition, folder, shard, options, &stop, |progress| {
        let first = *first.get_or_insert(progress.done);
        if progress.done >= first + more {
            stop.store(true, Ordering::Relaxed);
        }
    });
    summary.unwrap().stopped
}

fn all(definition: &Definition, folder: &Path, shard: Shard, threads: usize) {
    let never = AtomicBool::new(false);
    let summary = run(definition, folder, shard, options(threads), &never, |_| ()).unwrap();
    assert!(!summary.stopped);
    assert_eq!(summary.progress.done, summary.progress.jobs);
}

/// Every file that is not hidden, with its bytes.
fn bytes(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect()
}

#[test]
fn rows_are_those_of_single_runs_and_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let definition = small();
    all(&definition, folder.path(), Shard::WHOLE, 2);
    let (stored, rows) = read(folder.path()).unwrap();
    assert_eq!(stored, definition);
    assert_eq!(rows.len() as u64, definition.jobs());
    assert_eq!(definition.jobs(), 15 * 2 * 2);
    for (job, row) in rows.iter().enumerate() {
        assert_eq!(row.job, job as u64);
        let result = schedlab_sim::run(&definition.spec(row.job), None).unwrap();
        assert_eq!(*row, Row::new(&definition, row.job, &result));
        assert!(row.is_done() && row.value("score").is_some());
        assert_eq!(
            definition
                .space
                .scheduler(definition.points()[job % 15])
                .to_string(),
            row.scheduler
        );
    }
    // Two workloads and two seeds.
    assert_ne!(rows[0].workload, rows[15].workload);
    assert_eq!((rows[0].seed, rows[30].seed), (1, 2));
}

#[test]
fn interruptions_and_threads_leave_no_trace() {
    let definition = small();
    let whole = tempfile::tempdir().unwrap();
    all(&definition, whole.path(), Shard::WHOLE, 1);
    let expected = bytes(whole.path());
    assert_eq!(expected.len(), 2, "{:?}", expected.keys());

    let pieces = tempfile::tempdir().unwrap();
    let mut times = 0;
    while some(&definition, pieces.path(), Shard::WHOLE, 7) {
        times += 1;
        assert!(bytes(pieces.path()).len() > 1, "parts are there meanwhile");
        let (_, rows) = read(pieces.path()).unwrap();
        assert!(rows.len() as u64 >= 7 * times && (rows.len() as u64) < definition.jobs());
    }
    assert!(times > 3, "it was interrupted {times} times");
    assert_eq!(bytes(pieces.path()), expected);

    let threads = tempfile::tempdir().unwrap();
    all(&definition, threads.path(), Shard::WHOLE, 5);
    assert_eq!(bytes(threads.path()), expected);
    // Once more: nothing is left to do.
    all(&definition, threads.path(), Shard::WHOLE, 5);
    assert_eq!(bytes(threads.path()), expected);
}

#[test]
fn shards_make_one_sweep() {
    let definition = small();
    let whole = tempfile::tempdir().unwrap();
    all(&definition, whole.path(), Shard::WHOLE, 2);
    let shards = tempfile::tempdir().unwrap();
    for index in [3, 1, 2] {
        all(&definition, shards.path(), Shard { index, count: 3 }, 2);
    }
    assert_eq!(bytes(shards.path()).len(), 4);
    let (one, many) = (read(whole.path()).unwrap(), read(shards.path()).unwrap());
    assert_eq!(one.1, many.1);
}

/// The error of going on in the folder.
fn refused(definition: &Definition, folder: &Path) -> String {
    let never = AtomicBool::new(false);
    let error = run(definition, folder, Shard::WHOLE, options(1), &never, |_| ()).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

#[test]
fn broken_and_foreign_files_are_errors() {
    let definition = small();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(matches!(read(path), Err(SweepError::None { .. })));
    assert!(some(&definition, path, Shard::WHOLE, 5));
    let part = path.join("shard-1-of-1.part-000000.parquet");
    let good = fs::read(&part).unwrap();

    // Every way of being cut short, and a changed byte in the middle of the footer.
    for length in (0..good.len()).step_by(97) {
        fs::write(&part, &good[..length]).unwrap();
        let text = refused(&definition, path);
        assert!(text.contains("is not a results file"), "{length}: {text}");
        assert!(read(path).is_err(), "{length}");
    }
    fs::write(&part, "job,score\n1,2\n").unwrap();
    assert!(refused(&definition, path).contains("move it away"));
    fs::write(&part, &good).unwrap();

    // Another sweep's results, and another sweep's folder.
    let other = Definition::new(asked(&["cpu:duration=20ms"], 15, 1)).unwrap();
    assert!(refused(&other, path).contains("another sweep, which differs in its workloads"));
    let profiles = tempfile::tempdir().unwrap();
    let profile = profiles.path().join("machine.toml");
    let laptop = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/laptop.toml");
    let on_profile = |text: String| {
        fs::write(&profile, text).unwrap();
        let mut asked = asked(&["cpu:duration=20ms"], 15, 1);
        asked.run.machine = profile.display().to_string();
        Definition::new(asked).unwrap()
    };
    let text = fs::read_to_string(laptop).unwrap();
    let before = on_profile(text.clone());
    let after = on_profile(text + "\n# another file\n");
    assert_eq!(before.difference(&after).as_deref(), Some("files"));
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(some(&other, elsewhere.path(), Shard::WHOLE, 5));
    let foreign = elsewhere.path().join("shard-1-of-1.part-000000.parquet");
    fs::copy(foreign, path.join("shard-1-of-1.part-000009.parquet")).unwrap();
    let text = refused(&definition, path);
    assert!(
        text.contains("part-000009") && text.contains("another sweep"),
        "{text}"
    );
    fs::remove_file(path.join("shard-1-of-1.part-000009.parquet")).unwrap();

    // A part that is there twice is the same part.
    fs::write(path.join("shard-1-of-1.part-000007.parquet"), &good).unwrap();
    fs::write(path.join("sweep.json"), "{").unwrap();
    assert!(refused(&definition, path).contains("sweep.json"));
    fs::write(path.join("sweep.json"), definition.to_json()).unwrap();
    all(&definition, path, Shard::WHOLE, 2);
    let whole = tempfile::tempdir().unwrap();
    all(&definition, whole.path(), Shard::WHOLE, 1);
    assert_eq!(bytes(path), bytes(whole.path()));
}

#[test]
fn two_do_not_write_the_same_shard() {
    let definition = small();
    let folder = tempfile::tempdir().unwrap();
    let never = AtomicBool::new(false);
    let mut tried = false;
    run(
        &definition,
        folder.path(),
        Shard::WHOLE,
        options(1),
        &never,
        |_| {
            if !tried {
                tried = true;
                assert!(refused(&definition, folder.path()).contains("another process"));
            }
        },
    )
    .unwrap();
    assert!(tried);
}

#[test]
fn what_cannot_be_run_is_told_before_anything_is_run() {
    for (workloads, expected) in [
        (["cpu", "nothing"], "nothing"),
        (["cpu", "chat:rooms=x"], "rooms"),
    ] {
        let error = Definition::new(asked(&workloads, 3, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
}

fn host(machine: &str) -> Host {
    Host {
        machine: machine.to_owned(),
        kernel: "7.2.0".to_owned(),
        cpus: 4,
        cpu_model: "a model".to_owned(),
    }
}

#[test]
fn a_live_sweep_is_another_one() {
    let simulated = small();
    let live = Asked {
        live: Some(host("host")),
        ..asked(
            &["cpu:duration=20ms", "chat:rooms=1,users=2,messages=2"],
            15,
            1,
        )
    };
    let live = Definition::new(live).unwrap();
    for (one, other) in [(&live, &simulated), (&simulated, &live)] {
        assert_eq!(one.difference(other).as_deref(), Some("live"));
    }
    assert_eq!(live.runs(), live.jobs());
    let elsewhere = Asked {
        live: Some(host("vm")),
        ..asked(
            &["cpu:duration=20ms", "chat:rooms=1,users=2,messages=2"],
            15,
            1,
        )
    };
    let elsewhere = Definition::new(elsewhere).unwrap();
    assert_eq!(elsewhere.difference(&live).as_deref(), Some("place"));
    let read = Definition::from_json(&live.to_json()).unwrap();
    assert_eq!(read.difference(&live), None);
    assert!(matches!(read.run(0), Err(SweepError::Live)));
}

/// A policy whose only option with alternatives is `fast`, and what it includes and runs.
struct Own(tempfile::TempDir);

impl Own {
    fn new() -> Own {
        let own = Own(tempfile::tempdir().unwrap());
        own.put(
            "mine.bpf.c",
            "#include <scx/common.bpf.h>\n#include \"mine.h\"\nchar _license[] SEC(\"license\") = \"GPL\";\n\
             const volatile bool fast;\n\
             void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n\
             \tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, fast ? SLICE : 1000, enq_flags);\n}\n\
             SCX_OPS_DEFINE(mine_ops, .enqueue = (void *)mine_enqueue, .name = \"mine\");\n",
        );
        own.put("mine.h", "#define SLICE 1000000\n");
        own.put(
            "two.json",
            r#"{"tasks": {"a": {"instance": 2, "loop": 3, "run": 1000, "sleep": 1000}}}"#,
        );
        let laptop = include_str!("../../../machines/laptop.toml");
        own.put("mine.toml", laptop);
        own
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn definition(&self) -> Definition {
        let scheduler = self.path("mine.bpf.c");
        let machine = self.path("mine.toml");
        Definition::new(Asked {
            workloads: vec![self.path("two.json"), "cpu:duration=1ms".to_owned()],
            space: Space::of(&scheduler, &[]).unwrap(),
            run: SimSpec::new("", Scheduler::parse(&scheduler), machine),
            ..asked(&[], 2, 1)
        })
        .unwrap()
    }
}

#[test]
fn edited_files_are_told_at_the_next_run_wherever_it_is_made() {
    let own = Own::new();
    let definition = own.definition();
    let elsewhere = Definition::from_json(&definition.to_json()).unwrap();
    assert_eq!(definition.files.len(), 3);
    for (name, told, more) in [
        ("mine.bpf.c", "mine.bpf.c", "\n/* */\n"),
        (
            "mine.h",
            "mine.bpf.c, or what it includes,",
            "\n#define SLICE 1\n",
        ),
        ("two.json", "two.json", "\n"),
        ("mine.toml", "mine.toml", "\n# edited\n"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let before = fs::read_to_string(own.path(name)).unwrap();
        let text = match name {
            "mine.h" => more.to_owned(),
            _ => before.clone() + more,
        };
        let stop = AtomicBool::new(false);
        let sweep = || {
            run(
                &definition,
                folder.path(),
                Shard::WHOLE,
                options(1),
                &stop,
                |_| {},
            )
        };
        own.put(name, &text);
        let error = sweep().unwrap_err().to_string();
        assert!(
            error.contains(told) && error.contains("restore it"),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
        for definition in [&definition, &elsewhere] {
            assert!(
                matches!(definition.run(0), Err(SweepError::Changed { .. })),
                "{name}"
            );
            assert!(
                matches!(definition.row(0), Err(SweepError::Changed { .. })),
                "{name}"
            );
        }
        let other = own.definition();
        assert_eq!(
            other.difference(&definition).as_deref(),
            Some("files"),
            "{name}"
        );
        own.put(name, &before);
        // A process elsewhere may have read the file before or after the edit.
        let edits = |run| {
            let rows = definition.run(run);
            own.put(name, &text);
            rows
        };
        let other = tempfile::tempdir().unwrap();
        let ended = run_by(
            &definition,
            other.path(),
            Shard::WHOLE,
            options(1),
            &stop,
            &edits,
            |_| {},
        );
        assert!(
            matches!(ended, Err(SweepError::Changed { .. })),
            "{ended:?}"
        );
        assert_eq!(read(other.path()).unwrap().1.len(), 0, "{name}");
        own.put(name, &before);
        assert!(elsewhere.run(0).is_ok());
        assert!(!sweep().unwrap().stopped);
    }
}

#[test]
fn another_build_does_not_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let definition = small();
    some(&definition, folder.path(), Shard::WHOLE, 2);
    let document = definition.to_json().replace(BUILD, "crc32 of another");
    let other = Definition::from_json(&document).unwrap();
    let error = refused(&other, folder.path());
    assert!(error.contains("differs in its build"), "{error}");
    assert!(matches!(other.run(0), Err(SweepError::Build)));
    assert!(matches!(other.row(0), Err(SweepError::Build)));
    // Its finished rows can be read.
    fs::write(folder.path().join("sweep.json"), &document).unwrap();
    for part in fs::read_dir(folder.path()).unwrap() {
        let part = part.unwrap().path();
        if part.extension().is_some_and(|ending| ending == "parquet") {
            fs::remove_file(part).unwrap();
        }
    }
    assert_eq!(read(folder.path()).unwrap().0, other);
}

#[test]
fn rows_of_another_shape_are_refused_and_the_work_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let definition = small();
    let mut work = Work::begin(&definition, folder.path(), Shard::WHOLE).unwrap();
    let whole = definition.row(0).unwrap();
    let jobs = definition.jobs();
    let mut fewer = whole.clone();
    fewer.choices.pop();
    let mut more = whole.clone();
    more.values.push(None);
    let foreign = Row {
        job: jobs,
        ..whole.clone()
    };
    for (wrong, told) in [
        (fewer, "job 0 has 8 choices of 9"),
        (more, "and 26 values of 25"),
        (foreign, &format!("it has job {jobs} of {jobs}")),
    ] {
        let error = work.keep(&mut vec![whole.clone(), wrong]).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        assert!(work.rows.is_empty());
    }
    work.keep(&mut vec![whole]).unwrap();
    assert_eq!(work.rows.len(), 1);
}

#[test]
fn what_could_not_be_kept_at_first_is_kept_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let definition = small();
    let part = folder.path().join("shard-1-of-1.part-000000.parquet");
    let never = AtomicBool::new(false);
    let options = Options {
        threads: NonZeroUsize::MIN,
        keep_after: Duration::ZERO,
    };
    let first = Once::new();
    let one = |run| {
        // Nothing can be put where a folder is.
        first.call_once(|| fs::create_dir(&part).unwrap());
        definition.run(run)
    };
    let mut told = 0;
    let ended = run_by(
        &definition,
        folder.path(),
        Shard::WHOLE,
        options,
        &never,
        &one,
        |progress| {
            told = progress.done;
            // It has been tried, and there is room again.
            if told > 0 && part.is_dir() {
                fs::remove_dir(&part).unwrap();
            }
        },
    );
    assert!(matches!(ended, Err(SweepError::File { .. })), "{ended:?}");
    assert!(told > 0);
    let (_, rows) = read(folder.path()).unwrap();
    assert_eq!(rows.len() as u64, told);
    all(&definition, folder.path(), Shard::WHOLE, 2);
    let whole = tempfile::tempdir().unwrap();
    all(&definition, whole.path(), Shard::WHOLE, 2);
    assert_eq!(bytes(folder.path()), bytes(whole.path()));
}

#[test]
fn jobs_and_runs_that_the_sweep_does_not_have_are_refused() {
    let definition = small();
    for more in [0, 1, 1_000] {
        let (job, run) = (definition.jobs() + more, definition.runs() + more);
        let error = definition.row(job).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("there is no job {job}: the sweep has 60, numbered from 0")
        );
        let error = definition.run(run).unwrap_err();
        assert!(matches!(error, SweepError::NoRun { .. }), "{error}");
    }
    assert!(definition.row(definition.jobs() - 1).is_ok());
}
