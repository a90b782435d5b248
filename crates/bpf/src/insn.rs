//! Instructions of BPF as the kernel defines them (Documentation/bpf/standardization/instruction-set.rst).

use serde::{Deserialize, Serialize};

/// Classes: the low three bits of an opcode.
pub mod class {
    pub const LD: u8 = 0x00;
    pub const LDX: u8 = 0x01;
    pub const ST: u8 = 0x02;
    pub const STX: u8 = 0x03;
    pub const ALU: u8 = 0x04;
    pub const JMP: u8 = 0x05;
    pub const JMP32: u8 = 0x06;
    pub const ALU64: u8 = 0x07;
}

/// Arithmetic operations: the high four bits of an opcode of class ALU or ALU64.
pub mod alu {
    pub const ADD: u8 = 0x00;
    pub const SUB: u8 = 0x10;
    pub const MUL: u8 = 0x20;
    pub const DIV: u8 = 0x30;
    pub const OR: u8 = 0x40;
    pub const AND: u8 = 0x50;
    pub const LSH: u8 = 0x60;
    pub const RSH: u8 = 0x70;
    pub const NEG: u8 = 0x80;
    pub const MOD: u8 = 0x90;
    pub const XOR: u8 = 0xa0;
    pub const MOV: u8 = 0xb0;
    pub const ARSH: u8 = 0xc0;
    pub const END: u8 = 0xd0;
}

/// Jumps: the high four bits of an opcode of class JMP or JMP32.
pub mod jump {
    pub const JA: u8 = 0x00;
    pub const JEQ: u8 = 0x10;
    pub const JGT: u8 = 0x20;
    pub const JGE: u8 = 0x30;
    pub const JSET: u8 = 0x40;
    pub const JNE: u8 = 0x50;
    pub const JSGT: u8 = 0x60;
    pub const JSGE: u8 = 0x70;
    pub const CALL: u8 = 0x80;
    pub const EXIT: u8 = 0x90;
    pub const JLT: u8 = 0xa0;
    pub const JLE: u8 = 0xb0;
    pub const JSLT: u8 = 0xc0;
    pub const JSLE: u8 = 0xd0;
    /// `may_goto`.
    pub const JCOND: u8 = 0xe0;
}

/// Modes of loads and stores: the high three bits.
pub mod mode {
    pub const IMM: u8 = 0x00;
    pub const MEM: u8 = 0x60;
    pub const MEMSX: u8 = 0x80;
    pub const ATOMIC: u8 = 0xc0;
}

/// Atomic operations: the immediate of an instruction of mode ATOMIC.
pub mod atomic {
    pub const FETCH: i32 = 0x01;
    pub const ADD: i32 = 0x00;
    pub const OR: i32 = 0x40;
    pub const AND: i32 = 0x50;
    pub const XOR: i32 = 0xa0;
    pub const XCHG: i32 = 0xe1;
    pub const CMPXCHG: i32 = 0xf1;
    pub const LOAD_ACQ: i32 = 0x100;
    pub const STORE_REL: i32 = 0x110;
}

/// Bit of an opcode: the operand is a register.
pub const X: u8 = 0x08;

/// `BPF_LD | BPF_IMM | BPF_DW`, the only instruction of two slots.
pub const LD_IMM64: u8 = 0x18;

/// Source registers of [`LD_IMM64`].
pub mod pseudo {
    pub const FUNC: u8 = 4;
    /// Of a call: another function of the object.
    pub const CALL: u8 = 1;
    /// Of a call: a kfunc.
    pub const KFUNC: u8 = 2;
}

/// The register that points behind the end of the stack.
pub const FRAME: u8 = 10;

/// One slot of a program.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Insn {
    pub code: u8,
    pub dst: u8,
    pub src: u8,
    pub off: i16,
    pub imm: i32,
}

impl Insn {
    /// Bytes of a slot.
    pub const BYTES: usize = 8;

    /// Decodes a slot.
    pub fn decode(bytes: [u8; Insn::BYTES]) -> Insn {
        Insn {
            code: bytes[0],
            dst: bytes[1] & 15,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// Decodes a program; bytes after the last whole slot are ignored.
    pub fn decode_all(bytes: &[u8]) -> Vec<Insn> {
        let slots = bytes.chunks_exact(Insn::BYTES);
        slots
            .map(|slot| Insn::decode(slot.try_into().expect("a chunk is that long")))
            .collect()
    }

    /// The class.
    pub fn class(self) -> u8 {
        self.code & 0x07
    }

    /// The operation of arithmetic and jumps.
    pub fn op(self) -> u8 {
        self.code & 0xf0
    }

    /// The mode of loads and stores.
    pub fn mode(self) -> u8 {
        self.code & 0xe0
    }

    /// Whether the operand is a register.
    pub fn is_x(self) -> bool {
        self.code & X != 0
    }

    /// Bytes that a load or store accesses.
    pub fn bytes(self) -> u32 {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Whether it takes two slots.
    pub fn is_wide(self) -> bool {
        self.code == LD_IMM64
    }

    /// Whether it is a jump of any kind but calls and exit.
    pub fn is_jump(self) -> bool {
        matches!(self.class(), class::JMP | class::JMP32)
            && !matches!(self.op(), jump::CALL | jump::EXIT)
    }

    /// Whether it is a call.
    pub fn is_call(self) -> bool {
        self.code == class::JMP | jump::CALL
    }

    /// Whether it is `exit`.
    pub fn is_exit(self) -> bool {
        self.code == class::JMP | jump::EXIT
    }

    /// Whether control never goes on to the next instruction.
    pub fn is_final(self) -> bool {
        self.is_exit() || (self.is_jump() && self.op() == jump::JA)
    }

    /// How many slots a jump leaps over, from the next one.
    pub fn distance(self) -> i64 {
        match self.class() == class::JMP32 && self.op() == jump::JA {
            true => self.imm.into(),
            false => self.off.into(),
        }
    }
}

/// The 64-bit number of a wide instruction.
pub fn wide(low: Insn, high: Insn) -> u64 {
    u64::from(low.imm as u32) | u64::from(high.imm as u32) << 32
}
