//! `scx_dump_state()`: the state of CPUs and tasks as the kernel's debug dump prints it.

use schedlab_trace::{CpuId, Recorder};

use crate::contract::outcome::ExitInfo;
use crate::contract::policy::{DumpContext, OpCall, OpKind, Policy};
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::scx::{OpsState, ScxState};
use crate::state::sorted::NIL;
use crate::state::task::{Class, Task};

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `scx_dump_state()`. The policy's side keeps the text, to which its own ops add.
    // Model: when the policy is unloaded, not at once; no backtraces, no events, and no task is named as current.
    pub(crate) fn scx_dump_state(&self, c: &Cpu, exit: &ExitInfo) {
        let now = self.progress.clock().max(self.now(c).ns());
        let context = DumpContext {
            kind: exit.kind,
            code: exit.code,
            at: schedlab_trace::Instant::from_ns(now),
            at_jiffies: self.jiffies(now),
        };
        let kind = exit.kind as u64;
        let (reason, message) = (&exit.reason, &exit.message);
        let root = match self.version.has_sub_schedulers() {
            true => format!("{}: root\n", self.policy.info().name),
            false => String::new(),
        };
        self.policy.dump(
            &format!(
                "{root}virtual kernel[0] triggered exit kind {kind}:\n  {reason} ({message})\n"
            ),
            true,
        );
        if self.has_op(OpKind::Dump) {
            self.call_rare_op(c, OpCall::Dump { context });
        }
        self.policy.dump("\nCPU states\n----------\n", true);
        for rq in &self.cpus {
            self.scx_dump_cpu(c, rq, context);
        }
    }

    /// `scx_dump_cpu()`.
    fn scx_dump_cpu(&self, c: &Cpu, rq: &Cpu, context: DumpContext) {
        let curr = rq.curr().map(|curr| self.task(curr));
        let mut runnable: Vec<(u64, &Task)> = self
            .tasks
            .iter()
            .filter(|p| p.cpu() == rq.id && p.class() == Class::Ext)
            .filter_map(|p| Some((p.scx.runnable_seq()?, p)))
            .collect();
        runnable.sort_unstable_by_key(|&(seq, _)| seq);
        let idle = runnable.is_empty() && curr.is_none();
        let has_op = self.has_op(OpKind::DumpCpu);
        if idle && !has_op {
            return;
        }
        // An idle CPU has nothing to print but the policy's addition.
        self.policy.dump(&self.cpu_lines(rq, curr), !idle);
        if has_op {
            let cpu = rq.id;
            self.call_op_on(c, rq, OpCall::DumpCpu { context, cpu, idle });
        }
        let curr = curr.filter(|p| p.class() == Class::Ext);
        let curr = curr.map(|p| ('*', p));
        let waiting = runnable.into_iter().map(|(_, p)| (' ', p));
        for (marker, p) in curr.into_iter().chain(waiting) {
            self.policy
                .dump(&self.task_lines(p, marker, context.at_jiffies), true);
            if self.has_op(OpKind::DumpTask) {
                let task = p.id;
                self.call_op_on(c, rq, OpCall::DumpTask { context, task });
            }
        }
    }

    fn cpu_lines(&self, rq: &Cpu, curr: Option<&Task>) -> String {
        let flags = u32::from(rq.is_online())
            | u32::from(rq.deferred.waits_for_balance()) << 6
            | u32::from(rq.scx.in_wakeup()) << 16
            | u32::from(rq.scx.in_balance()) << 17;
        let sync = match self.version.has_sub_schedulers() {
            true => format!("ksync={}", rq.kicks.sync()),
            // Model: neither number is kept.
            false => "ops_qseq=0 pnt_seq=0".to_owned(),
        };
        let (label, class) = match curr {
            Some(p) => (p.label(), p.class()),
            None => (format!("swapper/{}[0]", rq.id), Class::Idle),
        };
        let class = match class {
            Class::Idle => "idle",
            Class::Ext => "ext",
            Class::Fair => "fair",
            Class::Rt => "rt",
            Class::Deadline => "dl",
            Class::Stop => "stop",
        };
        format!(
            "\nCPU {:<4}: nr_run={} flags={flags:#x} cpu_rel={} {sync}\n          curr={label} class={class}_sched_class\n",
            rq.id.0,
            rq.scx.nr_running(),
            u32::from(rq.scx.is_released()),
        )
    }

    /// `scx_dump_task()`.
    fn task_lines(&self, p: &Task, marker: char, at_jiffies: u64) -> String {
        let new = self.version.has_sub_schedulers();
        let tick_ms = self.costs.tick_period_ns / 1_000_000;
        let since = (p.scx.runnable_at() as i64 - at_jiffies as i64) * tick_ms as i64;
        let state = match p.scx.state() {
            ScxState::None => 0,
            ScxState::Ready => 2 + u32::from(new),
            ScxState::Enabled => 3 + u32::from(new),
            ScxState::Dead => 5,
        };
        let flags = u32::from(p.scx.is_queued())
            | u32::from(p.scx.in_custody()) << 1
            | u32::from(p.scx.resets_runnable_at()) << 2
            | u32::from(p.scx.is_immed()) << 5;
        let ops_state = match p.scx.ops_state() {
            OpsState::None => 0,
            OpsState::Queueing => 1,
            OpsState::Queued => 2,
            OpsState::Dispatching => 3,
        };
        let qseq = if ops_state == 0 { 0 } else { p.scx.qseq() };
        let dsq = match p.dsq() {
            NIL => "(n/a)".to_owned(),
            index if self.is_local(index) => {
                format!("{:#x}", crate::contract::consts::dsq_id::LOCAL)
            }
            index => format!("{:#x}", self.dsqs.get(index).id()),
        };
        let cpu = |cpu: Option<CpuId>| cpu.map_or(-1, |cpu| i64::from(cpu.0));
        let nr_cpus = self.cpus.len();
        let mask = match &*p.affinity.borrow() {
            Some(mask) => bitmap(|cpu| mask.contains(cpu), nr_cpus),
            None => bitmap(|_| true, nr_cpus),
        };
        format!(
            "\n {marker}R {}{} {since:+}ms\n\
             {:6}scx_state/flags={state}/{flags:#x} dsq_flags={:#x} ops_state/qseq={ops_state}/{qseq}\n\
             {:6}sticky/holding_cpu={}/{} dsq_id={dsq}\n\
             {:6}dsq_vtime={} slice={} weight={}\n\
             {:6}cpus={mask} no_mig=0\n",
            p.label(),
            if new { " *root" } else { "" },
            "",
            u32::from(p.node.is_by_vtime()),
            "",
            cpu(p.scx.sticky_cpu()),
            cpu(p.scx.holding_cpu()),
            "",
            self.policy.vtime(p.id),
            self.policy.slice(p.id),
            p.scx.weight(),
            "",
        )
    }
}

/// `%*pb`: hexadecimal digits in groups of 32 bits, the highest first.
fn bitmap(has: impl Fn(CpuId) -> bool, nr_cpus: usize) -> String {
    let groups = nr_cpus.div_ceil(32);
    let group = |group: usize| {
        let bits = (nr_cpus - group * 32).min(32);
        let set = (0..bits).filter(|bit| has(CpuId((group * 32 + bit) as u32)));
        let word = set.fold(0_u32, |word, bit| word | 1 << bit);
        format!("{word:0digits$x}", digits = bits.div_ceil(4))
    };
    let groups: Vec<String> = (0..groups).rev().map(group).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_printed_as_the_kernel_does() {
        let of = |cpus: &[u32], nr| bitmap(|cpu| cpus.contains(&cpu.0), nr);
        assert_eq!(of(&[0, 1, 2], 4), "7");
        assert_eq!(of(&[9], 16), "0200");
        assert_eq!(of(&[33], 34), "2,00000000");
        assert_eq!(of(&[0, 31, 32], 64), "00000001,80000001");
    }
}
