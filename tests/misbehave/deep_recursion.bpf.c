/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A recursion that outgrows the stack. BPF has 512 bytes and the verifier counts them; in the virtual
 * kernel the guard page stops it.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

volatile u64 depth;

static __noinline u64 deeper(u64 n)
{
	volatile u64 frame[16];

	frame[n % 16] = n;
	depth = n;
	/* The condition is only there to keep compilers from seeing that it always holds. */
	return depth ? deeper(n + 1) + frame[n % 16] : 0;
}

void BPF_STRUCT_OPS(deep_recursion_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, deeper(1), enq_flags);
}

SCX_OPS_DEFINE(deep_recursion_ops,
	       .enqueue = (void *)deep_recursion_enqueue,
	       .exit = (void *)rule_exit,
	       .name = "deep_recursion");
