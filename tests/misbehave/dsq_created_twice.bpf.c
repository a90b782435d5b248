/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A DSQ id can be taken once; the second creation fails with -EEXIST and here fails init with it.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

s32 BPF_STRUCT_OPS_SLEEPABLE(dsq_created_twice_init)
{
	s32 err = scx_bpf_create_dsq(7, -1);

	return err ?: scx_bpf_create_dsq(7, -1);
}

SCX_OPS_DEFINE(dsq_created_twice_ops,
	       .init = (void *)dsq_created_twice_init,
	       .exit = (void *)rule_exit,
	       .name = "dsq_twice");
