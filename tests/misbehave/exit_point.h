/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy may end itself by scx_bpf_exit() in any of its ops, and its code and message arrive. Each
 * exit_*.bpf.c sets EXIT_POINT to the op in which it does so.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define IN_SELECT_CPU 1
#define IN_ENQUEUE 2
#define IN_DISPATCH 3
#define IN_ENABLE 4
#define IN_INIT_TASK 5
#define IN_INIT 6

#define DSQ 0

/* The code differs from point to point, so that one cannot pass for another. */
static inline void leave_at(u32 point)
{
	if (point == EXIT_POINT)
		scx_bpf_exit(100 + EXIT_POINT, "left at point %d", EXIT_POINT);
}

s32 BPF_STRUCT_OPS(exit_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool idle = false;

	leave_at(IN_SELECT_CPU);
	return scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
}

void BPF_STRUCT_OPS(exit_enqueue, struct task_struct *p, u64 enq_flags)
{
	leave_at(IN_ENQUEUE);
	scx_bpf_dsq_insert(p, DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(exit_dispatch, s32 cpu, struct task_struct *prev)
{
	leave_at(IN_DISPATCH);
	scx_bpf_dsq_move_to_local(DSQ, 0);
}

void BPF_STRUCT_OPS(exit_enable, struct task_struct *p)
{
	leave_at(IN_ENABLE);
}

s32 BPF_STRUCT_OPS(exit_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	leave_at(IN_INIT_TASK);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(exit_init)
{
	leave_at(IN_INIT);
	return scx_bpf_create_dsq(DSQ, -1);
}

SCX_OPS_DEFINE(exit_ops,
	       .select_cpu = (void *)exit_select_cpu,
	       .enqueue = (void *)exit_enqueue,
	       .dispatch = (void *)exit_dispatch,
	       .enable = (void *)exit_enable,
	       .init_task = (void *)exit_init_task,
	       .init = (void *)exit_init,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "exit");
