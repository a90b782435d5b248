/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy that links one task into a list of its arena, one for each CPU, and never looks at it again.
 *
 * The workload's forgotten task is called "victim".
 */
#include <lab/lab.bpf.h>

#include "rule.h"

char _license[] SEC("license") = "GPL";

#define NR_CPUS_HERE 4

struct its_task {
	struct lab_task lab;
};

LAB_TASKS(struct its_task);

struct waiting {
	struct lab_lock lock;
	struct lab_list list;
};

struct waiting __arena_global waiting[NR_CPUS_HERE];

s32 BPF_STRUCT_OPS_SLEEPABLE(forgets_init)
{
	s32 err = lab_init();
	u32 i;

	if (err)
		return err;
	bpf_for(i, 0, NR_CPUS_HERE) {
		lab_lock_init(&waiting[i & (NR_CPUS_HERE - 1)].lock, LAB_LOCK_CLASS_RUN_QUEUE);
		lab_list_init(&waiting[i & (NR_CPUS_HERE - 1)].list);
	}
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(forgets_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return task_new(p) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(forgets_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	lab_task_free(p);
}

void BPF_STRUCT_OPS(forgets_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct waiting __arena *queue = &waiting[scx_bpf_task_cpu(p) & (NR_CPUS_HERE - 1)];
	task_t *t = task_of(p);
	unsigned long flags;

	if (!t || p->comm[0] != 'v') {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
		return;
	}
	if (!lab_lock_irqsave(&queue->lock, flags))
		return;
	lab_list_add_tail(&queue->list, &t->lab.node);
	lab_unlock_irqrestore(&queue->lock, flags);
}

SCX_OPS_DEFINE(forgets_ops,
	       .enqueue = (void *)forgets_enqueue,
	       .init_task = (void *)forgets_init_task,
	       .exit_task = (void *)forgets_exit_task,
	       .init = (void *)forgets_init,
	       .timeout_ms = 1000U,
	       .exit = (void *)rule_exit,
	       .name = "forgets_one");
