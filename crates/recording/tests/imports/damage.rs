//! Whatever is done to a file, the answer is its events or one line that names the file.

use std::os::unix::fs::FileExt as _;

use crate::tracedat::{self, SEVEN, SIX};
use crate::{events_of, program_of};
use crate::{perfetto, wprof};

/// Random multiple damages of each sample; the smaller, single ones are all tried.
const CASES: usize = 500;

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let zstd = tracedat::Form {
        packing: "zstd",
        ..SEVEN
    };
    let plain = tracedat::Form {
        packing: "none",
        ..SEVEN
    };
    vec![
        ("wprof", wprof::file().into_bytes()),
        ("trace.dat 6", tracedat::file(SIX)),
        ("trace.dat 7", tracedat::file(plain)),
        ("trace.dat 7, zlib", tracedat::file(SEVEN)),
        ("trace.dat 7, zstd", tracedat::file(zstd)),
        ("Perfetto", perfetto::file(false, "none")),
        ("Perfetto, brief", perfetto::file(true, "none")),
        ("Perfetto, zlib", perfetto::file(true, "zlib")),
        ("Perfetto, zstd", perfetto::file(true, "zstd")),
    ]
}

/// One file for all damages of a test.
struct Trial(tempfile::NamedTempFile);

impl Trial {
    fn new() -> Trial {
        Trial(tempfile::NamedTempFile::new().unwrap())
    }

    /// Reads these bytes, and makes a program of them; says whether they could be read.
    fn is_read(&self, bytes: &[u8]) -> bool {
        // To empty it first would make the file system write it each time.
        let file = self.0.as_file();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        let path = self.0.path().to_str().unwrap();
        let read = events_of(path).map(|_| ());
        let made = program_of(path).map(|_| ());
        let is_read = read.is_ok();
        for error in [read, made].into_iter().filter_map(Result::err) {
            let error = error.to_string();
            assert!(!error.contains('\n') && error.contains(path), "{error}");
        }
        is_read
    }
}

#[test]
fn every_cut_is_refused_or_read() {
    let trial = Trial::new();
    for (name, whole) in samples() {
        assert!(trial.is_read(&whole), "{name}");
        let read = (0..whole.len())
            .filter(|end| trial.is_read(&whole[..*end]))
            .count();
        // A file that ends after a whole line or packet is a shorter recording.
        let is_whole_in_parts = name == "wprof" || name.starts_with("Perfetto");
        assert!(
            read == 0 || (is_whole_in_parts && read < 30),
            "{name}: {read}"
        );
    }
}

#[test]
fn every_changed_byte_is_refused_or_read() {
    let trial = Trial::new();
    for (name, whole) in samples() {
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = !bytes[at];
            refused += usize::from(!trial.is_read(&bytes));
        }
        assert!(refused > 50, "{name}: {refused}");
    }
}

#[test]
fn much_damage_is_refused_or_read() {
    // SplitMix64: the same damage each time.
    let mut state = 7u64;
    let mut next = |bound: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    };
    let trial = Trial::new();
    let mut all = 0;
    for (name, whole) in samples() {
        let mut read = 0;
        for case in 0..CASES {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                let (at, len) = (next(bytes.len()), 1 + next(8));
                let end = bytes.len().min(at + len);
                match next(4) {
                    0 => bytes[at..end].fill(next(256) as u8),
                    1 => bytes[at..end].fill(0xff),
                    2 => drop(bytes.drain(at..end)),
                    _ => {
                        let piece = bytes[at..end].to_vec();
                        let to = next(bytes.len());
                        bytes.splice(to..to, piece);
                    }
                }
            }
            if case % 8 == 0 {
                bytes.truncate(next(bytes.len()));
            }
            read += usize::from(trial.is_read(&bytes));
        }
        // Most damage contradicts the format; some changes a name or a number, and is read.
        assert!(read < CASES / 5, "{name}: {read}");
        all += read;
    }
    assert!(all > 50, "{all}");
}
