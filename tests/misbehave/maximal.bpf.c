/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy may define every op, and each op that a task's life leads to is called.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

enum {
	SAW_SELECT_CPU = 1 << 0,
	SAW_ENQUEUE = 1 << 1,
	SAW_DEQUEUE = 1 << 2,
	SAW_RUNNABLE = 1 << 3,
	SAW_RUNNING = 1 << 4,
	SAW_STOPPING = 1 << 5,
	SAW_QUIESCENT = 1 << 6,
	SAW_YIELD = 1 << 7,
	SAW_SET_WEIGHT = 1 << 8,
	SAW_SET_CPUMASK = 1 << 9,
	SAW_UPDATE_IDLE = 1 << 10,
	SAW_INIT_TASK = 1 << 11,
	SAW_EXIT_TASK = 1 << 12,
	SAW_ENABLE = 1 << 13,
	SAW_DISABLE = 1 << 14,
	SAW_TICK = 1 << 15,
	SAW_INIT = 1 << 16,
	SAW_ALL = (1 << 17) - 1,
};

u32 seen;

s32 BPF_STRUCT_OPS(maximal_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	__sync_fetch_and_or(&seen, SAW_SELECT_CPU);
	return prev_cpu;
}

void BPF_STRUCT_OPS(maximal_enqueue, struct task_struct *p, u64 enq_flags)
{
	__sync_fetch_and_or(&seen, SAW_ENQUEUE);
	scx_bpf_dsq_insert(p, DSQ, 2000000, enq_flags);
}

void BPF_STRUCT_OPS(maximal_dequeue, struct task_struct *p, u64 deq_flags)
{
	__sync_fetch_and_or(&seen, SAW_DEQUEUE);
}

void BPF_STRUCT_OPS(maximal_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(DSQ, 0);
	if (seen == SAW_ALL)
		rule_holds("every op was called");
}

void BPF_STRUCT_OPS(maximal_tick, struct task_struct *p)
{
	__sync_fetch_and_or(&seen, SAW_TICK);
}

void BPF_STRUCT_OPS(maximal_runnable, struct task_struct *p, u64 enq_flags)
{
	__sync_fetch_and_or(&seen, SAW_RUNNABLE);
}

void BPF_STRUCT_OPS(maximal_running, struct task_struct *p)
{
	__sync_fetch_and_or(&seen, SAW_RUNNING);
}

void BPF_STRUCT_OPS(maximal_stopping, struct task_struct *p, bool runnable)
{
	__sync_fetch_and_or(&seen, SAW_STOPPING);
}

void BPF_STRUCT_OPS(maximal_quiescent, struct task_struct *p, u64 deq_flags)
{
	__sync_fetch_and_or(&seen, SAW_QUIESCENT);
}

bool BPF_STRUCT_OPS(maximal_yield, struct task_struct *from, struct task_struct *to)
{
	__sync_fetch_and_or(&seen, SAW_YIELD);
	return false;
}

/* Only asked under core scheduling. */
bool BPF_STRUCT_OPS(maximal_core_sched_before, struct task_struct *a, struct task_struct *b)
{
	return false;
}

void BPF_STRUCT_OPS(maximal_set_weight, struct task_struct *p, u32 weight)
{
	__sync_fetch_and_or(&seen, SAW_SET_WEIGHT);
}

void BPF_STRUCT_OPS(maximal_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	__sync_fetch_and_or(&seen, SAW_SET_CPUMASK);
}

void BPF_STRUCT_OPS(maximal_update_idle, s32 cpu, bool idle)
{
	__sync_fetch_and_or(&seen, SAW_UPDATE_IDLE);
}

/* No CPU comes or goes. */
void BPF_STRUCT_OPS(maximal_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(maximal_cpu_offline, s32 cpu)
{
}

s32 BPF_STRUCT_OPS(maximal_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	__sync_fetch_and_or(&seen, SAW_INIT_TASK);
	return 0;
}

void BPF_STRUCT_OPS(maximal_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	__sync_fetch_and_or(&seen, SAW_EXIT_TASK);
}

void BPF_STRUCT_OPS(maximal_enable, struct task_struct *p)
{
	__sync_fetch_and_or(&seen, SAW_ENABLE);
}

void BPF_STRUCT_OPS(maximal_disable, struct task_struct *p)
{
	__sync_fetch_and_or(&seen, SAW_DISABLE);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(maximal_init)
{
	__sync_fetch_and_or(&seen, SAW_INIT);
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(maximal_ops,
	       .select_cpu = (void *)maximal_select_cpu,
	       .enqueue = (void *)maximal_enqueue,
	       .dequeue = (void *)maximal_dequeue,
	       .dispatch = (void *)maximal_dispatch,
	       .tick = (void *)maximal_tick,
	       .runnable = (void *)maximal_runnable,
	       .running = (void *)maximal_running,
	       .stopping = (void *)maximal_stopping,
	       .quiescent = (void *)maximal_quiescent,
	       .yield = (void *)maximal_yield,
	       .core_sched_before = (void *)maximal_core_sched_before,
	       .set_weight = (void *)maximal_set_weight,
	       .set_cpumask = (void *)maximal_set_cpumask,
	       .update_idle = (void *)maximal_update_idle,
	       .cpu_online = (void *)maximal_cpu_online,
	       .cpu_offline = (void *)maximal_cpu_offline,
	       .init_task = (void *)maximal_init_task,
	       .exit_task = (void *)maximal_exit_task,
	       .enable = (void *)maximal_enable,
	       .disable = (void *)maximal_disable,
	       .init = (void *)maximal_init,
	       .exit = (void *)rule_exit,
	       .name = "maximal");
