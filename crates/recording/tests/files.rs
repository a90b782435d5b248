//! Real files, and what becomes of damaged ones.

use std::path::Path;

use schedlab_recording::{Inferred, Options, RecordingError, import, kind};
use schedlab_workload::recorded::Step;

/// `perf bench sched pipe -l 20`, recorded as `schedlab record` does; without the records that schedlab passes over
/// and those of other tasks.
const PIPE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pipe.perf.data");

fn read(path: &Path) -> Result<Inferred, RecordingError> {
    import(path.to_str().unwrap(), &Options::default()).map(|(inferred, _)| inferred)
}

fn read_bytes(bytes: &[u8]) -> Result<Inferred, RecordingError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    read(file.path())
}

fn told(bytes: &[u8]) -> String {
    let told = read_bytes(bytes).expect_err("damaged").to_string();
    assert!(!told.contains('\n'), "{told}");
    told
}

/// The command forks one task and passes 20 messages to it, which it answers; then it waits for its end. So there are 40
/// reads, each completed by a write, and one wait for a child, whether anybody slept in them or not.
#[test]
fn a_recording_of_perf_holds_its_program() {
    let file = read(Path::new(PIPE)).unwrap().file;
    assert_eq!(
        file.head
            .tasks
            .iter()
            .filter(|task| !task.background)
            .count(),
        2
    );
    let count = |wanted: fn(&Step) -> bool| {
        file.steps[..2]
            .iter()
            .flatten()
            .filter(|step| wanted(step))
            .count()
    };
    assert_eq!(count(|step| matches!(step, Step::Fork(_))), 1);
    assert_eq!(count(|step| matches!(step, Step::Wait)), 41);
    assert_eq!(count(|step| matches!(step, Step::Post(_))), 41);
    let recorded = file.head.recorded.as_ref().unwrap();
    assert_eq!(recorded.lost_events, 0);
    assert!(
        recorded
            .command
            .as_ref()
            .unwrap()
            .contains("perf bench sched pipe -l 20")
    );
    assert!(recorded.kernel.as_ref().unwrap().starts_with("6."));
    assert!(
        recorded.measured.cpu_ns > 0
            && recorded.measured.makespan_ns > recorded.measured.cpu_ns / 2
    );
}

/// With all tasks the command is among them, although the recorder started it.
#[test]
fn the_command_is_one_of_all_tasks() {
    let options = Options {
        select: schedlab_recording::Select::All,
        ..Options::default()
    };
    let (inferred, _) = import(PIPE, &options).unwrap();
    let waits = |step: &&Step| **step == Step::Wait;
    assert!(inferred.file.steps.iter().flatten().filter(waits).count() >= 41);
}

#[test]
fn damage_is_told_in_one_line() {
    let whole = std::fs::read(PIPE).unwrap();
    assert!(told(&[]).contains("it is empty"));
    assert!(told(b"hello\n").contains("no line of its beginning is an event"));
    assert!(told(b"\x1f\x8b\x08").contains("compressed"));
    assert!(told(&whole[..60]).contains("is truncated: its header is not whole"));
    assert!(
        told(&whole[..whole.len() / 2]).contains("is truncated: the data end beyond"),
        "{}",
        told(&whole[..whole.len() / 2])
    );
    assert!(told(&whole[..whole.len() - 10]).contains("is truncated: a feature ends beyond"));
    let mut unfinished = whole.clone();
    unfinished[48..56].fill(0);
    assert!(told(&unfinished).contains("where `perf record` was killed"));
    let mut torn = whole.clone();
    let data = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    torn[data + 6..data + 8].copy_from_slice(&3u16.to_le_bytes());
    assert!(told(&torn).contains("damaged"), "{}", told(&torn));
    let missing = import("/nowhere/x.data", &Options::default())
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("cannot read the recording `/nowhere/x.data`"),
        "{missing}"
    );
    assert_eq!(kind(PIPE).unwrap(), schedlab_recording::Kind::Perf);
}

/// Whatever is done to a file, the answer is a program or an error.
#[test]
fn no_damage_makes_the_reader_panic() {
    let whole = std::fs::read(PIPE).unwrap();
    let text = "# tracer: nop\n  a-3 (    3) [000] d..2. 1.000001: sched_switch: prev_comm=a prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=b b next_pid=4 next_prio=120\n  b b-4 [000] d.h2. 1.000002: sched_waking: comm=a pid=3 prio=120 target_cpu=000\n".repeat(4);
    // SplitMix64: the same damage each time.
    let mut state = 7u64;
    let mut next = |bound: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    };
    let (mut read_whole, mut refused) = (0, 0);
    for round in 0..600 {
        let mut bytes = match round % 3 {
            0 => text.as_bytes().to_vec(),
            _ => whole.clone(),
        };
        // Headers are a small part of a file, and most of what can go wrong.
        let reach = match round % 4 {
            0 => bytes.len().min(160),
            _ => bytes.len(),
        };
        for _ in 0..=next(8) {
            let at = next(reach);
            bytes[at] = match next(3) {
                0 => 0,
                1 => 0xff,
                _ => next(256) as u8,
            };
        }
        if round % 5 == 0 {
            bytes.truncate(next(bytes.len()));
        }
        match read_bytes(&bytes) {
            Ok(_) => read_whole += 1,
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    assert!(read_whole > 50 && refused > 50, "{read_whole} {refused}");
}
