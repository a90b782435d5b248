//! Finds the line of a policy from which an error came: the kernel's dump has the stack, and the loaded programs know
//! which line each of their instructions was made from.

use std::fs;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

/// One function of BPF on a stack, as the kernel writes it: `bpf_prog_TAG_NAME+0xOFFSET/0xSIZE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Frame<'a> {
    symbol: &'a str,
    offset: u64,
}

/// From which address on a line's code lies.
struct Line {
    address: u64,
    file: String,
    number: u32,
}

/// Returns the line of the policy's own file, and the function, from which the kernel was called when it wrote this
/// dump. `btf` is the policy's object, whose programs are still loaded.
pub fn of_dump(dump: &str, object: &[u8]) -> Option<String> {
    let frames = frames(dump);
    if frames.is_empty() {
        return None;
    }
    let symbols = fs::read_to_string("/proc/kallsyms").ok()?;
    let lines = lines(object);
    frames
        .iter()
        .find_map(|frame| place(*frame, address(&symbols, frame.symbol)?, &lines))
}

/// Returns the functions of BPF on the stack that a dump begins with, the innermost first.
fn frames(dump: &str) -> Vec<Frame<'_>> {
    let words = dump
        .lines()
        .take_while(|line| !line.starts_with("CPU states"));
    let words = words.flat_map(str::split_whitespace);
    words
        .filter(|word| word.starts_with("bpf_prog_"))
        .filter_map(|word| {
            let (symbol, place) = word.split_once("+0x")?;
            let offset = place.split('/').next()?;
            Some(Frame {
                symbol,
                offset: u64::from_str_radix(offset, 16).ok()?,
            })
        })
        .collect()
}

fn address(symbols: &str, name: &str) -> Option<u64> {
    let line = symbols
        .lines()
        .find(|line| line.split_whitespace().nth(2) == Some(name))?;
    u64::from_str_radix(line.split(' ').next()?, 16).ok()
}

/// Returns the line of a frame whose function begins at `begin`; of several that are inlined there, the last before
/// it of the policy's own file.
fn place(frame: Frame<'_>, begin: u64, lines: &[Line]) -> Option<String> {
    // A call is before where it returns to.
    let at = begin + frame.offset - 1;
    let before = lines
        .iter()
        .rev()
        .skip_while(|line| line.address > at)
        .take_while(|line| line.address >= begin);
    let own = before
        .into_iter()
        .find(|line| line.file.ends_with(".bpf.c"))?;
    // bpf_prog_0123456789abcdef_name
    let function = frame.symbol.splitn(4, '_').nth(3).unwrap_or(frame.symbol);
    Some(format!("{}:{} ({function})", own.file, own.number))
}

/// Returns the lines of all loaded programs, by address.
fn lines(object: &[u8]) -> Vec<Line> {
    let Some(strings) = strings(object) else {
        return Vec::new();
    };
    let options = ProgInfoQueryOptions::default()
        .include_line_info(true)
        .include_jited_line_info(true);
    let mut lines: Vec<Line> = ProgInfoIter::with_query_opts(options)
        .flat_map(|program| {
            let addresses = program.jited_line_info.into_iter();
            addresses.zip(program.line_info).collect::<Vec<_>>()
        })
        .filter_map(|(address, line)| {
            Some(Line {
                address: address as u64,
                file: string(strings, line.file_name_off as usize)?,
                number: line.line_num,
            })
        })
        .collect();
    lines.sort_by_key(|line| line.address);
    lines
}

/// Returns the names in an object's types (`struct btf_header`).
fn strings(object: &[u8]) -> Option<&[u8]> {
    const MAGIC: [u8; 8] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
    let begin = object.windows(MAGIC.len()).position(|at| at == MAGIC)?;
    let number = |at: usize| {
        let bytes = object.get(begin + at..begin + at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let (offset, length) = (number(16)?, number(20)?);
    let names = begin + 24 + offset;
    object.get(names..names + length)
}

fn string(strings: &[u8], offset: usize) -> Option<String> {
    let bytes = strings.get(offset..)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_policy;

    const DUMP: &str = "cat[12] triggered exit kind 1024:\n  runtime error (invalid CPU -3)\n\n\
        Backtrace:\n  scx_kf_exit+0x5a/0x70\n  scx_bpf_kick_cpu+0x10/0x50\n\
        \x20 bpf_prog_0123456789abcdef_help+0x21/0x40\n\
        \x20 bpf_prog_fedcba9876543210_x_enqueue+0x1b/0x9c\n  bpf__sched_ext_ops_enqueue+0x4b/0xb3\n\n\
        CPU states\n----------\n  bpf_prog_fedcba9876543210_x_tick+0x1/0x2\n";

    #[test]
    fn the_stack_of_an_error_is_read() {
        let names: Vec<&str> = frames(DUMP).iter().map(|frame| frame.symbol).collect();
        let inner = "bpf_prog_0123456789abcdef_help";
        assert_eq!(names, [inner, "bpf_prog_fedcba9876543210_x_enqueue"]);
        assert_eq!(frames(DUMP)[1].offset, 0x1b);
        let symbols = "ffffffffc0001000 t bpf_prog_0123456789abcdef_help\t[bpf]\n";
        assert_eq!(address(symbols, inner), Some(0xffff_ffff_c000_1000));
        assert_eq!(address(symbols, "bpf_prog"), None);
    }

    #[test]
    fn the_last_line_of_the_policys_own_file_is_told() {
        let line = |address, file: &str, number| Line {
            address,
            file: file.to_owned(),
            number,
        };
        let lines = [
            line(0x900, "other.bpf.c", 1),
            line(0x1000, "x.bpf.c", 7),
            line(0x1008, "x.bpf.c", 9),
            line(0x1010, "lock.h", 241),
            line(0x1020, "x.bpf.c", 10),
        ];
        let frame = |offset| Frame {
            symbol: "bpf_prog_fedcba9876543210_x_enqueue",
            offset,
        };
        let told = |offset| place(frame(offset), 0x1000, &lines);
        assert_eq!(told(0x1b).as_deref(), Some("x.bpf.c:9 (x_enqueue)"));
        assert_eq!(told(0x8).as_deref(), Some("x.bpf.c:7 (x_enqueue)"));
        let header = [line(0x1000, "lock.h", 241)];
        assert_eq!(place(frame(0x1b), 0x1000, &header), None);
    }

    #[test]
    fn an_objects_names_are_found() {
        let object = bpf_policy::resolve(bpf_policy::POLICIES[0].name).unwrap();
        let names = strings(&object.bytes).unwrap();
        assert_eq!(string(names, 0).as_deref(), Some(""));
        let own = format!("{}_ops", bpf_policy::POLICIES[0].name.replace('-', "_"));
        assert!(
            names
                .split(|byte| *byte == 0)
                .any(|name| name == own.as_bytes())
        );
    }
}
