/* SPDX-License-Identifier: GPL-2.0-only */
/* How long a task has waited for a CPU, and how often it got one. */
#include "kernel.h"

struct sched_entity {
	u64 sum_exec_runtime;
} __core;

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
} __core;

struct task_struct___waits {
	struct sched_entity se;
	struct sched_info sched_info;
} __core;

SEC("struct_ops/running") s32 w_running(u64 *ctx)
{
	struct task_struct___waits *p = (void *)ctx[0];

	/* It has computed under both nice levels, and has slept. */
	if (p->se.sum_exec_runtime < 200000000)
		return 0;
	finish("waited %llu us, got the CPU %llu times", p->sched_info.run_delay / 1000, p->sched_info.pcount);
	return 0;
}

SCHEDULER("waits", .running = (void *)w_running);
