/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A policy that takes every task and gives none back: the watchdog ejects it after the kernel's 30 s.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(never_dispatches_enqueue, struct task_struct *p, u64 enq_flags)
{
}

SCX_OPS_DEFINE(never_dispatches_ops,
	       .enqueue = (void *)never_dispatches_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "never_dispatches");
