/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One global queue; ends itself with its options as the exit code once asked to, so that a test
 * sees what the kernel side set.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

enum knob_kind { KNOB_KIND_FIRST, KNOB_KIND_SECOND = 5 };

const volatile bool tell;
const volatile u32 number = 3;
const volatile s64 negative;
const volatile enum knob_kind kind;

UEI_DEFINE(uei);

void BPF_STRUCT_OPS(knobs_enqueue, struct task_struct *p, u64 enq_flags)
{
	if (tell)
		scx_bpf_exit((u64)number * 100 + kind * 10 + (negative == -7), "told");
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(knobs_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(knobs_ops,
	       .enqueue	= (void *)knobs_enqueue,
	       .exit	= (void *)knobs_exit,
	       .name	= "knobs");
