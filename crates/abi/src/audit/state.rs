//! Holds the state of an audit: the owner of each piece of memory, and the payments of each op.

use schedlab_engine::policy::{OpCall, OpKind, OpSet};
use schedlab_trace::TaskId;

/// Ops that print the state for people, when the policy is gone already.
const DUMPS: OpSet = OpSet::NONE
    .with(OpKind::Dump)
    .with(OpKind::DumpCpu)
    .with(OpKind::DumpTask);

/// Which of a task's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// The policy's data of it in the arena; in which line.
    Context(usize),
    /// Its data in task storage.
    Storage,
    /// The kernel's data of it.
    Struct,
}

/// An op that is under way.
struct Op {
    /// Later ones of its CPU have greater numbers.
    number: u64,
    /// It looks at what it likes.
    free: bool,
    /// So many `lab_unaudited()` are around what runs.
    pauses: u32,
}

/// One virtual CPU.
#[derive(Default)]
pub(super) struct Cpu {
    /// Ops under way, the outer one first.
    ops: Vec<Op>,
    /// The number of the latest op.
    latest: u64,
    /// By task: the op that was handed it or let a probe look at it last.
    paid: Vec<u64>,
    /// By task: the op in which a kfunc has looked it up last.
    looked_up: Vec<u64>,
    /// By line of the arena: the op that has touched it last.
    touched: Vec<u64>,
}

impl Cpu {
    fn begin(&mut self, free: bool) {
        self.latest += 1;
        self.ops.push(Op {
            number: self.latest,
            free,
            pauses: 0,
        });
    }

    fn end(&mut self) {
        self.ops.pop();
    }

    fn note(marks: &mut Vec<u64>, index: usize, number: u64) {
        if marks.len() <= index {
            marks.resize(index + 1, 0);
        }
        marks[index] = number;
    }

    pub(super) fn pay(&mut self, task: TaskId) {
        Cpu::note(&mut self.paid, task.index(), self.latest);
    }

    pub(super) fn look_up(&mut self, task: TaskId) {
        Cpu::note(&mut self.looked_up, task.index(), self.latest);
    }

    pub(super) fn touch(&mut self, line: usize) {
        Cpu::note(&mut self.touched, line, self.latest);
    }

    /// A stretch without checks begins or ends.
    pub(super) fn pause(&mut self, begins: bool) {
        if let Some(op) = self.ops.last_mut() {
            op.pauses = match begins {
                true => op.pauses + 1,
                false => op.pauses - 1,
            };
        }
    }

    /// Whether the op that runs may access that part of a task. What an op that is nested in it has paid for is in
    /// this CPU's cache, too.
    pub(super) fn may_access(&self, part: Part, task: TaskId) -> bool {
        let Some(op) = self.ops.last() else {
            return true;
        };
        let since = |marks: &[u64], index| marks.get(index).is_some_and(|it| *it >= op.number);
        op.free
            || op.pauses > 0
            || since(&self.paid, task.index())
            || match part {
                Part::Context(line) => since(&self.touched, line),
                Part::Storage => false,
                Part::Struct => since(&self.looked_up, task.index()),
            }
    }
}

/// The state of a run's auditor.
pub struct Audit {
    /// An access that is not paid for is refused.
    pub(super) payment: bool,
    pub(super) cpus: Box<[Cpu]>,
    /// By word of the arena: the task whose context it is part of, and the word's number in it.
    contexts: Vec<Option<(TaskId, u32)>>,
}

impl Audit {
    /// Of a run with so many CPUs. Without `payment` it knows only whose memory is whose.
    pub fn new(nr_cpus: usize, payment: bool) -> Audit {
        Audit {
            payment,
            cpus: (0..nr_cpus).map(|_| Cpu::default()).collect(),
            contexts: Vec::new(),
        }
    }

    /// An op begins on `cpu`, whose task is `own`.
    pub fn begin(&mut self, cpu: usize, own: Option<TaskId>, op: &OpCall) {
        let cpu = &mut self.cpus[cpu];
        cpu.begin(DUMPS.has(op.kind()));
        for task in arguments(op).into_iter().chain([own]).flatten() {
            cpu.pay(task);
        }
    }

    /// The op that began last on `cpu` ends.
    pub fn end(&mut self, cpu: usize) {
        self.cpus[cpu].end();
    }

    /// Memory of the arena becomes a task's.
    pub(super) fn give(&mut self, offset: u64, bytes: u32, task: TaskId) {
        let (first, words) = ((offset / 8) as usize, bytes / 8);
        let end = first + words as usize;
        if self.contexts.len() < end {
            self.contexts.resize(end, None);
        }
        let context = self.contexts[first..end].iter_mut();
        for (place, word) in context.zip(0..) {
            *place = Some((task, word));
        }
    }

    /// The context that begins there belongs to no task any more.
    pub(super) fn take_back(&mut self, offset: u64) {
        let behind = self.contexts.iter_mut().skip((offset / 8) as usize);
        for (place, word) in behind.zip(0..) {
            match place {
                Some((_, number)) if *number == word => *place = None,
                _ => return,
            }
        }
    }

    /// The task whose context lies there in the arena, and how far behind its beginning.
    pub fn context_at(&self, offset: u64) -> Option<(TaskId, u64)> {
        let (task, word) = (*self.contexts.get((offset / 8) as usize)?)?;
        Some((task, u64::from(word) * 8 + offset % 8))
    }
}

/// The tasks that an op is called with.
pub fn arguments(op: &OpCall) -> [Option<TaskId>; 2] {
    let other = match *op {
        OpCall::Dispatch { prev, .. } => prev,
        OpCall::Yield { to, .. } => to,
        _ => None,
    };
    [op.task(), other]
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskId = TaskId(0);
    const B: TaskId = TaskId(7);

    #[test]
    fn an_op_may_access_what_it_was_handed_or_has_paid_for() {
        let mut audit = Audit::new(2, true);
        let enqueue = OpCall::Enqueue {
            task: A,
            enq_flags: 0,
        };
        audit.begin(1, Some(TaskId(3)), &enqueue);
        let cpu = &mut audit.cpus[1];
        for (task, may) in [(A, true), (TaskId(3), true), (B, false)] {
            assert_eq!(cpu.may_access(Part::Storage, task), may, "{task:?}");
            assert_eq!(cpu.may_access(Part::Struct, task), may, "{task:?}");
        }
        cpu.look_up(B);
        assert!(cpu.may_access(Part::Struct, B) && !cpu.may_access(Part::Storage, B));
        cpu.touch(5);
        assert!(cpu.may_access(Part::Context(5), B) && !cpu.may_access(Part::Context(6), B));
        assert!(!cpu.may_access(Part::Storage, B));
        cpu.pay(B);
        assert!(cpu.may_access(Part::Storage, B) && cpu.may_access(Part::Context(6), B));
        // The next op pays again.
        audit.end(1);
        audit.begin(1, None, &enqueue);
        let cpu = &audit.cpus[1];
        assert!(!cpu.may_access(Part::Storage, B) && !cpu.may_access(Part::Struct, B));
        assert!(!cpu.may_access(Part::Storage, TaskId(3)));
    }

    #[test]
    fn what_a_nested_op_has_paid_for_is_there_and_what_it_may_do_is_its_own() {
        let mut cpu = Cpu::default();
        cpu.begin(false);
        cpu.pay(A);
        cpu.ops[0].pauses = 1;
        cpu.begin(false);
        assert!(!cpu.may_access(Part::Storage, A));
        cpu.pay(B);
        cpu.end();
        cpu.ops[0].pauses = 0;
        assert!(cpu.may_access(Part::Storage, A) && cpu.may_access(Part::Storage, B));
        assert!(!cpu.may_access(Part::Storage, TaskId(1)));
    }

    #[test]
    fn words_of_the_arena_are_a_tasks_until_they_are_given_back() {
        let mut audit = Audit::new(1, true);
        audit.give(4096, 64, A);
        audit.give(4160, 64, B);
        assert_eq!(audit.context_at(4095), None);
        assert_eq!(audit.context_at(4159), Some((A, 63)));
        assert_eq!(audit.context_at(4164), Some((B, 4)));
        audit.take_back(4096);
        assert_eq!(audit.context_at(4096), None);
        assert_eq!(audit.context_at(4159), None);
        assert_eq!(audit.context_at(4160), Some((B, 0)));
        assert_eq!(audit.context_at(1 << 31), None);
    }
}
