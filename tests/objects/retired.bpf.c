/* SPDX-License-Identifier: GPL-2.0-only */
/* Functions under the names that the kernel once had for them, and the question whether one is still there. */
#include "kernel.h"

extern void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
extern bool_t scx_bpf_consume(u64 dsq_id) __ksym __weak;
extern void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym __weak;

u64 dispatched, consumed;

SEC("struct_ops/enqueue") s32 r_enqueue(u64 *ctx)
{
	scx_bpf_dispatch((void *)ctx[0], QUEUE, 20000000, ctx[1]);
	dispatched++;
	return 0;
}

SEC("struct_ops/dispatch") s32 r_dispatch(u64 *ctx)
{
	consumed += scx_bpf_consume(QUEUE);
	return 0;
}

SEC("struct_ops/running") s32 r_running(u64 *ctx)
{
	if (consumed > 2)
		finish("dispatched %llu asked %llu", dispatched > 2, !!scx_bpf_dispatch_vtime);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops scheduler = {
	.enqueue = (void *)r_enqueue,
	.dispatch = (void *)r_dispatch,
	.running = (void *)r_running,
	.init = (void *)queue_init,
	.name = "retired",
};
