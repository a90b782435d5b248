/* SPDX-License-Identifier: GPL-2.0-only */
/* A kfunc that no kernel has yet: asked for, it is not there; called without asking, it ends the run. */
#include "kernel.h"

extern void scx_bpf_of_the_future(s32 cpu) __ksym __weak;
extern s32 scx_bpf_task_cpu(struct task_struct *p) __ksym __weak;

/* Whether it is called all the same. */
const volatile bool_t calls = 0;

u32 nr;

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	if (&scx_bpf_of_the_future || calls)
		scx_bpf_of_the_future(0);
	if (++nr == 3)
		finish("future %llu present %llu", &scx_bpf_of_the_future ? 1 : 0, &scx_bpf_task_cpu ? 1 : 0);
	return 0;
}

SCHEDULER("weak", .running = (void *)k_running);
