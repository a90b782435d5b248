/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An op that returns something negative that is no errno.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(init_rogue_errno_init)
{
	return -100000;
}

SCX_OPS_DEFINE(init_rogue_errno_ops,
	       .init = (void *)init_rogue_errno_init,
	       .exit = (void *)rule_exit,
	       .name = "init_rogue");
