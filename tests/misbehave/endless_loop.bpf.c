/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A loop without an end. The verifier lets none through; the virtual kernel's watchdog stops it and
 * says where.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

volatile u64 rounds;

void BPF_STRUCT_OPS(endless_loop_enqueue, struct task_struct *p, u64 enq_flags)
{
	for (;;)
		rounds++;
}

SCX_OPS_DEFINE(endless_loop_ops,
	       .enqueue = (void *)endless_loop_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "endless_loop");
