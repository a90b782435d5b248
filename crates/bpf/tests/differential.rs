//! Native code does what the interpreter does.

mod random;

use std::ffi::c_void;

use random::{LAYOUT, Run, compare, unit};
use schedlab_bpf::insn::{Insn, X, alu, class, jump, mode};
use schedlab_bpf::interpret::interpret;
use schedlab_bpf::program::{BUDGET, Function};
use schedlab_bpf::translate::translate;

/// A million by `cargo run --release -p schedlab-bpf --example differential -- 1000000`.
#[test]
fn random_programs_do_the_same_natively() {
    compare(2_000, 1, |_| {});
}

const EXIT: Insn = Insn {
    code: class::JMP | jump::EXIT,
    dst: 0,
    src: 0,
    off: 0,
    imm: 0,
};

fn alu(is_64: bool, op: u8, off: i16, imm: i32) -> Function {
    let class = if is_64 { class::ALU64 } else { class::ALU };
    let moved = Insn {
        code: class::ALU64 | alu::MOV | X,
        dst: 0,
        src: 1,
        off: 0,
        imm: 0,
    };
    let insn = Insn {
        code: class | op | X,
        dst: 0,
        src: 2,
        off,
        imm,
    };
    Function {
        name: "alu".to_owned(),
        insns: vec![moved, insn, EXIT],
        ..Function::default()
    }
}

/// Hand-computed: the corner cases of the instruction set's standard, section "Arithmetic instructions".
#[test]
fn divisions_and_extensions_have_the_results_of_the_standard() {
    let min = i64::MIN as u64;
    let min32 = i32::MIN as u32;
    let cases: &[(bool, u8, i16, u64, u64, u64)] = &[
        (true, alu::DIV, 0, 7, 0, 0),
        (true, alu::MOD, 0, 7, 0, 7),
        (false, alu::DIV, 0, 0xf_0000_0007, 0xf_0000_0000, 0),
        (false, alu::MOD, 0, 0xf_0000_0007, 0, 7),
        (true, alu::DIV, 1, min, u64::MAX, min),
        (true, alu::MOD, 1, min, u64::MAX, 0),
        (true, alu::DIV, 1, -13i64 as u64, 4, -3i64 as u64),
        (true, alu::MOD, 1, -13i64 as u64, 4, -1i64 as u64),
        (true, alu::MOD, 1, -13i64 as u64, 0, -13i64 as u64),
        (false, alu::DIV, 1, min32.into(), 0xffff_ffff, min32.into()),
        (false, alu::MOD, 1, min32.into(), 0xffff_ffff, 0),
        (
            false,
            alu::DIV,
            1,
            -13i32 as u32 as u64,
            4,
            -3i32 as u32 as u64,
        ),
        (true, alu::LSH, 0, 1, 65, 2),
        (false, alu::LSH, 0, 1, 33, 2),
        (false, alu::ARSH, 0, 0x8000_0000, 31, 0xffff_ffff),
        (true, alu::ARSH, 0, min, 63, u64::MAX),
        (false, alu::ADD, 0, 0xffff_ffff, 1, 0),
        (true, alu::MOV, 8, 0, 0x80, -128i64 as u64),
        (false, alu::MOV, 16, 0, 0x8000, 0xffff_8000),
        (true, alu::MOV, 32, 0, 0x8000_0000, 0xffff_ffff_8000_0000),
    ];
    for &(is_64, op, off, left, right, expected) in cases {
        let unit = unit(vec![alu(is_64, op, off, 0)]);
        let code = translate(&unit, LAYOUT).unwrap();
        let mut run = Run::new(0);
        let pointer = (&raw mut run).cast::<c_void>();
        // SAFETY: it accesses nothing.
        let (native, plain) = unsafe {
            let native = code.entry(0)(pointer, left, right, 0, 0, 0);
            (
                native,
                interpret(&unit, LAYOUT, 0, pointer, [left, right, 0, 0, 0]),
            )
        };
        let case = format!("{op:#x} {off} {left:#x} {right:#x}");
        assert_eq!((native, plain), (expected, expected), "{case}");
    }
}

#[test]
fn a_loop_without_end_ends() {
    let code = class::JMP | jump::JA;
    let endless = Function {
        name: "endless".to_owned(),
        insns: vec![
            Insn {
                code,
                off: -1,
                ..Insn::default()
            },
            EXIT,
        ],
        ..Function::default()
    };
    let unit = unit(vec![endless]);
    let code = translate(&unit, LAYOUT).unwrap();
    let mut run = Run::new(0);
    // SAFETY: it accesses nothing.
    let result = unsafe { code.entry(0)((&raw mut run).cast(), 0, 0, 0, 0, 0) };
    assert_eq!((result, run.executed), (0, BUDGET + 1));
    assert_ne!(run.heard, 0, "the hook was called");
}

/// Two pages from the beginning of one on.
#[repr(align(4096))]
struct Pages([u64; 1024]);

/// An instruction without an immediate value.
fn of(code: u8, dst: u8, src: u8, off: i16) -> Insn {
    Insn {
        code,
        dst,
        src,
        off,
        ..Insn::default()
    }
}

const LOAD: u8 = class::LDX | mode::MEM | 0x18;
const STORE: u8 = class::STX | mode::MEM | 0x18;

/// Runs instructions on memory twice, and once more after all accesses were forgotten. Returns the accesses that the host was
/// asked about each time: offsets, bytes, and whether they write.
fn asked(insns: Vec<Insn>) -> [Vec<(u64, u64, bool)>; 3] {
    let function = Function {
        name: "accesses".to_owned(),
        insns,
        ..Function::default()
    };
    let unit = unit(vec![function]);
    let code = translate(&unit, LAYOUT).unwrap();
    let mut run = Run::new(0);
    let mut memory = Pages([0; 1024]);
    let at = memory.0.as_mut_ptr() as u64;
    [0, 1, 2].map(|time| {
        if time == 2 {
            run.seen.forget();
        }
        // SAFETY: it accesses `memory` and its stack.
        unsafe { code.entry(0)((&raw mut run).cast(), at, 0, 0, 0, 0) };
        let asked = std::mem::take(&mut run.asked).into_iter();
        asked
            .map(|(of, bytes, writes)| (of - at, bytes, writes))
            .collect()
    })
}

#[test]
fn the_host_is_asked_once_about_memory_that_is_not_the_stack() {
    let insns = vec![
        of(STORE, 10, 1, -8),
        of(LOAD, 2, 1, 0),
        of(LOAD, 3, 1, 8),
        of(STORE, 1, 2, 0),
        of(LOAD, 2, 1, 0),
        of(class::STX | mode::MEM | 0x08, 1, 2, 20),
        of(class::ALU64 | alu::MOV | X, 2, 10, 0),
        of(LOAD, 4, 2, -8),
        // The same pointer, which was kept in memory.
        of(LOAD, 2, 4, 0),
        EXIT,
    ];
    let all = [(0, 8, false), (0, 8, true), (20, 2, true)];
    assert_eq!(asked(insns), [&all[..], &[], &all]);
}

#[test]
fn the_host_is_asked_again_about_memory_whose_place_another_piece_took() {
    let insns = vec![
        of(STORE, 1, 2, 0),
        of(LOAD, 3, 1, 8),
        of(LOAD, 3, 1, 4088),
        of(LOAD, 3, 1, 4096),
        // The write is not known any more.
        of(LOAD, 3, 1, 0),
        EXIT,
    ];
    let (write, read, another) = ((0, 8, true), (0, 8, false), (4096, 8, false));
    let all = [write, (4088, 8, false), another, read];
    let again = [write, another, read];
    assert_eq!(asked(insns), [&all[..], &again, &all]);
}

#[test]
fn code_knows_its_instructions() {
    let unit = unit(vec![alu(true, alu::ADD, 0, 0), alu(true, alu::DIV, 1, 0)]);
    let code = translate(&unit, LAYOUT).unwrap();
    let range = code.range();
    let mut found: Vec<(usize, usize)> = range.clone().filter_map(|at| code.place(at)).collect();
    found.sort_unstable();
    found.dedup();
    assert!(
        found.contains(&(1, 1)) && found.contains(&(0, 1)),
        "{found:?}"
    );
    assert_eq!(code.place(range.end), None);
    let entry = code.entry(1) as usize;
    assert_eq!(code.place(entry).map(|(function, _)| function), Some(1));
}

#[test]
fn what_is_no_program_is_refused_by_place() {
    let refuse = |insns: Vec<Insn>| {
        let function = Function {
            name: "f".to_owned(),
            insns,
            ..Function::default()
        };
        translate(&unit(vec![function]), LAYOUT)
            .unwrap_err()
            .to_string()
    };
    let insn = |code, dst, off, imm| Insn {
        code,
        dst,
        src: 0,
        off,
        imm,
    };
    assert_eq!(
        refuse(vec![]),
        "f: instruction 0: the function does not end by `exit` or a jump"
    );
    assert_eq!(
        refuse(vec![insn(0x8d, 0, 0, 0), EXIT]),
        "f: instruction 0: opcode 0x8d is unknown"
    );
    assert_eq!(
        refuse(vec![insn(0xb7, 10, 0, 0), EXIT]),
        "f: instruction 0: r10 is read-only"
    );
    assert_eq!(
        refuse(vec![insn(0x05, 0, 5, 0), EXIT]),
        "f: instruction 0: it jumps to 6, where no instruction begins"
    );
    assert_eq!(
        refuse(vec![insn(0x85, 0, 0, 0), EXIT]),
        "f: instruction 0: the call leads nowhere"
    );
    assert_eq!(
        refuse(vec![insn(0x67, 0, 0, 64), EXIT]),
        "f: instruction 0: opcode 0x67 with offset 0 and immediate 64 is unknown"
    );
}
