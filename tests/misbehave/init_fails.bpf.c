/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * An init that fails ends the run before any task is scheduled.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(init_fails_init)
{
	return -ENOMEM;
}

SCX_OPS_DEFINE(init_fails_ops,
	       .init = (void *)init_fails_init,
	       .exit = (void *)rule_exit,
	       .name = "init_fails");
