//! The loads and stores of a function that certainly go to memory which no other CPU can see: its own stack, and the arguments of
//! an op.

use std::collections::BTreeSet;

use crate::insn::{FRAME, Insn, alu, atomic, class, jump, mode};

/// A set of registers, by their bits.
type Registers = u16;

fn bit(register: u8) -> Registers {
    1 << register
}

/// Returns the indices of loads and stores through a pointer that was made of the frame's in registers alone, on each way to them,
/// or of the pointer that a program is called with (`is_program`). A pointer that was kept in memory, or that another function
/// gives, is not known.
pub fn accesses(insns: &[Insn], is_program: bool) -> BTreeSet<usize> {
    // Of each instruction that can be reached, the registers that point to such memory before it.
    let mut before: Vec<Option<Registers>> = vec![None; insns.len()];
    let context = if is_program { bit(1) } else { 0 };
    let mut open = vec![(0, bit(FRAME) | context)];
    while let Some((index, registers)) = open.pop() {
        let Some(known) = before.get_mut(index) else {
            continue;
        };
        let both = known.map_or(registers, |known| known & registers);
        if *known == Some(both) {
            continue;
        }
        *known = Some(both);
        let insn = insns[index];
        let after = behind(insn, both);
        if insn.is_jump() {
            let to = (index as i64 + 1 + insn.distance()) as usize;
            open.push((to, after));
        }
        if !insn.is_final() {
            open.push((index + 1 + usize::from(insn.is_wide()), after));
        }
    }
    let is_private = |(index, registers): (usize, &Option<Registers>)| {
        let base = base(insns[index])?;
        ((*registers)? & bit(base) != 0).then_some(index)
    };
    before.iter().enumerate().filter_map(is_private).collect()
}

/// The register through which an instruction loads or stores.
pub fn base(insn: Insn) -> Option<u8> {
    let is_load = insn.mode() == mode::ATOMIC && insn.imm == atomic::LOAD_ACQ;
    match insn.class() {
        class::LDX => Some(insn.src),
        class::STX if is_load => Some(insn.src),
        class::ST | class::STX => Some(insn.dst),
        _ => None,
    }
}

/// The registers that point to such memory behind an instruction.
fn behind(insn: Insn, registers: Registers) -> Registers {
    let has = |register: u8| registers & bit(register) != 0;
    let with = |register: u8, points: bool| match points {
        true => registers | bit(register),
        false => registers & !bit(register),
    };
    match insn.class() {
        class::ALU64 => {
            let of_src = insn.is_x() && has(insn.src);
            let points = match insn.op() {
                alu::MOV => insn.off == 0 && of_src,
                alu::ADD => has(insn.dst) != of_src,
                alu::SUB => has(insn.dst) && !of_src,
                _ => false,
            };
            with(insn.dst, points)
        }
        class::ALU | class::LD | class::LDX => with(insn.dst, false),
        class::STX if insn.mode() == mode::ATOMIC => match insn.imm {
            atomic::CMPXCHG => with(0, false),
            atomic::LOAD_ACQ => with(insn.dst, false),
            atomic::STORE_REL => registers,
            imm if imm & atomic::FETCH != 0 => with(insn.src, false),
            _ => registers,
        },
        class::JMP if insn.op() == jump::CALL => registers & !0b11_1111,
        _ => registers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::X;

    fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn {
            code,
            dst,
            src,
            off,
            imm,
        }
    }

    fn own(insns: &[Insn]) -> Vec<usize> {
        accesses(insns, false).into_iter().collect()
    }

    const LOAD: u8 = class::LDX | 0x18 | 0x60;
    const STORE: u8 = class::STX | 0x18 | 0x60;
    const MOV: u8 = class::ALU64 | alu::MOV | X;
    const ADD_IMM: u8 = class::ALU64 | alu::ADD;

    #[test]
    fn pointers_into_the_frame_are_followed_through_registers() {
        let exit = insn(class::JMP | jump::EXIT, 0, 0, 0, 0);
        let program = [
            insn(STORE, 10, 1, -8, 0),
            insn(MOV, 2, 10, 0, 0),
            insn(ADD_IMM, 2, 0, 0, -16),
            insn(LOAD, 3, 2, 0, 0),
            // A pointer that was loaded goes elsewhere, and so does an argument.
            insn(LOAD, 4, 3, 0, 0),
            insn(LOAD, 4, 1, 0, 0),
            insn(class::JMP | jump::CALL, 0, 0, 0, 1),
            // A call leaves nothing in r2.
            insn(LOAD, 4, 2, 0, 0),
            insn(LOAD, 4, 10, -8, 0),
            exit,
        ];
        assert_eq!(own(&program), [0, 3, 8]);
    }

    #[test]
    fn the_arguments_of_a_program_are_its_own() {
        let program = [
            insn(MOV, 6, 1, 0, 0),
            insn(LOAD, 2, 1, 0, 0),
            // The first argument points elsewhere.
            insn(LOAD, 3, 2, 0, 0),
            insn(class::JMP | jump::CALL, 0, 0, 0, 1),
            insn(LOAD, 4, 6, 8, 0),
            insn(class::JMP | jump::EXIT, 0, 0, 0, 0),
        ];
        let found: Vec<usize> = accesses(&program, true).into_iter().collect();
        assert_eq!(found, [1, 4]);
        assert_eq!(own(&program), []);
    }

    #[test]
    fn what_one_way_alone_knows_is_not_known() {
        let exit = insn(class::JMP | jump::EXIT, 0, 0, 0, 0);
        // if (r1 == 0) r2 = r10; load r2, where r2 came as an argument.
        let program = [
            insn(class::JMP | jump::JNE, 1, 0, 1, 0),
            insn(MOV, 2, 10, 0, 0),
            insn(LOAD, 3, 2, -8, 0),
            exit,
        ];
        assert_eq!(own(&program), []);
        // Both ways know it.
        let program = [
            insn(MOV, 2, 10, 0, 0),
            insn(class::JMP | jump::JNE, 1, 0, 1, 0),
            insn(ADD_IMM, 2, 0, 0, -8),
            insn(LOAD, 3, 2, -8, 0),
            exit,
        ];
        assert_eq!(own(&program), [3]);
    }

    #[test]
    fn a_difference_of_two_pointers_is_none() {
        let exit = insn(class::JMP | jump::EXIT, 0, 0, 0, 0);
        let program = [
            insn(MOV, 2, 10, 0, 0),
            insn(class::ALU64 | alu::SUB | X, 2, 10, 0, 0),
            insn(LOAD, 3, 2, 0, 0),
            exit,
        ];
        assert_eq!(own(&program), []);
    }
}
