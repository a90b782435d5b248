/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.select_cpu() may insert by vtime into a DSQ of the policy, which then yields its tasks in the
 * order of their vtimes.
 *
 * A task's vtime is drawn at each wakeup. select_cpu only announces the insertion, so what is in the DSQ
 * is looked up there: before it takes a task, CPU 0, the only one that does, walks the DSQ, which must be
 * in order. The task that it takes must not come after the one that was first: others may have come
 * meanwhile, but none can have gone, unless an attribute of it changed.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0
#define TAKEN_WANTED 100

/*
 * Of CPU 0's walk through the DSQ: how many tasks, the first one's vtime and the last one's so far. Not in
 * locals, whose every value the verifier would follow.
 */
u32 nr_seen;
u64 first_vtime, last_vtime;
/* CPU 0 takes a task, and first_vtime holds. */
bool taking;
/* Tasks that left the DSQ otherwise. */
u32 nr_gone;
u32 nr_chosen;

s32 BPF_STRUCT_OPS(select_cpu_vtime_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	if (!bpf_cpumask_test_cpu(0, p->cpus_ptr))
		return prev_cpu;
	scx_bpf_dsq_insert_vtime(p, DSQ, SCX_SLICE_DFL, bpf_get_prandom_u32(), 0);
	return 0;
}

void BPF_STRUCT_OPS(select_cpu_vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 gone = nr_gone;
	struct task_struct *p;
	u64 vtime;

	if (cpu != 0)
		return;
	nr_seen = 0;
	bpf_for_each(scx_dsq, p, DSQ, 0) {
		vtime = p->scx.dsq_vtime;
		if (!nr_seen)
			first_vtime = vtime;
		else if (vtime < last_vtime && gone == nr_gone)
			rule_broken("%s[%d] of vtime %llu stands behind one of %llu", p->comm,
				    p->pid, vtime, last_vtime);
		last_vtime = vtime;
		nr_seen++;
	}
	if (!nr_seen)
		return;
	taking = gone == nr_gone;
	if (scx_bpf_dsq_move_to_local(DSQ, 0) && nr_seen > 1 &&
	    __sync_add_and_fetch(&nr_chosen, 1) == TAKEN_WANTED)
		rule_holds("%d times the smallest vtime", TAKEN_WANTED);
	taking = false;
}

/* The task leaves the DSQ. */
void BPF_STRUCT_OPS(select_cpu_vtime_dequeue, struct task_struct *p, u64 deq_flags)
{
	if (!taking || (deq_flags & SCX_DEQ_SCHED_CHANGE)) {
		__sync_fetch_and_add(&nr_gone, 1);
		taking = false;
	} else if (p->scx.dsq_vtime > first_vtime) {
		rule_broken("%s[%d] of vtime %llu was taken before one of %llu", p->comm, p->pid,
			    p->scx.dsq_vtime, first_vtime);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(select_cpu_vtime_init)
{
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(select_cpu_vtime_ops,
	       .select_cpu = (void *)select_cpu_vtime_select_cpu,
	       .dispatch = (void *)select_cpu_vtime_dispatch,
	       .dequeue = (void *)select_cpu_vtime_dequeue,
	       .init = (void *)select_cpu_vtime_init,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "select_vtime");
