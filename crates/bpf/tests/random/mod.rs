//! Random valid programs, run by the interpreter and as native code.

use std::ffi::c_void;
use std::mem::offset_of;

use rand_core::{RngCore, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use schedlab_bpf::insn::{Insn, LD_IMM64, X, alu, atomic, class, jump, mode};
use schedlab_bpf::interpret::interpret;
use schedlab_bpf::program::{Function, Hooks, HostFunction, Layout, Ref, Unit};
use schedlab_bpf::seen::Seen;
use schedlab_bpf::translate::translate;

/// Bytes that programs may access from r6 on.
const BUFFER: usize = 256;

/// The data of one run.
#[repr(C)]
pub struct Run {
    data: u64,
    arena: u64,
    pub executed: u64,
    /// Steps of `may_goto` that are left.
    steps: u64,
    /// Of all calls of the host, in order.
    pub heard: u64,
    /// The accesses that the host was asked about: addresses, bytes, and whether they write. The interpreter does not ask.
    pub asked: Vec<(u64, u64, bool)>,
    pub seen: Seen,
    pub buffer: [u8; BUFFER],
}

impl Run {
    pub fn new(seed: u64) -> Run {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut buffer = [0; BUFFER];
        rng.fill_bytes(&mut buffer);
        Run {
            data: 0x1234_5678_9abc,
            arena: 0x7_0000_0000,
            executed: 0,
            steps: 50,
            heard: 0,
            asked: Vec::new(),
            seen: Seen::default(),
            buffer,
        }
    }

    fn hear(&mut self, what: u64) {
        self.heard = (self.heard ^ what)
            .wrapping_mul(0x100_0000_01b3)
            .rotate_left(7);
    }
}

pub const LAYOUT: Layout = Layout {
    data: offset_of!(Run, data) as i32,
    arena: offset_of!(Run, arena) as i32,
    executed: offset_of!(Run, executed) as i32,
    seen: offset_of!(Run, seen) as i32,
};

unsafe fn hear(run: *mut c_void, what: u64) -> u64 {
    // SAFETY: programs are entered with a `Run`.
    let run = unsafe { &mut *run.cast::<Run>() };
    run.hear(what ^ run.executed << 32);
    run.heard
}

unsafe extern "C" fn mix(run: *mut c_void, a: u64, b: u64, c: u64, d: u64, e: u64) -> u64 {
    let all = a ^ b.rotate_left(13) ^ c.rotate_left(26) ^ d.rotate_left(39) ^ e.rotate_left(52);
    // SAFETY: as in `hear`.
    unsafe { hear(run, all) }
}

unsafe extern "C" fn atomic_hook(
    run: *mut c_void,
    at: u64,
    bytes: u64,
    writes: u64,
    _: u64,
    _: u64,
) -> u64 {
    let buffer = run as u64 + offset_of!(Run, buffer) as u64;
    // Stacks lie elsewhere in the interpreter than in native code.
    let at = at.wrapping_sub(buffer);
    let at = if at < BUFFER as u64 { at } else { 0 };
    // SAFETY: as in `hear`.
    unsafe { hear(run, at << 8 | bytes << 1 | writes) }
}

unsafe extern "C" fn step(run: *mut c_void, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `hear`.
    let run = unsafe { &mut *run.cast::<Run>() };
    run.hear(3);
    run.steps = run.steps.saturating_sub(1);
    run.steps
}

unsafe extern "C" fn poison(run: *mut c_void, number: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `hear`.
    unsafe { hear(run, number + 77) }
}

unsafe extern "C" fn exhausted(run: *mut c_void, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    // SAFETY: as in `hear`.
    unsafe { hear(run, 99) }
}

unsafe extern "C" fn load(run: *mut c_void, at: u64, bytes: u64) {
    // SAFETY: as in `hear`.
    let run = unsafe { &mut *run.cast::<Run>() };
    run.asked.push((at, bytes, false));
}

unsafe extern "C" fn store(run: *mut c_void, at: u64, bytes: u64) {
    // SAFETY: as in `hear`.
    let run = unsafe { &mut *run.cast::<Run>() };
    run.asked.push((at, bytes, true));
}

/// No function here reads a field that a kernel brings up to date.
unsafe extern "C" fn read(_: *mut c_void, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    unreachable!("no field is live")
}

pub const HOOKS: Hooks = Hooks {
    load,
    store,
    atomic: atomic_hook,
    step,
    read,
    poison,
    exhausted,
};

pub fn unit(functions: Vec<Function>) -> Unit {
    Unit {
        functions,
        host: vec![HostFunction {
            name: "mix".to_owned(),
            call: mix,
        }],
        poison: vec!["poison".to_owned()],
        hooks: Some(HOOKS),
    }
}

/// Writes one function.
struct Writer<'r> {
    rng: &'r mut Pcg64Mcg,
    function: Function,
}

/// Registers that programs compute with; r6 is the buffer, r9 counts loops, r10 is the stack.
const FREE: [u8; 8] = [0, 1, 2, 3, 4, 5, 7, 8];

impl Writer<'_> {
    fn below(&mut self, n: u32) -> u32 {
        self.rng.next_u32() % n
    }

    fn chance(&mut self, of: u32) -> bool {
        self.below(of) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u32);
        from[index as usize]
    }

    fn number(&mut self) -> u64 {
        let edges = [
            0,
            1,
            u64::MAX,
            1 << 31,
            (1 << 31) - 1,
            1 << 32,
            1 << 63,
            (1 << 63) - 1,
            0xffff_ffff,
        ];
        match self.below(3) {
            0 => self.pick(&edges),
            1 => u64::from(self.below(64)),
            _ => self.rng.next_u64(),
        }
    }

    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.function.insns.push(Insn {
            code,
            dst,
            src,
            off,
            imm,
        });
    }

    fn wide(&mut self, dst: u8, number: u64) {
        self.push(LD_IMM64, dst, 0, 0, number as i32);
        self.push(0, 0, 0, 0, (number >> 32) as i32);
    }

    fn arithmetic(&mut self) {
        let is_64 = self.chance(2);
        let class = if is_64 { class::ALU64 } else { class::ALU };
        let (dst, src) = (self.pick(&FREE), self.pick(&FREE));
        let op = self.below(14) as u8 * 0x10;
        let x = if self.chance(2) { X } else { 0 };
        let number = self.number() as i32;
        let imm = if x == 0 { number } else { 0 };
        match op {
            alu::DIV | alu::MOD => {
                let signed = self.below(2) as i16;
                self.push(class | op | x, dst, src * (x >> 3), signed, imm);
            }
            alu::NEG => self.push(class | op, dst, 0, 0, 0),
            alu::END => {
                let width = self.pick(&[16, 32, 64]);
                let to_big = if is_64 { 0 } else { x };
                self.push(class | op | to_big, dst, 0, 0, width);
            }
            alu::MOV if x != 0 => {
                let widths: &[i16] = if is_64 {
                    &[0, 1, 8, 16, 32]
                } else {
                    &[0, 8, 16]
                };
                let off = self.pick(widths);
                let spaces = self.pick(&[1, 0x1_0000]);
                self.push(
                    class | op | x,
                    dst,
                    src,
                    off,
                    if off == 1 { spaces } else { 0 },
                );
            }
            alu::LSH | alu::RSH | alu::ARSH if x == 0 => {
                let by = self.below(if is_64 { 64 } else { 32 }) as i32;
                self.push(class | op, dst, 0, 0, by);
            }
            _ => self.push(class | op | x, dst, src * (x >> 3), 0, imm),
        }
    }

    /// A base register and an offset of 8 bytes that are there.
    fn place(&mut self) -> (u8, i16) {
        match self.chance(2) {
            true => (6, self.below(BUFFER as u32 - 8) as i16),
            false => (10, -8 - self.below(504) as i16),
        }
    }

    fn access(&mut self) {
        let (base, off) = self.place();
        let register = self.pick(&FREE);
        let size = self.pick(&[0x00, 0x08, 0x10, 0x18]);
        let imm = self.number() as i32;
        match self.below(5) {
            0 => self.push(class::LDX | mode::MEM | size, register, base, off, 0),
            1 if size != 0x18 => self.push(class::LDX | mode::MEMSX | size, register, base, off, 0),
            2 => self.push(class::ST | mode::MEM | size, base, 0, off, imm),
            3 => self.push(class::STX | mode::MEM | size, base, register, off, 0),
            _ => {
                let size = self.pick(&[0x00, 0x18]);
                let plain = [atomic::ADD, atomic::OR, atomic::AND, atomic::XOR];
                let fetch = self.below(2) as i32;
                let code = class::STX | mode::ATOMIC | size;
                match self.below(5) {
                    0 => self.push(code, base, register, off, atomic::XCHG),
                    1 => self.push(code, base, register, off, atomic::CMPXCHG),
                    2 => self.push(code, register, base, off, atomic::LOAD_ACQ),
                    3 => self.push(code, base, register, off, atomic::STORE_REL),
                    _ => {
                        let op = self.pick(&plain) | fetch;
                        self.push(code, base, register, off, op);
                    }
                }
            }
        }
    }

    fn condition(&mut self, off: i16) {
        let class = if self.chance(2) {
            class::JMP
        } else {
            class::JMP32
        };
        let op = self.pick(&[
            jump::JEQ,
            jump::JGT,
            jump::JGE,
            jump::JSET,
            jump::JNE,
            jump::JSGT,
            jump::JSGE,
            jump::JLT,
            jump::JLE,
            jump::JSLT,
            jump::JSLE,
        ]);
        let (dst, src) = (self.pick(&FREE), self.pick(&FREE));
        let imm = self.number() as i32;
        match self.chance(2) {
            true => self.push(class | op | X, dst, src, off, 0),
            false => self.push(class | op, dst, 0, off, imm),
        }
    }

    fn call(&mut self, callees: &[usize]) {
        let at = self.function.insns.len();
        if callees.is_empty() || self.chance(2) {
            self.push(class::JMP | jump::CALL, 0, 0, 0, 0);
            self.function.refs.insert(at, Ref::Host(0));
        } else {
            let to = self.pick(callees);
            self.push(class::ALU64 | alu::MOV | X, 1, 6, 0, 0);
            self.push(class::JMP | jump::CALL, 0, 1, 0, 0);
            self.function.refs.insert(at + 1, Ref::Function(to));
            // The buffer's address is no number to compute with.
            self.push(class::ALU64 | alu::MOV, 1, 0, 0, 5);
        }
    }

    fn some(&mut self, callees: &[usize], depth: u32) {
        match self.below(20) {
            0..=8 => self.arithmetic(),
            9..=13 => self.access(),
            14 => {
                let (dst, number) = (self.pick(&FREE), self.number());
                let at = self.function.insns.len();
                self.wide(dst, number);
                let place = u64::from(self.below(1000));
                match self.below(4) {
                    0 => drop(self.function.refs.insert(at, Ref::Data(place))),
                    1 => drop(self.function.refs.insert(at, Ref::Arena(place))),
                    _ => {}
                }
            }
            15 => self.call(callees),
            // Over some others.
            16..=17 if depth < 3 => {
                let at = self.function.insns.len();
                self.condition(0);
                for _ in 0..1 + self.below(4) {
                    self.some(callees, depth + 1);
                }
                if self.chance(40) {
                    let at = self.function.insns.len();
                    self.push(class::JMP | jump::CALL, 0, 0, 0, 0);
                    self.function.refs.insert(at, Ref::Poison(0));
                }
                let behind = self.function.insns.len();
                self.function.insns[at].off = (behind - at - 1) as i16;
            }
            // A loop of a few steps.
            18 if depth == 0 => {
                let times = 1 + self.below(5) as i32;
                self.push(class::ALU64 | alu::MOV, 9, 0, 0, times);
                let at = self.function.insns.len();
                for _ in 0..1 + self.below(4) {
                    self.some(callees, depth + 1);
                }
                self.push(class::ALU64 | alu::SUB, 9, 0, 0, 1);
                let here = self.function.insns.len();
                self.push(
                    class::JMP | jump::JSGT,
                    9,
                    0,
                    (at as i64 - here as i64 - 1) as i16,
                    0,
                );
            }
            // One that `may_goto` ends.
            19 if depth == 0 => {
                let at = self.function.insns.len();
                self.push(class::JMP | jump::JCOND, 0, 0, 0, 0);
                for _ in 0..1 + self.below(3) {
                    self.some(callees, depth + 1);
                }
                let here = self.function.insns.len();
                self.push(
                    class::JMP32 | jump::JA,
                    0,
                    0,
                    0,
                    (at as i64 - here as i64 - 1) as i32,
                );
                self.function.insns[at].off = (here - at) as i16;
            }
            _ => self.arithmetic(),
        }
    }
}

fn function(rng: &mut Pcg64Mcg, callees: &[usize], length: u32) -> Function {
    let mut writer = Writer {
        rng,
        function: Function::default(),
    };
    writer.push(class::ALU64 | alu::MOV | X, 6, 1, 0, 0);
    for register in FREE {
        let number = writer.number();
        if register == 1 || writer.chance(2) {
            writer.wide(register, number);
        }
    }
    for _ in 0..length {
        writer.some(callees, 0);
    }
    writer.push(class::JMP | jump::EXIT, 0, 0, 0, 0);
    writer.function
}

/// Programs of one unit: those with an even number call the next one.
const AT_ONCE: usize = 32;

/// Compares so many programs, from a seed on.
///
/// # Panics
/// Where native code and the interpreter differ, with the program.
pub fn compare(programs: usize, seed: u64, mut progress: impl FnMut(usize)) {
    let mut done = 0;
    let mut batch = seed;
    while done < programs {
        let mut rng = Pcg64Mcg::seed_from_u64(batch);
        let functions = (0..AT_ONCE).map(|index| {
            let length = 4 + rng.next_u32() % 24;
            let callees = if index % 2 == 0 {
                vec![index + 1]
            } else {
                Vec::new()
            };
            function(&mut rng, &callees, length)
        });
        let unit = unit(functions.collect());
        let code = translate(&unit, LAYOUT).unwrap_or_else(|error| panic!("seed {batch}: {error}"));
        for index in 0..AT_ONCE.min(programs - done) {
            check(&unit, &code, index, batch);
        }
        done += AT_ONCE;
        batch = batch.wrapping_add(1);
        progress(done.min(programs));
    }
}

fn check(unit: &Unit, code: &schedlab_bpf::translate::Code, index: usize, seed: u64) {
    let mut run = Box::new(Run::new(seed));
    let pointer = (&raw mut *run).cast::<c_void>();
    let buffer = (&raw mut run.buffer) as u64;
    // SAFETY: the generator writes only accesses of the buffer and the stack.
    let plain = unsafe { interpret(unit, LAYOUT, index, pointer, [buffer, 2, 3, 4, 5]) };
    let first = std::mem::replace(&mut *run, Run::new(seed));
    let entry = code.entry(index);
    // SAFETY: as above.
    let native = unsafe { entry(pointer, buffer, 2, 3, 4, 5) };
    let same = plain == native
        && first.executed == run.executed
        && first.heard == run.heard
        && first.buffer == run.buffer;
    assert!(
        same,
        "seed {seed}, program {index}: r0 {plain:#x} {native:#x}, executed {} {}, heard {:#x} {:#x}, buffer the same: {}\n{:#?}",
        first.executed,
        run.executed,
        first.heard,
        run.heard,
        first.buffer == run.buffer,
        unit.functions[index]
    );
}
