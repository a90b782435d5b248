//! Describes a host for people: the place of its code that runs, its locks by name, its faults.

use schedlab_engine::Place;
use schedlab_engine::policy::{OpKind, PolicyLock, ThisCpu};
use schedlab_fiber::{STACK_BYTES, StackFault, Trap};
use schedlab_trace::{CpuId, TaskId};

use super::Host;
use crate::custody;
use crate::dwarf::{Types, Variable};
use crate::ops_table;

/// The map that refers from tasks to their contexts in the arena (include/lab/task.h).
const CONTEXTS: &str = "lab_task_refs";

/// The ops that may insert, by their number less 1 in [`crate::layout::Entity::lab_inserted_in`].
const INSERTING: [OpKind; 3] = [OpKind::SelectCpu, OpKind::Enqueue, OpKind::Dispatch];

impl Host {
    /// A lock by what it lies in, for people.
    pub fn name_lock(&self, lock: usize) -> String {
        let place = self.locks[lock].place;
        let global = self.image.offset(place);
        if let Some((name, offset)) = global.and_then(|at| self.image.object().global_at(at)) {
            let field = self.image.object().field_of_variable(name, offset);
            return match field.filter(|field| !field.is_empty()) {
                // The word is a member of the lock.
                Some(field) => {
                    let field = field.trim_end_matches(".word").trim_end_matches(".val");
                    format!("the lock `{name}{field}`")
                }
                None if offset == 0 => format!("the lock `{name}`"),
                None => format!("the lock at offset {offset} of `{name}`"),
            };
        }
        if let Some(offset) = self.maps.arena_offset(place) {
            return format!("the lock at offset {offset:#x} of the arena");
        }
        match self.maps.value_of(place) {
            Some((map, offset)) => {
                format!("the lock at offset {offset} of a value of the map `{map}`")
            }
            None => format!("lock {lock}"),
        }
    }

    /// A lock that is held, and where it was taken.
    pub fn name_held_lock(&self, lock: usize) -> String {
        format!("{}{}", self.name_lock(lock), self.lock_taken_at(lock))
    }

    /// Where a lock was taken, to be added to its name.
    pub fn lock_taken_at(&self, lock: usize) -> String {
        let line = self.line_at(self.locks[lock].taken_at);
        line.map_or(String::new(), |line| format!(", taken at {line}"))
    }

    /// The line of the policy's call that is under way: its frames are on the stack.
    pub(super) fn line_of_call(&self, op: Option<OpKind>) -> Option<String> {
        let mut callers = Vec::new();
        backtrace::trace(|frame| {
            // A call is before where it returns to.
            let caller = self.image.offset((frame.ip() as usize).wrapping_sub(1));
            let behind = caller.is_none() && !callers.is_empty();
            callers.extend(caller);
            !behind
        });
        // The last call of a function may have taken its frame: then it is the op, or one that it ended with.
        if callers.is_empty() {
            callers.extend(op.and_then(|op| self.image.offset(ops_table::address(&self.ops, op)?)));
        }
        self.image.object().line_of(&callers)
    }

    /// Where that call is.
    pub fn place_of_call(&self, cpu: &ThisCpu) -> Option<Place> {
        let op = cpu.op.get()?;
        let line = self.line_of_call(Some(op));
        Some(Place { op, line })
    }

    /// Where a task was inserted last.
    pub fn place_of_insertion(&self, task: TaskId) -> Option<Place> {
        // SAFETY: shadows live as long as we do.
        let scx = unsafe { (*self.tasks.pointer(task)).scx };
        let op = INSERTING.get(usize::from(scx.lab_inserted_in).checked_sub(1)?)?;
        let before = u64::from(scx.lab_inserted_at).checked_sub(1)?;
        Some(Place {
            op: *op,
            line: self.image.object().line_of(&[before]),
        })
    }

    /// The line of code right before a place, of the policy's own file if it can be.
    fn line_at(&self, code: usize) -> Option<String> {
        let offset = self.image.offset(code.wrapping_sub(1))?;
        self.image.object().line_of(&[offset])
    }

    /// The structure of include/lab in which the context of a task is linked, for people. None: it is in none.
    pub fn describe_custody(&self, task: TaskId) -> Option<String> {
        let refs = self
            .maps
            .list
            .iter()
            .filter(|map| map.is_storage())
            .find(|map| map.def.name == CONTEXTS)?;
        let context = |task: usize| {
            let value = refs.storage(task).cast::<usize>();
            // SAFETY: a task's value is a pointer to its context.
            (!value.is_null()).then(|| unsafe { value.read() })
        };
        let own = context(task.0 as usize)?;
        let queue = match self.image.bpf() {
            Some(_) => self.list_of(own)?,
            None => {
                let types = self.image.object().types()?;
                let contexts = (0..self.tasks.bound()).filter_map(context).collect();
                custody::Search::new(self, &types, contexts)?.describe(own)?
            }
        };
        Some(format!(
            "the policy has had it since ops.enqueue(), in {queue}, and inserted it into no DSQ"
        ))
    }

    /// The list in whose circle an object's context is linked, by its global variable: the types of an object for BPF are not those.
    fn list_of(&self, context: usize) -> Option<String> {
        let mut at = context;
        for _ in 0..custody::LINKS_MAX {
            // A list's link comes first in a context and in a list.
            at = custody::Memory::word(self, at)?;
            let global = self.image.offset(at);
            let object = self.image.object();
            if let Some((name, offset)) = global.and_then(|at| object.global_at(at)) {
                let field = object.field_of_variable(name, offset).unwrap_or_default();
                let field = field.trim_end_matches(".head.next");
                return Some(format!("the list `{name}{field}`"));
            }
            if at == context {
                return None;
            }
        }
        None
    }

    /// One CPU that waits for a lock that another one holds, for people.
    pub fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        let held = self.name_held_lock(lock.0 as usize);
        // SAFETY: one of our CPUs; no other code accesses it meanwhile.
        let asked_at = unsafe { (*self.cpus[waiter.index()].get()).lock_asked_at };
        let waiting = match self.line_at(asked_at) {
            Some(line) => format!("CPU {waiter} waits at {line}"),
            None => format!("CPU {waiter} waits"),
        };
        format!("{waiting} for {held} by CPU {holder}")
    }

    /// Adds the policy's name and the op that runs to a message.
    pub(super) fn name_fault(&self, op: Option<OpKind>, message: &str) -> String {
        // The file of an object often has the name that many files have.
        let policy = match self.image.bpf() {
            Some(_) if !self.info.name.is_empty() => &self.info.name,
            _ => self.image.object().name(),
        };
        match op {
            None => format!("{policy}: {message}"),
            Some(op) => {
                let op = ops_table::name_of(op, self.cids.is_form);
                format!("{policy}: in ops.{op}: {message}")
            }
        }
    }

    /// Describes a fault in an op, for people.
    pub(super) fn describe(&self, op: Option<OpKind>, trap: &Trap) -> String {
        let object = self.image.object();
        // A call is before where it returns to.
        let caller = trap.caller.map(|to| to.wrapping_sub(1));
        let at = |pc| {
            let places = [Some(pc), caller];
            let places = places.into_iter().flatten();
            let places: Vec<u64> = places.filter_map(|pc| self.image.offset(pc)).collect();
            object.lines_of(&places)
        };
        let is_full = trap.stack == Some(StackFault::Full);
        let place = match (self.image.offset(trap.pc), caller.and_then(at)) {
            (Some(_), _) => at(trap.pc).unwrap_or_else(|| "an unknown place".to_owned()),
            (None, Some(line)) if is_full => line,
            (None, Some(line)) => {
                format!("a function of the virtual kernel that is called at {line}")
            }
            (None, None) => "an unknown place".to_owned(),
        };
        let what = match trap.signal {
            // A weak kfunc that does not exist is at address 0.
            libc::SIGSEGV if trap.calls_nothing && trap.address == Some(0) => {
                "it calls a function that is not there".to_owned()
            }
            libc::SIGFPE => "it divides by zero".to_owned(),
            // There the compiler looks for a divisor of zero (crate::compiler).
            libc::SIGTRAP if cfg!(target_arch = "aarch64") => {
                "it divides by zero or ends by a trap instruction".to_owned()
            }
            libc::SIGILL | libc::SIGTRAP => "it ends by a trap instruction".to_owned(),
            libc::SIGSEGV if is_full => {
                format!("it uses more than the {} KB of stack", STACK_BYTES >> 10)
            }
            libc::SIGSEGV if trap.stack.is_some() || self.is_stack_check(trap) => {
                "it has written beyond an array on its stack, noticed".to_owned()
            }
            libc::SIGSEGV | libc::SIGBUS => match trap.address {
                Some(..4096) => "it follows a NULL pointer".to_owned(),
                None if self.is_privileged(trap.pc) => {
                    "it executes what only a kernel may".to_owned()
                }
                _ => "it accesses memory that is not its own".to_owned(),
            },
            _ => "it loops without end".to_owned(),
        };
        self.name_fault(op, &format!("{what} at {place}"))
    }

    /// Whether a function has called the report that its frame is overwritten (include/native/scx/host.h).
    fn is_stack_check(&self, trap: &Trap) -> bool {
        let offset = trap.address.and_then(|address| self.image.offset(address));
        offset.is_some() && offset == self.image.object().symbol("__stack_chk_fail")
    }

    /// Whether the policy has an instruction at `pc` that a processor does not execute for programs.
    fn is_privileged(&self, pc: usize) -> bool {
        if !cfg!(target_arch = "x86_64") || self.image.offset(pc).is_none() {
            return false;
        }
        // SAFETY: the instruction was about to be executed, and code can be read: behind it the section goes on.
        match unsafe { (pc as *const [u8; 2]).read() } {
            // in, out, hlt, cli, sti
            [0xe4..=0xe7 | 0xec..=0xef | 0xf4 | 0xfa | 0xfb, _] => true,
            // Tables of descriptors, clts, caches, control registers, model-specific registers
            [
                0x0f,
                0x00 | 0x01 | 0x06 | 0x08 | 0x09 | 0x20..=0x23 | 0x30 | 0x32,
            ] => true,
            _ => false,
        }
    }

    /// Which locks a CPU holds whose op returns, for people.
    pub(super) fn describe_held_locks(&self, cpu: &ThisCpu) -> String {
        let locks = self.locks.iter().enumerate();
        let held = locks.filter(|(_, lock)| lock.owner == Some(cpu.id.index()));
        let names: Vec<String> = held.map(|(index, _)| self.name_held_lock(index)).collect();
        let names = names.join(", ");
        self.name_fault(cpu.op.get(), &format!("it returns and still holds {names}"))
    }
}

impl custody::Memory for Host {
    fn word(&self, at: usize) -> Option<usize> {
        let is_own = |at| match self.maps.arena_used(at) {
            Some(is_used) => is_used,
            None => self.image.offset(at).is_some(),
        };
        let is_whole = at.is_multiple_of(align_of::<usize>());
        // SAFETY: an aligned word of the policy's memory.
        (is_whole && is_own(at)).then(|| unsafe { (at as *const usize).read() })
    }

    fn globals(&self, types: &Types) -> Vec<(String, usize, usize)> {
        let place = |variable: Variable| {
            let at = self.image.pointer(variable.address) as usize;
            (variable.name, at, variable.type_at)
        };
        types.variables().into_iter().map(place).collect()
    }
}
