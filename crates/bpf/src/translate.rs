//! Translates functions of BPF into native code by Cranelift.
//!
//! The code holds no address of a run: what is a run's own it reaches through its first argument ([`Layout`]). Addresses of the
//! host's functions are those of this process, which all runs share.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Mutex;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, Block, FuncRef, InstBuilder as _, MemFlagsData, SigRef, Signature, SourceLoc,
    StackSlotData, StackSlotKind, Type, Value, types,
};
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module as _};

use crate::insn::{self, FRAME, Insn, alu, atomic, class, jump, mode};
use crate::private;
use crate::program::{BUDGET, Function, Hooks, HostFn, Layout, NULL_END, Ref, STACK_BYTES, Unit};
use crate::seen;
use crate::verify::{Invalid, verify};

/// The arguments of native code: the run, and the registers r1 to r5.
pub type Entry = unsafe extern "C" fn(*mut c_void, u64, u64, u64, u64, u64) -> u64;

/// Bytes below the stack pointer that must be accessible where a function begins, for the host's functions that it calls.
const HOST_STACK_BYTES: i32 = 64 << 10;

/// Why a unit cannot be translated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// The program is not one.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The code generator refuses it, or there is no memory for code.
    #[error("{function}: the code generator refuses it: {reason}")]
    Generator { function: String, reason: String },
    /// The processor is not known to it.
    #[error("the code generator does not know this processor: {0}")]
    Processor(String),
}

/// Native code of a unit. All runs share it.
pub struct Code {
    entries: Vec<usize>,
    range: Range<usize>,
    /// Where each function's code lies and which instruction each piece of it comes from, by address.
    pieces: Vec<Piece>,
    /// Frees the memory of the code; nothing else of it is used any more.
    module: Mutex<Option<JITModule>>,
}

/// Code that comes from one instruction.
struct Piece {
    code: Range<usize>,
    function: usize,
    insn: usize,
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({:#x?})", self.range)
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module = self.module.get_mut().ok().and_then(Option::take);
        if let Some(module) = module {
            // SAFETY: whoever calls the code holds the unit's owner.
            unsafe { module.free_memory() };
        }
    }
}

impl Code {
    /// The native function of a function of the unit.
    pub fn entry(&self, function: usize) -> Entry {
        // SAFETY: the code at this address was generated with this signature.
        unsafe { std::mem::transmute::<usize, Entry>(self.entries[function]) }
    }

    /// Addresses between which all of the code lies.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The function and the instruction that an address in the code comes from.
    pub fn place(&self, address: usize) -> Option<(usize, usize)> {
        if !self.range.contains(&address) {
            return None;
        }
        let behind = self
            .pieces
            .partition_point(|piece| piece.code.start <= address);
        let piece = self.pieces.get(behind.checked_sub(1)?)?;
        Some((piece.function, piece.insn))
    }
}

/// Translates a unit.
///
/// # Errors
/// If it is not valid, or the code generator refuses it.
///
/// # Panics
/// If the unit has no hooks.
pub fn translate(unit: &Unit, layout: Layout) -> Result<Code, TranslateError> {
    verify(unit)?;
    let hooks = unit.hooks.expect("a unit that is translated has hooks");
    let processor = |error: &dyn std::fmt::Display| TranslateError::Processor(error.to_string());
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("unwind_info", "false")] {
        flags.set(name, value).expect("Cranelift has this setting");
    }
    if cfg!(not(debug_assertions)) {
        flags
            .set("enable_verifier", "false")
            .expect("Cranelift has this setting");
    }
    let isa = cranelift_native::builder().map_err(|error| processor(&error))?;
    let isa = isa
        .finish(settings::Flags::new(flags))
        .map_err(|error| processor(&error))?;
    let mut builder = JITBuilder::with_isa(isa, cranelift_module::default_libcall_names());
    // So much code comes from an instruction at most; pages that are not used cost nothing.
    let insns: usize = unit
        .functions
        .iter()
        .map(|function| function.insns.len())
        .sum();
    let bytes = (insns * 256 + unit.functions.len() * 4096 + (64 << 10)).next_multiple_of(4096);
    let memory = ArenaMemoryProvider::new_with_size(bytes).map_err(|error| processor(&error))?;
    builder.memory_provider(Box::new(memory));
    let mut module = JITModule::new(builder);
    let result = define_all(unit, layout, hooks, &mut module);
    match result {
        Ok((ids, mut pieces)) => {
            let start = |id: &FuncId| module.get_finalized_function(*id) as usize;
            let entries: Vec<usize> = ids.iter().map(start).collect();
            for piece in &mut pieces {
                let base = entries[piece.function];
                piece.code = base + piece.code.start..base + piece.code.end;
            }
            // Code between two pieces saves registers for the one before it.
            pieces.extend(entries.iter().enumerate().map(|(function, &start)| Piece {
                code: start..start,
                function,
                insn: 0,
            }));
            pieces.sort_by_key(|piece| (piece.code.start, piece.code.end));
            let first = entries.iter().min().copied().unwrap_or(0);
            let ends = pieces.iter().map(|piece| piece.code.end);
            let last = ends.max().unwrap_or(first);
            Ok(Code {
                entries,
                range: first..last,
                pieces,
                module: Mutex::new(Some(module)),
            })
        }
        Err(error) => {
            // SAFETY: nobody has an address of its code.
            unsafe { module.free_memory() };
            Err(error)
        }
    }
}

type Defined = (Vec<FuncId>, Vec<Piece>);

fn define_all(
    unit: &Unit,
    layout: Layout,
    hooks: Hooks,
    module: &mut JITModule,
) -> Result<Defined, TranslateError> {
    let refused = |function: &Function, error: &dyn std::fmt::Display| TranslateError::Generator {
        function: function.name.clone(),
        reason: error.to_string(),
    };
    let mut signature = module.make_signature();
    signature.params = vec![AbiParam::new(types::I64); 6];
    signature.returns = vec![AbiParam::new(types::I64)];
    let mut ids = Vec::new();
    for (index, function) in unit.functions.iter().enumerate() {
        let id = module.declare_function(&format!("f{index}"), Linkage::Local, &signature);
        ids.push(id.map_err(|error| refused(function, &error))?);
    }
    let mut pieces = Vec::new();
    let mut frontend = FunctionBuilderContext::new();
    for (index, function) in unit.functions.iter().enumerate() {
        let mut context = Context::new();
        context.func.signature = signature.clone();
        let builder = FunctionBuilder::new(&mut context.func, &mut frontend);
        Translator::new(
            unit, function, layout, hooks, &signature, builder, module, &ids,
        )
        .run();
        module
            .define_function_with_control_plane(
                ids[index],
                &mut context,
                &mut ControlPlane::default(),
            )
            .map_err(|error| refused(function, &error))?;
        let code = context.compiled_code().expect("it is compiled");
        let of_code = code.buffer.get_srclocs_sorted().iter();
        let known = of_code.filter(|piece| !piece.loc.is_default());
        pieces.extend(known.map(|piece| Piece {
            code: piece.start as usize..piece.end as usize,
            function: index,
            insn: piece.loc.bits() as usize,
        }));
    }
    if let Err(error) = module.finalize_definitions() {
        return Err(refused(&unit.functions[0], &error));
    }
    Ok((ids, pieces))
}

/// Translates one function.
struct Translator<'a> {
    function: &'a Function,
    unit: &'a Unit,
    layout: Layout,
    hooks: Hooks,
    builder: FunctionBuilder<'a>,
    module: &'a mut JITModule,
    ids: &'a [FuncId],
    callees: BTreeMap<usize, FuncRef>,
    host: SigRef,
    /// The signature of the hooks of accesses.
    of_accesses: SigRef,
    registers: [Variable; 11],
    /// Instructions since the last time that they were added to the run's.
    executed: Variable,
    /// Those of them in this block, which are not in the variable yet.
    pending: i64,
    run: Value,
    blocks: BTreeMap<usize, Block>,
    /// Loads and stores of memory that no other CPU can see.
    private: BTreeSet<usize>,
}

impl<'a> Translator<'a> {
    #[expect(clippy::too_many_arguments, reason = "it only puts them together")]
    fn new(
        unit: &'a Unit,
        function: &'a Function,
        layout: Layout,
        hooks: Hooks,
        signature: &Signature,
        mut builder: FunctionBuilder<'a>,
        module: &'a mut JITModule,
        ids: &'a [FuncId],
    ) -> Self {
        let host = builder.import_signature(signature.clone());
        let mut of_accesses = signature.clone();
        of_accesses.params.truncate(3);
        of_accesses.returns.clear();
        let of_accesses = builder.import_signature(of_accesses);
        let registers = std::array::from_fn(|_| builder.declare_var(types::I64));
        let executed = builder.declare_var(types::I64);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let arguments = builder.block_params(entry).to_vec();
        let zero = builder.ins().iconst(types::I64, 0);
        for variable in registers.iter().chain([&executed]) {
            builder.def_var(*variable, zero);
        }
        for (register, argument) in arguments[1..].iter().enumerate() {
            builder.def_var(registers[register + 1], *argument);
        }
        Translator {
            function,
            unit,
            layout,
            hooks,
            builder,
            module,
            ids,
            callees: BTreeMap::new(),
            host,
            of_accesses,
            registers,
            executed,
            pending: 0,
            run: arguments[0],
            blocks: BTreeMap::new(),
            private: private::accesses(&function.insns, function.is_program),
        }
    }

    fn run(mut self) {
        self.begin();
        for start in leaders(&self.function.insns) {
            let block = self.builder.create_block();
            self.blocks.insert(start, block);
        }
        let first = self.blocks[&0];
        self.builder.ins().jump(first, &[]);
        let insns = &self.function.insns;
        let mut index = 0;
        let mut is_open = false;
        while index < insns.len() {
            if let Some(&block) = self.blocks.get(&index) {
                if is_open {
                    self.keep_pending();
                    self.builder.ins().jump(block, &[]);
                }
                self.builder.switch_to_block(block);
                self.pending = 0;
                is_open = true;
            }
            let insn = insns[index];
            let size = 1 + usize::from(insn.is_wide());
            // Unreachable code has no block.
            if is_open {
                self.builder.set_srcloc(SourceLoc::new(index as u32));
                self.pending += 1;
                if let Some(&of) = self.function.reads.get(&index) {
                    self.bring_up_to_date(insn, of);
                }
                is_open = self.translate(index, insn);
            }
            index += size;
        }
        self.builder.seal_all_blocks();
        let config = self.module.target_config();
        self.builder.finalize(config);
    }

    /// The stack, zeroed, and a look at how much is left of the host's.
    fn begin(&mut self) {
        self.builder.set_srcloc(SourceLoc::new(0));
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, STACK_BYTES, 4);
        let slot = self.builder.create_sized_stack_slot(slot);
        let used = stack_used(&self.function.insns);
        if used > 0 {
            let zero = self.builder.ins().iconst(types::I64, 0);
            let zeros = self.builder.ins().splat(types::I64X2, zero);
            for at in (STACK_BYTES - used.next_multiple_of(16)..STACK_BYTES).step_by(16) {
                self.builder
                    .ins()
                    .stack_store(types::I64, zeros, slot, at as i32);
            }
        }
        let bottom = self.builder.ins().stack_addr(types::I64, slot, 0);
        let end = self
            .builder
            .ins()
            .iadd_imm_s(bottom, i64::from(STACK_BYTES));
        self.builder
            .def_var(self.registers[usize::from(FRAME)], end);
        let sp = self.builder.ins().get_stack_pointer(types::I64);
        self.builder
            .ins()
            .load(types::I8, MemFlagsData::new(), sp, -HOST_STACK_BYTES);
    }

    fn get(&mut self, register: u8) -> Value {
        self.builder.use_var(self.registers[usize::from(register)])
    }

    fn set(&mut self, register: u8, value: Value) {
        self.builder
            .def_var(self.registers[usize::from(register)], value);
    }

    fn constant(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I64, value)
    }

    /// Puts the instructions of this block into the variable.
    fn keep_pending(&mut self) {
        if self.pending > 0 {
            let count = self.builder.use_var(self.executed);
            let count = self.builder.ins().iadd_imm_s(count, self.pending);
            self.builder.def_var(self.executed, count);
            self.pending = 0;
        }
    }

    /// Adds the instructions to those of the run.
    fn flush(&mut self) {
        self.keep_pending();
        let flags = MemFlagsData::trusted();
        let count = self.builder.use_var(self.executed);
        let before = self
            .builder
            .ins()
            .load(types::I64, flags, self.run, self.layout.executed);
        let after = self.builder.ins().iadd(before, count);
        self.builder
            .ins()
            .store(flags, after, self.run, self.layout.executed);
        let zero = self.constant(0);
        self.builder.def_var(self.executed, zero);
    }

    fn own(&mut self, offset: i32) -> Value {
        let flags = MemFlagsData::trusted().with_readonly().with_can_move();
        self.builder.ins().load(types::I64, flags, self.run, offset)
    }

    /// Calls the host with values for r1 and what follows.
    fn call_host(&mut self, function: HostFn, arguments: &[Value]) -> Value {
        let address = self.constant(function as usize as i64);
        let zero = self.constant(0);
        let mut all = vec![self.run];
        all.extend(arguments);
        all.resize(6, zero);
        let call = self.builder.ins().call_indirect(self.host, address, &all);
        self.builder.inst_results(call)[0]
    }

    /// Returns 0, after a hook that nearly always goes no further.
    fn give_up(&mut self) {
        let zero = self.constant(0);
        self.builder.ins().return_(&[zero]);
    }

    /// Translates an instruction. Whether control may go on behind it.
    fn translate(&mut self, index: usize, insn: Insn) -> bool {
        match insn.class() {
            class::ALU | class::ALU64 => {
                self.arithmetic(insn);
                true
            }
            class::LD => self.load_wide(index, insn),
            class::LDX => {
                let base = self.get(insn.src);
                self.access(index, base, insn);
                let signed = insn.mode() == mode::MEMSX;
                let value = match self.function.of_kernel.contains(&index) {
                    true => self.load_of_kernel(base, insn, signed),
                    false => self.load(base, insn, signed),
                };
                self.set(insn.dst, value);
                true
            }
            class::ST => {
                let base = self.get(insn.dst);
                self.access(index, base, insn);
                let value = self.constant(insn.imm.into());
                self.store(base, insn, value);
                true
            }
            class::STX if insn.mode() == mode::ATOMIC => {
                self.atomic(insn);
                true
            }
            class::STX => {
                let (base, value) = (self.get(insn.dst), self.get(insn.src));
                self.access(index, base, insn);
                self.store(base, insn, value);
                true
            }
            _ if insn.is_call() => self.call(index),
            _ if insn.is_exit() => {
                self.flush();
                let result = self.get(0);
                self.builder.ins().return_(&[result]);
                false
            }
            _ => {
                self.jump(index, insn);
                false
            }
        }
    }

    /// Asks the host about the memory that an instruction is about to access and notes it, unless no other CPU can see it or it
    /// was seen lately.
    fn access(&mut self, index: usize, base: Value, insn: Insn) {
        if self.private.contains(&index) {
            return;
        }
        let writes = insn.class() != class::LDX;
        let address = self.builder.ins().iadd_imm_s(base, i64::from(insn.off));
        let place = self
            .builder
            .ins()
            .ushr_imm_u(address, seen::code::PLACE_SHIFT);
        let place = self.builder.ins().band_imm_u(place, seen::code::PLACE_MASK);
        let place = self.builder.ins().iadd(self.run, place);
        let (flags, at) = (MemFlagsData::trusted(), self.layout.seen);
        let table = at + seen::code::TABLE;
        let mut noted = self.builder.ins().load(types::I64, flags, place, table);
        if !writes {
            noted = self.builder.ins().bor_imm_u(noted, 1);
        }
        let tag = at + seen::code::TAG;
        let tag = self.builder.ins().load(types::I64, flags, self.run, tag);
        let piece = self
            .builder
            .ins()
            .ushr_imm_u(address, seen::code::PIECE_BITS);
        let key = self.builder.ins().ishl_imm_u(piece, seen::code::KEY_SHIFT);
        let key = self.builder.ins().bor(key, tag);
        let is_seen = self.builder.ins().icmp(IntCC::Equal, noted, key);
        let (asks, goes_on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(asks);
        self.builder.ins().brif(is_seen, goes_on, &[], asks, &[]);
        self.builder.switch_to_block(asks);
        // A read that gets here finds no write of the same piece, which it would undo: that stands for a read, too.
        let noted = match writes {
            true => key,
            false => self.builder.ins().bxor_imm_u(key, 1),
        };
        self.builder.ins().store(flags, noted, place, table);
        let bytes = self.constant(insn.bytes().into());
        let hook = match writes {
            true => self.hooks.store,
            false => self.hooks.load,
        };
        let hook = self.constant(hook as usize as i64);
        let arguments = [self.run, address, bytes];
        self.builder
            .ins()
            .call_indirect(self.of_accesses, hook, &arguments);
        self.builder.ins().jump(goes_on, &[]);
        self.builder.switch_to_block(goes_on);
    }

    fn load(&mut self, base: Value, insn: Insn, signed: bool) -> Value {
        let kind = kind_of(insn);
        let flags = MemFlagsData::new();
        let value = self
            .builder
            .ins()
            .load(kind, flags, base, i32::from(insn.off));
        match kind {
            types::I64 => value,
            _ if signed => self.builder.ins().sextend(types::I64, value),
            _ => self.builder.ins().uextend(types::I64, value),
        }
    }

    /// A load that gives 0 through a NULL pointer ([`Function::of_kernel`]).
    fn load_of_kernel(&mut self, base: Value, insn: Insn, signed: bool) -> Value {
        let (load, done) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        let below = IntCC::UnsignedLessThan;
        let is_null = self.builder.ins().icmp_imm_s(below, base, NULL_END as i64);
        let zero = self.constant(0);
        self.builder
            .ins()
            .brif(is_null, done, &[zero.into()], load, &[]);
        self.builder.switch_to_block(load);
        let value = self.load(base, insn, signed);
        self.builder.ins().jump(done, &[value.into()]);
        self.builder.switch_to_block(done);
        result
    }

    fn store(&mut self, base: Value, insn: Insn, value: Value) {
        let value = self.narrow(value, kind_of(insn));
        let flags = MemFlagsData::new();
        self.builder
            .ins()
            .store(flags, value, base, i32::from(insn.off));
    }

    fn narrow(&mut self, value: Value, kind: Type) -> Value {
        match kind {
            types::I64 => value,
            kind => self.builder.ins().ireduce(kind, value),
        }
    }

    fn load_wide(&mut self, index: usize, insn: Insn) -> bool {
        let value = match self.function.refs.get(&index) {
            None => {
                let number = insn::wide(insn, self.function.insns[index + 1]);
                self.constant(number as i64)
            }
            Some(Ref::Data(offset)) => {
                let base = self.own(self.layout.data);
                self.builder.ins().iadd_imm_s(base, *offset as i64)
            }
            Some(Ref::Arena(offset)) => {
                let base = self.own(self.layout.arena);
                self.builder.ins().iadd_imm_s(base, *offset as i64)
            }
            Some(Ref::Function(to)) => {
                let callee = self.callee(*to);
                self.builder.ins().func_addr(types::I64, callee)
            }
            Some(Ref::Poison(number)) => {
                self.poison(*number);
                return false;
            }
            Some(Ref::Host(_)) => unreachable!("the verifier refuses it"),
        };
        self.set(insn.dst, value);
        true
    }

    /// Calls the hook for a field that an instruction loads, or whose address it makes.
    fn bring_up_to_date(&mut self, insn: Insn, of: u32) {
        let adds = 0x00;
        let base = match insn.class() {
            class::LDX => self.get(insn.src),
            class::ALU64 if insn.op() == adds => self.get(insn.dst),
            _ => self.constant(0),
        };
        let of = self.constant(of.into());
        self.call_host(self.hooks.read, &[base, of]);
    }

    fn poison(&mut self, number: usize) {
        self.flush();
        let number = self.constant(number as i64);
        self.call_host(self.hooks.poison, &[number]);
        self.give_up();
    }

    fn callee(&mut self, to: usize) -> FuncRef {
        let (module, builder) = (&mut *self.module, &mut self.builder);
        let id = self.ids[to];
        *self
            .callees
            .entry(to)
            .or_insert_with(|| module.declare_func_in_func(id, builder.func))
    }

    fn call(&mut self, index: usize) -> bool {
        let reference = self.function.refs[&index];
        if let Ref::Poison(number) = reference {
            self.poison(number);
            return false;
        }
        self.flush();
        let arguments: Vec<Value> = (1..=5).map(|register| self.get(register)).collect();
        let result = match reference {
            Ref::Host(to) => self.call_host(self.unit.host[to].call, &arguments),
            Ref::Function(to) => {
                let callee = self.callee(to);
                let mut all = vec![self.run];
                all.extend(arguments);
                let call = self.builder.ins().call(callee, &all);
                self.builder.inst_results(call)[0]
            }
            _ => unreachable!("the verifier refuses it"),
        };
        self.set(0, result);
        true
    }

    fn jump(&mut self, index: usize, insn: Insn) {
        let to = (index as i64 + 1 + insn.distance()) as usize;
        let condition = match insn.op() {
            jump::JA => None,
            jump::JCOND => {
                self.flush();
                let goes_on = self.call_host(self.hooks.step, &[]);
                Some(self.builder.ins().icmp_imm_s(IntCC::Equal, goes_on, 0))
            }
            _ => Some(self.condition(insn)),
        };
        self.keep_pending();
        let mut target = self.blocks[&to];
        let is_back = to <= index;
        let checked = is_back.then(|| self.builder.create_block());
        target = checked.unwrap_or(target);
        match condition {
            None => {
                self.builder.ins().jump(target, &[]);
            }
            Some(condition) => {
                let next = self.blocks[&(index + 1)];
                self.builder.ins().brif(condition, target, &[], next, &[]);
            }
        }
        if let Some(checked) = checked {
            self.check_budget(checked, self.blocks[&to]);
        }
    }

    /// On the way back to the beginning of a loop.
    fn check_budget(&mut self, checked: Block, target: Block) {
        let exhausted = self.builder.create_block();
        self.builder.set_cold_block(exhausted);
        self.builder.switch_to_block(checked);
        let count = self.builder.use_var(self.executed);
        let over = IntCC::UnsignedGreaterThan;
        let is_over = self.builder.ins().icmp_imm_s(over, count, BUDGET as i64);
        self.builder
            .ins()
            .brif(is_over, exhausted, &[], target, &[]);
        self.builder.switch_to_block(exhausted);
        self.flush();
        self.call_host(self.hooks.exhausted, &[]);
        self.give_up();
    }

    fn condition(&mut self, insn: Insn) -> Value {
        let (mut left, mut right) = (self.get(insn.dst), self.operand(insn));
        if insn.class() == class::JMP32 {
            left = self.narrow(left, types::I32);
            right = self.narrow(right, types::I32);
        }
        let code = match insn.op() {
            jump::JSET => {
                let both = self.builder.ins().band(left, right);
                return self.builder.ins().icmp_imm_s(IntCC::NotEqual, both, 0);
            }
            jump::JEQ => IntCC::Equal,
            jump::JNE => IntCC::NotEqual,
            jump::JGT => IntCC::UnsignedGreaterThan,
            jump::JGE => IntCC::UnsignedGreaterThanOrEqual,
            jump::JLT => IntCC::UnsignedLessThan,
            jump::JLE => IntCC::UnsignedLessThanOrEqual,
            jump::JSGT => IntCC::SignedGreaterThan,
            jump::JSGE => IntCC::SignedGreaterThanOrEqual,
            jump::JSLT => IntCC::SignedLessThan,
            _ => IntCC::SignedLessThanOrEqual,
        };
        self.builder.ins().icmp(code, left, right)
    }

    /// The second operand, sign-extended where it is an immediate.
    fn operand(&mut self, insn: Insn) -> Value {
        match insn.is_x() {
            true => self.get(insn.src),
            false => self.constant(insn.imm.into()),
        }
    }

    fn arithmetic(&mut self, insn: Insn) {
        let is_64 = insn.class() == class::ALU64;
        if insn.op() == alu::END {
            return self.swap(insn);
        }
        if insn.op() == alu::MOV && insn.off != 0 {
            return self.move_extended(insn);
        }
        let (mut left, mut right) = (self.get(insn.dst), self.operand(insn));
        let kind = if is_64 { types::I64 } else { types::I32 };
        left = self.narrow(left, kind);
        right = self.narrow(right, kind);
        let ins = self.builder.ins();
        let result = match insn.op() {
            alu::ADD => ins.iadd(left, right),
            alu::SUB => ins.isub(left, right),
            alu::MUL => ins.imul(left, right),
            alu::OR => ins.bor(left, right),
            alu::AND => ins.band(left, right),
            alu::XOR => ins.bxor(left, right),
            // Cranelift takes the distance modulo the bits, as BPF does.
            alu::LSH => ins.ishl(left, right),
            alu::RSH => ins.ushr(left, right),
            alu::ARSH => ins.sshr(left, right),
            alu::NEG => ins.ineg(left),
            alu::MOV => right,
            op => self.divide(kind, left, right, op == alu::MOD, insn.off == 1),
        };
        let result = match is_64 {
            true => result,
            false => self.builder.ins().uextend(types::I64, result),
        };
        self.set(insn.dst, result);
    }

    /// x / 0 is 0 and x % 0 is x; the smallest number divided by -1 is itself.
    fn divide(&mut self, kind: Type, left: Value, right: Value, rest: bool, signed: bool) -> Value {
        let one = self.builder.ins().iconst(kind, 1);
        let zero = self.builder.ins().iconst(kind, 0);
        let is_zero = self.builder.ins().icmp_imm_s(IntCC::Equal, right, 0);
        let by_zero = if rest { left } else { zero };
        if !signed {
            let divisor = self.builder.ins().select(is_zero, one, right);
            let result = match rest {
                true => self.builder.ins().urem(left, divisor),
                false => self.builder.ins().udiv(left, divisor),
            };
            return self.builder.ins().select(is_zero, by_zero, result);
        }
        let is_minus_one = self.builder.ins().icmp_imm_s(IntCC::Equal, right, -1);
        let is_special = self.builder.ins().bor(is_zero, is_minus_one);
        let divisor = self.builder.ins().select(is_special, one, right);
        let (result, by_minus_one) = match rest {
            true => (self.builder.ins().srem(left, divisor), zero),
            false => (
                self.builder.ins().sdiv(left, divisor),
                self.builder.ins().ineg(left),
            ),
        };
        let result = self
            .builder
            .ins()
            .select(is_minus_one, by_minus_one, result);
        self.builder.ins().select(is_zero, by_zero, result)
    }

    fn swap(&mut self, insn: Insn) {
        let value = self.get(insn.dst);
        let kind = match insn.imm {
            16 => types::I16,
            32 => types::I32,
            _ => types::I64,
        };
        let mut value = self.narrow(value, kind);
        // To big endian, or without condition; to little endian only cuts.
        if insn.is_x() || insn.class() == class::ALU64 {
            value = self.builder.ins().bswap(value);
        }
        if kind != types::I64 {
            value = self.builder.ins().uextend(types::I64, value);
        }
        self.set(insn.dst, value);
    }

    fn move_extended(&mut self, insn: Insn) {
        let value = self.get(insn.src);
        let kind = match insn.off {
            1 => return self.cast(insn, value),
            8 => types::I8,
            16 => types::I16,
            _ => types::I32,
        };
        let value = self.builder.ins().ireduce(kind, value);
        let value = match insn.class() == class::ALU64 {
            true => self.builder.ins().sextend(types::I64, value),
            false => {
                let value = self.builder.ins().sextend(types::I32, value);
                self.builder.ins().uextend(types::I64, value)
            }
        };
        self.set(insn.dst, value);
    }

    /// Between the arena's address spaces: both are the same memory here, at one address. NULL stays NULL.
    fn cast(&mut self, insn: Insn, value: Value) {
        let base = self.own(self.layout.arena);
        let low = self.builder.ins().ireduce(types::I32, value);
        let low = self.builder.ins().uextend(types::I64, low);
        let whole = self.builder.ins().iadd(base, low);
        let result = self.builder.ins().select(low, whole, low);
        self.set(insn.dst, result);
    }

    /// A run's programs run one after another, so loads and stores are enough.
    fn atomic(&mut self, insn: Insn) {
        let is_load = insn.imm == atomic::LOAD_ACQ;
        let base = self.get(if is_load { insn.src } else { insn.dst });
        self.flush();
        let address = self.builder.ins().iadd_imm_s(base, i64::from(insn.off));
        let bytes = self.constant(insn.bytes().into());
        let writes = self.constant(i64::from(!is_load));
        self.call_host(self.hooks.atomic, &[address, bytes, writes]);
        if is_load {
            let value = self.load(base, insn, false);
            return self.set(insn.dst, value);
        }
        let operand = self.get(insn.src);
        if insn.imm == atomic::STORE_REL {
            return self.store(base, insn, operand);
        }
        let old = self.load(base, insn, false);
        let new = match insn.imm & !atomic::FETCH {
            atomic::ADD => self.builder.ins().iadd(old, operand),
            atomic::OR => self.builder.ins().bor(old, operand),
            atomic::AND => self.builder.ins().band(old, operand),
            atomic::XOR => self.builder.ins().bxor(old, operand),
            _ if insn.imm == atomic::XCHG => operand,
            _ => {
                let expected = self.get(0);
                let expected = self.narrow(expected, kind_of(insn));
                let found = self.narrow(old, kind_of(insn));
                let is_same = self.builder.ins().icmp(IntCC::Equal, found, expected);
                self.builder.ins().select(is_same, operand, old)
            }
        };
        self.store(base, insn, new);
        match insn.imm {
            atomic::CMPXCHG => self.set(0, old),
            imm if imm & atomic::FETCH != 0 => self.set(insn.src, old),
            _ => {}
        }
    }
}

fn kind_of(insn: Insn) -> Type {
    match insn.bytes() {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

/// Where blocks begin: the first instruction, targets of jumps, and what follows a conditional jump.
fn leaders(insns: &[Insn]) -> BTreeSet<usize> {
    let mut leaders = BTreeSet::from([0]);
    let mut index = 0;
    while index < insns.len() {
        let insn = insns[index];
        if insn.is_jump() {
            leaders.insert((index as i64 + 1 + insn.distance()) as usize);
            if insn.op() != jump::JA {
                leaders.insert(index + 1);
            }
        }
        index += 1 + usize::from(insn.is_wide());
    }
    leaders
}

/// How many bytes of its stack a function may read before it writes them.
fn stack_used(insns: &[Insn]) -> u32 {
    let mut used = 0;
    for insn in insns {
        let is_base = match insn.class() {
            class::LDX => insn.src == FRAME,
            class::STX | class::ST => insn.dst == FRAME,
            _ => false,
        };
        let escapes = match insn.class() {
            class::ALU | class::ALU64 | class::JMP | class::JMP32 => {
                insn.is_x() && insn.src == FRAME
            }
            class::STX => insn.src == FRAME,
            _ => false,
        };
        if escapes {
            return STACK_BYTES;
        }
        if is_base {
            used = used.max((-i32::from(insn.off)).clamp(0, STACK_BYTES as i32) as u32);
        }
    }
    used
}
