/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An init_task that fails for a task that existed before the policy ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS(init_task_fails_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return -ENOMEM;
}

SCX_OPS_DEFINE(init_task_fails_ops,
	       .init_task = (void *)init_task_fails_init_task,
	       .exit = (void *)rule_exit,
	       .name = "init_task_fails");
