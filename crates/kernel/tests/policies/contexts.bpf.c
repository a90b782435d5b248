/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One global queue of the kernel, and a context for each task, which nothing uses: the only lock of this
 * policy guards the list of contexts.
 */
#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

struct contexts_task {
	struct lab_task lab;
};

LAB_TASKS(struct contexts_task)

void BPF_STRUCT_OPS(contexts_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(contexts_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return task_new(p) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(contexts_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	if (task_of(p))
		lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(contexts_init)
{
	return lab_init();
}

void BPF_STRUCT_OPS(contexts_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(contexts_ops,
	       .enqueue		= (void *)contexts_enqueue,
	       .init_task	= (void *)contexts_init_task,
	       .exit_task	= (void *)contexts_exit_task,
	       .init		= (void *)contexts_init,
	       .exit		= (void *)contexts_exit,
	       .name		= "contexts");
