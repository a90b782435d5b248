/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The tick may stop while a task has an infinite slice and while a CPU is idle; a task with a finite
 * slice gets ticks again, whatever ran before it.
 *
 * The workload runs a task called "inf", which then sleeps, and after it "one" and "two" with idle
 * time between them, on one CPU.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define TICKS_WANTED 3

u32 nr_inf_runs, nr_ticks_one, nr_ticks_two;

void BPF_STRUCT_OPS(nohz_tick_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 slice = p->comm[0] == 'i' ? SCX_SLICE_INF : 1000000ULL;

	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice, enq_flags);
}

void BPF_STRUCT_OPS(nohz_tick_running, struct task_struct *p)
{
	if (p->comm[0] == 'i')
		nr_inf_runs++;
	else if (!nr_inf_runs)
		rule_broken("the workload must begin with the infinite slice");
}

void BPF_STRUCT_OPS(nohz_tick_tick, struct task_struct *p)
{
	if (p->comm[0] == 'o')
		nr_ticks_one++;
	if (p->comm[0] == 't')
		nr_ticks_two++;
	if (nr_ticks_one >= TICKS_WANTED && nr_ticks_two >= TICKS_WANTED)
		rule_holds("ticks after an infinite slice and after idling");
}

SCX_OPS_DEFINE(nohz_tick_ops,
	       .enqueue = (void *)nohz_tick_enqueue,
	       .running = (void *)nohz_tick_running,
	       .tick = (void *)nohz_tick_tick,
	       .flags = SCX_OPS_ENQ_LAST,
	       .exit = (void *)rule_exit,
	       .name = "nohz_tick");
