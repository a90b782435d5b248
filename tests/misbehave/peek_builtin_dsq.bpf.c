/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The built-in DSQs cannot be looked into.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(peek_builtin_dsq_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_peek(SCX_DSQ_GLOBAL);
}

SCX_OPS_DEFINE(peek_builtin_dsq_ops,
	       .dispatch = (void *)peek_builtin_dsq_dispatch,
	       .exit = (void *)rule_exit,
	       .name = "peek_builtin");
