/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A BPF spin lock that is still held when the op returns.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

private(LOCK) struct bpf_spin_lock lock;
u64 guarded;

void BPF_STRUCT_OPS(lock_held_on_return_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	bpf_spin_lock(&lock);
	guarded++;
}

SCX_OPS_DEFINE(lock_held_on_return_ops,
	       .enqueue = (void *)lock_held_on_return_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "lock_held");
