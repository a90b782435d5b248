/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.select_cpu() may insert by vtime into a DSQ of the policy, which then yields its tasks in the
 * order of their vtimes.
 *
 * A task's vtime is drawn at each wakeup. Two tasks that came within GRACE_NS of each other may be
 * taken in either order: select_cpu only announces the insertion.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0
#define GRACE_NS 20000
#define TAKEN_WANTED 100
#define NR_SLOTS 32

/* By pid modulo NR_SLOTS: queued since when (0: not), and with which vtime. */
u64 since[NR_SLOTS], vtime_of[NR_SLOTS];
u32 nr_chosen;

s32 BPF_STRUCT_OPS(select_cpu_vtime_select_cpu, struct task_struct *p, s32 prev_cpu,
		   u64 wake_flags)
{
	u32 slot = (u32)p->pid % NR_SLOTS;

	if (!bpf_cpumask_test_cpu(0, p->cpus_ptr))
		return prev_cpu;
	vtime_of[slot] = bpf_get_prandom_u32();
	since[slot] = scx_bpf_now();
	scx_bpf_dsq_insert_vtime(p, DSQ, SCX_SLICE_DFL, vtime_of[slot], 0);
	return 0;
}

/* Only CPU 0 takes tasks: what one CPU has taken another one would hear of too late. */
void BPF_STRUCT_OPS(select_cpu_vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	if (cpu == 0)
		scx_bpf_dsq_move_to_local(DSQ, 0);
}

/* The task has been taken out of the DSQ. */
void BPF_STRUCT_OPS(select_cpu_vtime_dequeue, struct task_struct *p, u64 deq_flags)
{
	u64 now = scx_bpf_now();
	u32 i, slot = (u32)p->pid % NR_SLOTS;
	bool alone = true;

	since[slot] = 0;
	bpf_for(i, 0, NR_SLOTS) {
		if (!since[i] || since[i] + GRACE_NS > now)
			continue;
		alone = false;
		if ((s64)(vtime_of[i] - vtime_of[slot]) < 0)
			rule_broken("%s[%d] of vtime %llu was taken before one of %llu", p->comm,
				    p->pid, vtime_of[slot], vtime_of[i]);
	}
	if (!alone && __sync_add_and_fetch(&nr_chosen, 1) == TAKEN_WANTED)
		rule_holds("%d times the smallest vtime", TAKEN_WANTED);
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
