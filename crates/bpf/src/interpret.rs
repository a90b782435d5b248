//! A plain interpreter, written for itself: what translated code is compared with.

use std::ffi::c_void;

use crate::insn::{self, Insn, alu, atomic, class, jump, mode};
use crate::program::{BUDGET, Hooks, Layout, NULL_END, Ref, STACK_BYTES, Unit};

/// The environment of a call of the interpreter, besides registers.
#[derive(Clone, Copy)]
struct Machine<'a> {
    unit: &'a Unit,
    hooks: Hooks,
    layout: Layout,
    run: *mut c_void,
}

/// Runs a function of a unit.
///
/// # Safety
/// `run` must be what the layout says, and the program may only access memory that is there: nothing is checked. Functions whose
/// addresses it takes must not be called by the host.
///
/// # Panics
/// If the unit is not valid or has no hooks.
pub unsafe fn interpret(
    unit: &Unit,
    layout: Layout,
    function: usize,
    run: *mut c_void,
    arguments: [u64; 5],
) -> u64 {
    let hooks = unit.hooks.expect("a unit that is run has hooks");
    let machine = Machine {
        unit,
        hooks,
        layout,
        run,
    };
    // SAFETY: as promised.
    unsafe { machine.call(function, arguments) }
}

impl Machine<'_> {
    unsafe fn own(&self, offset: i32) -> u64 {
        // SAFETY: as promised.
        unsafe { self.run.byte_offset(offset as isize).cast::<u64>().read() }
    }

    unsafe fn count(&self, executed: &mut u64) {
        // SAFETY: as promised.
        unsafe {
            let total = self
                .run
                .byte_offset(self.layout.executed as isize)
                .cast::<u64>();
            total.write(total.read().wrapping_add(*executed));
        }
        *executed = 0;
    }

    unsafe fn call(self, function: usize, arguments: [u64; 5]) -> u64 {
        let function = &self.unit.functions[function];
        let mut stack = [0u64; STACK_BYTES as usize / 8];
        let mut r = [0u64; 11];
        r[1..6].copy_from_slice(&arguments);
        r[10] = stack.as_mut_ptr_range().end as u64;
        let mut executed = 0u64;
        let mut pc = 0usize;
        loop {
            let insn = function.insns[pc];
            let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
            let operand = match insn.is_x() {
                true => r[src],
                false => i64::from(insn.imm) as u64,
            };
            let here = pc;
            pc += 1;
            executed += 1;
            match insn.class() {
                class::ALU64 | class::ALU => {
                    let old = r[dst];
                    r[dst] = match (insn.op(), insn.off) {
                        (alu::MOV, 1) if r[src] as u32 == 0 => 0,
                        (alu::MOV, 1) => {
                            // SAFETY: as promised.
                            let base = unsafe { self.own(self.layout.arena) };
                            base.wrapping_add(u64::from(r[src] as u32))
                        }
                        _ if insn.class() == class::ALU64 => alu64(insn, old, operand),
                        _ => alu32(insn, old, operand as u32).into(),
                    };
                    if insn.op() == alu::END {
                        r[dst] = end(insn, old);
                    }
                }
                class::LD => {
                    let reference = function.refs.get(&here).copied();
                    // SAFETY: as promised.
                    r[dst] = unsafe {
                        match reference {
                            None => insn::wide(insn, function.insns[pc]),
                            Some(Ref::Data(offset)) => {
                                self.own(self.layout.data).wrapping_add(offset)
                            }
                            Some(Ref::Arena(offset)) => {
                                self.own(self.layout.arena).wrapping_add(offset)
                            }
                            Some(Ref::Poison(number)) => {
                                self.count(&mut executed);
                                (self.hooks.poison)(self.run, number as u64, 0, 0, 0, 0);
                                return 0;
                            }
                            other => panic!("{other:?} cannot be interpreted"),
                        }
                    };
                    pc += 1;
                }
                class::LDX => {
                    let address = r[src].wrapping_add_signed(insn.off.into());
                    let value = match r[src] < NULL_END && function.of_kernel.contains(&here) {
                        true => 0,
                        // SAFETY: as promised.
                        false => unsafe { read(address, insn.bytes()) },
                    };
                    r[dst] = match insn.mode() == mode::MEMSX {
                        true => {
                            let unused = 64 - insn.bytes() * 8;
                            (((value << unused) as i64) >> unused) as u64
                        }
                        false => value,
                    };
                }
                // SAFETY: as promised.
                class::ST => unsafe {
                    let address = r[dst].wrapping_add_signed(insn.off.into());
                    write(address, insn.bytes(), i64::from(insn.imm) as u64);
                },
                // SAFETY: as promised.
                class::STX if insn.mode() == mode::ATOMIC => unsafe {
                    self.count(&mut executed);
                    self.atomic(insn, &mut r);
                },
                // SAFETY: as promised.
                class::STX => unsafe {
                    write(
                        r[dst].wrapping_add_signed(insn.off.into()),
                        insn.bytes(),
                        r[src],
                    );
                },
                _ if insn.is_exit() => {
                    // SAFETY: as promised.
                    unsafe { self.count(&mut executed) };
                    return r[0];
                }
                _ if insn.is_call() => {
                    let arguments: [u64; 5] = r[1..6].try_into().expect("there are five");
                    let [a, b, c, d, e] = arguments;
                    // SAFETY: as promised.
                    r[0] = unsafe {
                        self.count(&mut executed);
                        match function.refs[&here] {
                            Ref::Function(to) => self.call(to, arguments),
                            Ref::Host(to) => (self.unit.host[to].call)(self.run, a, b, c, d, e),
                            Ref::Poison(number) => {
                                (self.hooks.poison)(self.run, number as u64, 0, 0, 0, 0);
                                return 0;
                            }
                            other => panic!("{other:?} cannot be called"),
                        }
                    };
                }
                _ => {
                    let jumps = match insn.op() {
                        jump::JA => true,
                        // SAFETY: as promised.
                        jump::JCOND => unsafe {
                            self.count(&mut executed);
                            (self.hooks.step)(self.run, 0, 0, 0, 0, 0) == 0
                        },
                        _ if insn.class() == class::JMP => holds(
                            insn.op(),
                            (r[dst], operand),
                            (r[dst] as i64, operand as i64),
                        ),
                        _ => holds(
                            insn.op(),
                            (u64::from(r[dst] as u32), u64::from(operand as u32)),
                            (i64::from(r[dst] as i32), i64::from(operand as i32)),
                        ),
                    };
                    if jumps {
                        pc = (pc as i64 + insn.distance()) as usize;
                        if pc <= here && executed > BUDGET {
                            // SAFETY: as promised.
                            unsafe {
                                self.count(&mut executed);
                                (self.hooks.exhausted)(self.run, 0, 0, 0, 0, 0);
                            }
                            return 0;
                        }
                    }
                }
            }
        }
    }

    unsafe fn atomic(&self, insn: Insn, r: &mut [u64; 11]) {
        let (dst, src) = (usize::from(insn.dst), usize::from(insn.src));
        let is_load = insn.imm == atomic::LOAD_ACQ;
        let base = if is_load { r[src] } else { r[dst] };
        let address = base.wrapping_add_signed(insn.off.into());
        let bytes = insn.bytes();
        // SAFETY: as promised.
        unsafe {
            (self.hooks.atomic)(self.run, address, bytes.into(), u64::from(!is_load), 0, 0);
            if insn.imm == atomic::STORE_REL {
                return write(address, bytes, r[src]);
            }
            let old = read(address, bytes);
            let operand = r[src];
            let new = match insn.imm {
                atomic::LOAD_ACQ => {
                    r[dst] = old;
                    return;
                }
                atomic::XCHG => operand,
                atomic::CMPXCHG => {
                    let unused = 64 - bytes * 8;
                    match r[0] << unused == old << unused {
                        true => operand,
                        false => old,
                    }
                }
                imm => match imm & 0xf0 {
                    0x00 => old.wrapping_add(operand),
                    0x40 => old | operand,
                    0x50 => old & operand,
                    _ => old ^ operand,
                },
            };
            write(address, bytes, new);
            if insn.imm == atomic::CMPXCHG {
                r[0] = old;
            } else if insn.imm & 1 == 1 {
                r[src] = old;
            }
        }
    }
}

unsafe fn read(address: u64, bytes: u32) -> u64 {
    let mut value = [0u8; 8];
    // SAFETY: the caller's promise.
    unsafe {
        let from = address as *const u8;
        from.copy_to_nonoverlapping(value.as_mut_ptr(), bytes as usize);
    }
    u64::from_le_bytes(value)
}

unsafe fn write(address: u64, bytes: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let to = address as *mut u8;
        to.copy_from_nonoverlapping(value.to_le_bytes().as_ptr(), bytes as usize);
    }
}

fn holds(op: u8, (a, b): (u64, u64), (x, y): (i64, i64)) -> bool {
    match op {
        jump::JEQ => a == b,
        jump::JNE => a != b,
        jump::JGT => a > b,
        jump::JGE => a >= b,
        jump::JLT => a < b,
        jump::JLE => a <= b,
        jump::JSET => a & b != 0,
        jump::JSGT => x > y,
        jump::JSGE => x >= y,
        jump::JSLT => x < y,
        jump::JSLE => x <= y,
        _ => unreachable!("the verifier refuses it"),
    }
}

fn alu64(insn: Insn, a: u64, b: u64) -> u64 {
    match (insn.op(), insn.off) {
        (alu::ADD, _) => a.wrapping_add(b),
        (alu::SUB, _) => a.wrapping_sub(b),
        (alu::MUL, _) => a.wrapping_mul(b),
        (alu::DIV, 0) => a.checked_div(b).unwrap_or(0),
        (alu::DIV, _) if b == 0 => 0,
        (alu::DIV, _) => (a as i64).wrapping_div(b as i64) as u64,
        (alu::MOD, 0) => a.checked_rem(b).unwrap_or(a),
        (alu::MOD, _) if b == 0 => a,
        (alu::MOD, _) => (a as i64).wrapping_rem(b as i64) as u64,
        (alu::OR, _) => a | b,
        (alu::AND, _) => a & b,
        (alu::XOR, _) => a ^ b,
        (alu::LSH, _) => a.wrapping_shl(b as u32),
        (alu::RSH, _) => a.wrapping_shr(b as u32),
        (alu::ARSH, _) => (a as i64).wrapping_shr(b as u32) as u64,
        (alu::NEG, _) => a.wrapping_neg(),
        (alu::MOV, 8) => i64::from(b as i8) as u64,
        (alu::MOV, 16) => i64::from(b as i16) as u64,
        (alu::MOV, 32) => i64::from(b as i32) as u64,
        (alu::MOV, _) => b,
        _ => a,
    }
}

fn alu32(insn: Insn, a: u64, b: u32) -> u32 {
    let a = a as u32;
    match (insn.op(), insn.off) {
        (alu::ADD, _) => a.wrapping_add(b),
        (alu::SUB, _) => a.wrapping_sub(b),
        (alu::MUL, _) => a.wrapping_mul(b),
        (alu::DIV, 0) => a.checked_div(b).unwrap_or(0),
        (alu::DIV, _) if b == 0 => 0,
        (alu::DIV, _) => (a as i32).wrapping_div(b as i32) as u32,
        (alu::MOD, 0) => a.checked_rem(b).unwrap_or(a),
        (alu::MOD, _) if b == 0 => a,
        (alu::MOD, _) => (a as i32).wrapping_rem(b as i32) as u32,
        (alu::OR, _) => a | b,
        (alu::AND, _) => a & b,
        (alu::XOR, _) => a ^ b,
        (alu::LSH, _) => a.wrapping_shl(b),
        (alu::RSH, _) => a.wrapping_shr(b),
        (alu::ARSH, _) => (a as i32).wrapping_shr(b) as u32,
        (alu::NEG, _) => a.wrapping_neg(),
        (alu::MOV, 8) => i32::from(b as i8) as u32,
        (alu::MOV, 16) => i32::from(b as i16) as u32,
        (alu::MOV, _) => b,
        _ => a,
    }
}

fn end(insn: Insn, a: u64) -> u64 {
    let swaps = insn.class() == class::ALU64 || insn.is_x();
    match (insn.imm, swaps) {
        (16, true) => (a as u16).swap_bytes().into(),
        (16, false) => (a as u16).into(),
        (32, true) => (a as u32).swap_bytes().into(),
        (32, false) => (a as u32).into(),
        (_, true) => a.swap_bytes(),
        (_, false) => a,
    }
}
