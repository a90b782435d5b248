/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The ids of the built-in DSQs cannot be taken: creating one fails with -EINVAL.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(create_builtin_dsq_init)
{
	return scx_bpf_create_dsq(SCX_DSQ_GLOBAL, -1);
}

SCX_OPS_DEFINE(create_builtin_dsq_ops,
	       .init = (void *)create_builtin_dsq_init,
	       .exit = (void *)rule_exit,
	       .name = "builtin_dsq");
