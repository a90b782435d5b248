/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Taking from a DSQ that nobody created ejects the policy.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(move_from_nowhere_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(0xabad1dea, 0);
}

SCX_OPS_DEFINE(move_from_nowhere_ops,
	       .dispatch = (void *)move_from_nowhere_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "from_nowhere");
