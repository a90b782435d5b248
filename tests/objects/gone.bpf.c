/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads a field that is not there, without asking. */
#include "kernel.h"

struct sched_ext_entity___future {
	u64 gone;
} __core;

u64 sum;

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct sched_ext_entity___future *future = (void *)&p->scx;

	sum += future->gone;
	return 0;
}

SCHEDULER("gone", .running = (void *)k_running);
