/* SPDX-License-Identifier: GPL-2.0-only */
/* The smallest user of the policy library: gives every task a context. */
#include <lab/lab.bpf.h>

char _license[] SEC("license") = "GPL";

struct library_task {
	struct lab_task lab;
	u64 mine;
};

LAB_TASKS(struct library_task);

s32 BPF_STRUCT_OPS_SLEEPABLE(library_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	return task_new(p) ? 0 : -ENOMEM;
}

void BPF_STRUCT_OPS(library_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(library_init)
{
	return lab_init();
}

SCX_OPS_DEFINE(library_ops,
	       .init_task	= (void *)library_init_task,
	       .exit_task	= (void *)library_exit_task,
	       .init		= (void *)library_init,
	       .name		= "library");
