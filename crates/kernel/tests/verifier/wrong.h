/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Policies that the kernel's verifier refuses, one mistake each. The comment that opens a file says what
 * schedlab must say about it, one `says: …` a text, and the line that it must name ends with a comment
 * `here`. `says in 6.18: …` takes their place in one kernel, and `runs in 6.18` means that its verifier
 * passes the policy, which sched_ext then ends. crates/kernel/tests/verifier.rs loads them into real kernels; what those logged is kept in
 * crates/kernel/src/verdict/.
 */
#ifndef WRONG_H
#define WRONG_H

#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

u64 sum;

void BPF_STRUCT_OPS(wrong_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

#define WRONG_OPS(member, function)					\
SCX_OPS_DEFINE(wrong_ops,						\
	       .member = (void *)function,				\
	       .exit = (void *)wrong_exit,				\
	       .name = "wrong")

#endif
