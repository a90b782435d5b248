/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reading through ops.dispatch()'s previous task without a test is refused by the verifier; in the
 * virtual kernel, which has none, it is a fault of the policy as soon as a CPU was idle.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

u64 vtime_seen;

void BPF_STRUCT_OPS(maybe_null_fail_dispatch, s32 cpu, struct task_struct *prev)
{
	vtime_seen = prev->scx.dsq_vtime;
}

SCX_OPS_DEFINE(maybe_null_fail_ops,
	       .dispatch = (void *)maybe_null_fail_dispatch,
	       .name = "maybe_null_fail");
