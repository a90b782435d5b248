//! Structural verification: what the translator and the interpreter rely on. It is not the kernel's verifier: types, bounds of
//! memory and termination are not looked at.

use crate::insn::{FRAME, Insn, alu, atomic, class, jump, mode};
use crate::program::{Function, Ref, Unit};

/// Why a program cannot be translated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{function}: instruction {index}: {reason}")]
pub struct Invalid {
    pub function: String,
    /// Index of the slot.
    pub index: usize,
    pub reason: String,
}

/// Checks all functions of a unit, and that none calls itself through others.
///
/// # Errors
/// The first thing that is wrong.
pub fn verify(unit: &Unit) -> Result<(), Invalid> {
    for function in &unit.functions {
        for index in 0..function.insns.len() {
            check(unit, function, index).map_err(|reason| Invalid {
                function: function.name.clone(),
                index,
                reason,
            })?;
        }
        check_end(function)?;
    }
    check_recursion(unit)
}

fn check_end(function: &Function) -> Result<(), Invalid> {
    let last = function.insns.last();
    match last.is_some_and(|insn| insn.is_final()) {
        true => Ok(()),
        false => Err(Invalid {
            function: function.name.clone(),
            index: function.insns.len().saturating_sub(1),
            reason: "the function does not end by `exit` or a jump".to_owned(),
        }),
    }
}

/// Which slots begin an instruction.
pub fn beginnings(insns: &[Insn]) -> Vec<bool> {
    let mut begins = vec![true; insns.len()];
    let mut index = 0;
    while index < insns.len() {
        if insns[index].is_wide() {
            if let Some(next) = begins.get_mut(index + 1) {
                *next = false;
            }
            index += 1;
        }
        index += 1;
    }
    begins
}

fn check(unit: &Unit, function: &Function, index: usize) -> Result<(), String> {
    let insns = &function.insns;
    let insn = insns[index];
    // The second slot of a wide instruction has code 0; whether that is one is known from the slot before it.
    if insn.code == 0 && index > 0 && insns[index - 1].is_wide() {
        return Ok(());
    }
    if insn.dst > FRAME || insn.src > FRAME {
        return Err("there are registers r0 to r10 only".to_owned());
    }
    let unknown = || Err(format!("opcode {:#04x} is unknown", insn.code));
    match insn.class() {
        class::ALU | class::ALU64 => {
            written(insn.dst)?;
            check_alu(insn)
        }
        class::JMP | class::JMP32 => match insn.op() {
            jump::CALL if insn.is_call() => match function.refs.get(&index) {
                Some(Ref::Function(to)) if *to < unit.functions.len() => Ok(()),
                Some(Ref::Host(to)) if *to < unit.host.len() => Ok(()),
                Some(Ref::Poison(to)) if *to < unit.poison.len() => Ok(()),
                _ => Err("the call leads nowhere".to_owned()),
            },
            jump::EXIT if insn.is_exit() => Ok(()),
            _ => check_jump(insns, index),
        },
        class::LD if insn.is_wide() => {
            written(insn.dst)?;
            match insns.get(index + 1) {
                Some(next) if next.code == 0 => {}
                _ => return Err("its second half is missing".to_owned()),
            }
            let known = match function.refs.get(&index) {
                Some(Ref::Function(to)) => *to < unit.functions.len(),
                Some(Ref::Poison(to)) => *to < unit.poison.len(),
                Some(Ref::Host(_)) => false,
                Some(Ref::Data(_) | Ref::Arena(_)) => true,
                None => insn.src == 0,
            };
            match known {
                true => Ok(()),
                false => Err("it loads what is not resolved".to_owned()),
            }
        }
        class::LDX if insn.mode() == mode::MEM => written(insn.dst),
        class::LDX if insn.mode() == mode::MEMSX && insn.bytes() < 8 => written(insn.dst),
        class::ST if insn.mode() == mode::MEM => Ok(()),
        class::STX if insn.mode() == mode::MEM => Ok(()),
        class::STX if insn.mode() == mode::ATOMIC => check_atomic(insn),
        _ => unknown(),
    }
}

fn written(register: u8) -> Result<(), String> {
    match register == FRAME {
        true => Err("r10 is read-only".to_owned()),
        false => Ok(()),
    }
}

fn check_alu(insn: Insn) -> Result<(), String> {
    let is_64 = insn.class() == class::ALU64;
    let known = match insn.op() {
        alu::DIV | alu::MOD => matches!(insn.off, 0 | 1),
        alu::MOV if insn.is_x() => match insn.off {
            0 => true,
            // Of an address space cast the immediate has both spaces.
            1 => is_64 && matches!(insn.imm, 1 | 0x1_0000),
            8 | 16 => true,
            32 => is_64,
            _ => false,
        },
        alu::END => {
            let width = matches!(insn.imm, 16 | 32 | 64);
            width && insn.off == 0 && !(is_64 && insn.is_x())
        }
        alu::NEG => !insn.is_x() && insn.off == 0,
        alu::LSH | alu::RSH | alu::ARSH if !insn.is_x() => {
            let bits = if is_64 { 64 } else { 32 };
            insn.off == 0 && (0..bits).contains(&insn.imm)
        }
        op => op <= alu::END && insn.off == 0,
    };
    match known {
        true => Ok(()),
        false => Err(format!(
            "opcode {:#04x} with offset {} and immediate {} is unknown",
            insn.code, insn.off, insn.imm
        )),
    }
}

fn check_atomic(insn: Insn) -> Result<(), String> {
    let size = insn.bytes();
    let known = match insn.imm {
        atomic::LOAD_ACQ => {
            written(insn.dst)?;
            true
        }
        atomic::STORE_REL => true,
        atomic::XCHG => {
            written(insn.src)?;
            size >= 4
        }
        atomic::CMPXCHG => size >= 4,
        imm => {
            if imm & atomic::FETCH != 0 {
                written(insn.src)?;
            }
            let op = imm & !atomic::FETCH;
            size >= 4 && [atomic::ADD, atomic::OR, atomic::AND, atomic::XOR].contains(&op)
        }
    };
    match known {
        true => Ok(()),
        false => Err(format!(
            "there is no atomic operation {:#x} of {size} bytes",
            insn.imm
        )),
    }
}

fn check_jump(insns: &[Insn], index: usize) -> Result<(), String> {
    let insn = insns[index];
    let known = match insn.op() {
        jump::JA => !insn.is_x(),
        jump::JCOND => insn.class() == class::JMP && insn.src == 0 && insn.dst == 0 && !insn.is_x(),
        jump::CALL | jump::EXIT => false,
        op => op <= jump::JSLE,
    };
    if !known {
        return Err(format!("opcode {:#04x} is unknown", insn.code));
    }
    let target = index as i64 + 1 + insn.distance();
    let inside = usize::try_from(target).ok().filter(|to| *to < insns.len());
    match inside {
        Some(to) if to == 0 || !(insns[to].code == 0 && insns[to - 1].is_wide()) => {}
        _ => return Err(format!("it jumps to {target}, where no instruction begins")),
    }
    if insn.op() != jump::JA && index + 1 >= insns.len() {
        return Err("the function goes on behind its end".to_owned());
    }
    Ok(())
}

/// Calls, and addresses that are loaded to be called back, must not form a circle: the stack would have no bound.
fn check_recursion(unit: &Unit) -> Result<(), Invalid> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    let mut seen = vec![Seen::No; unit.functions.len()];
    for start in 0..unit.functions.len() {
        if seen[start] != Seen::No {
            continue;
        }
        seen[start] = Seen::Above;
        let callees = |of: usize| {
            let function = &unit.functions[of];
            let refs = function
                .refs
                .iter()
                .filter(|(at, _)| function.insns[**at].is_call());
            let to = refs.filter_map(|(at, reference)| match reference {
                Ref::Function(to) => Some((*at, *to)),
                _ => None,
            });
            to.collect::<Vec<_>>()
        };
        let mut path = vec![(start, callees(start))];
        while let Some((function, rest)) = path.last_mut() {
            let function = *function;
            let Some((at, to)) = rest.pop() else {
                seen[function] = Seen::Done;
                path.pop();
                continue;
            };
            match seen[to] {
                Seen::Done => {}
                Seen::Above => {
                    return Err(Invalid {
                        function: unit.functions[function].name.clone(),
                        index: at,
                        reason: format!("{} calls itself", unit.functions[to].name),
                    });
                }
                Seen::No => {
                    seen[to] = Seen::Above;
                    path.push((to, callees(to)));
                }
            }
        }
    }
    Ok(())
}
