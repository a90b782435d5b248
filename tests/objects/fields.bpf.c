/* SPDX-License-Identifier: GPL-2.0-only */
/* Fields of a task that change by themselves: each as it is when it is read. */
#include "kernel.h"

struct sched_entity {
	u64 sum_exec_runtime;
} __core;

struct scx_dispatch_q {
	u64 id;
} __core;

struct sched_ext_entity___live {
	struct scx_dispatch_q *dsq;
	u64 ddsp_dsq_id;
} __core;

struct cpumask {
	unsigned long bits[4];
} __core;

struct task_struct___live {
	u32 __state;
	s32 on_cpu;
	u64 utime;
	u64 stime;
	unsigned long nvcsw;
	unsigned long nivcsw;
	u64 start_time;
	struct sched_entity se;
	struct sched_ext_entity___live scx;
	struct cpumask cpus_mask;
	void *mempolicy;
} __core;

#define SCX_DSQ_INVALID	(1ull << 63)




SEC("struct_ops/running") s32 f_running(u64 *ctx)
{
	struct task_struct___live *p = (void *)ctx[0];

	if (p->nivcsw < 4)
		return 0;
	/* Two hogs share a CPU, 20 ms each at a time, with a tick each 4 ms. */
	finish("ran %llu user %llu system %llu waited %llu preempted %llu state %llu on %llu queued %llu direct %llu mask %llu policy %llu",
	       p->se.sum_exec_runtime / 1000000, p->utime / 1000000, p->stime / 1000000, p->nvcsw, p->nivcsw, p->__state,
	       p->on_cpu, p->scx.dsq != NULL, p->scx.ddsp_dsq_id != SCX_DSQ_INVALID, p->cpus_mask.bits[0],
	       p->mempolicy != NULL);
	return 0;
}

SCHEDULER("fields", .running = (void *)f_running);
