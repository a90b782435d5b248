/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler of the cid form: what its ops and functions get and give, on a machine whose cids are not its CPUs. A task that
 * may run on the cids 12 and 13 alone is sent to 13, and the scheduler ends as it runs there.
 */
#include "kernel.h"

#define __arena		__attribute__((address_space(1)))

struct scx_cmask {
	u32 base;
	u32 nr_cids;
	u32 alloc_words;
	u64 bits[];
};

struct scx_cid_topo {
	s32 core_cid;
	s32 core_idx;
	s32 llc_cid;
	s32 llc_idx;
	s32 node_cid;
	s32 node_idx;
};

struct sched_ext_ops_cid {
	s32 (*select_cid)(struct task_struct *p, s32 prev_cid, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cid, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*set_cmask)(struct task_struct *p, const struct scx_cmask *cmask);
	void (*update_idle)(s32 cid, bool_t idle);
	s32 (*cpuctl_init)(void *cgrp, void *args);	/* of a later kernel, and not there */
	s32 (*init)(void);
	u32 dispatch_max_batch;
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

extern s32 scx_bpf_cpu_to_cid(s32 cpu) __ksym __weak;
extern s32 scx_bpf_cid_to_cpu(s32 cid) __ksym __weak;
extern void scx_bpf_cid_topo(s32 cid, struct scx_cid_topo *out, u64 size) __ksym __weak;
extern void scx_bpf_cid_override___compat(const s32 *cpu_to_cid, u32 size) __ksym __weak;
extern void scx_bpf_kick_cid(s32 cid, u64 flags) __ksym __weak;
extern s32 scx_bpf_task_cid(const struct task_struct *p) __ksym __weak;
extern s32 scx_bpf_this_cid(void) __ksym __weak;
extern struct task_struct *scx_bpf_cid_curr(s32 cid) __ksym __weak;
extern u32 scx_bpf_nr_cids(void) __ksym __weak;
extern u32 scx_bpf_nr_online_cids(void) __ksym __weak;
extern u32 scx_bpf_cidperf_cap(s32 cid) __ksym __weak;
extern u32 scx_bpf_cidperf_cur(s32 cid) __ksym __weak;
extern void scx_bpf_cidperf_set(s32 cid, u32 perf) __ksym __weak;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym __weak;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym __weak;

struct {
	__uint(type, 33);
	__uint(map_flags, 1 << 10);
	__uint(max_entries, 64);
} arena SEC(".maps");

/*
 * 1: a CPU of the cpu form is kicked; 2: a cid that is not there is looked up, 3: is sent to, 4: is selected; 5: cids are turned
 * round, 6: one of two CPUs, 7: of too few CPUs.
 */
const volatile u32 odd;

#define LOCAL_ON	(3ull << 62)

u64 mask_base, mask_cids, mask_words, idle_cids, dispatched, runs;
s32 prev;
/* The task that may run on the cids 12 and 13 alone; 0 where no task may. Workers of the kernel have masks of their own. */
s32 bound;
s32 of_cpu[24];

SEC("struct_ops/select_cid") s32 c_select_cid(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];

	if (p->pid == bound)
		prev = ctx[1];
	return odd == 4 ? 24 : (s32)ctx[1];
}

SEC("struct_ops/enqueue") s32 c_enqueue(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];

	if (odd == 3)
		scx_bpf_dsq_insert(p, LOCAL_ON | 24, 20000000, ctx[1]);
	else if (p->pid == bound)
		scx_bpf_dsq_insert(p, LOCAL_ON | 13, 20000000, ctx[1]);
	else
		scx_bpf_dsq_insert(p, QUEUE, 20000000, ctx[1]);
	return 0;
}

SEC("struct_ops/dispatch") s32 c_dispatch(u64 *ctx)
{
	dispatched |= 1ull << (u32)ctx[0];
	scx_bpf_dsq_move_to_local(QUEUE);
	return 0;
}

SEC("struct_ops/set_cmask") s32 c_set_cmask(u64 *ctx)
{
	struct scx_cmask __arena *of = (struct scx_cmask __arena *)(long)ctx[1];
	struct task_struct *p = (void *)ctx[0];

	asm volatile("" :: "r"(&arena));
	if (of->bits[0] != 0x3000) {
		if (p->pid == bound)
			bound = 0;
		return 0;
	}
	bound = p->pid;
	mask_base = of->base;
	mask_cids = of->nr_cids;
	mask_words = of->alloc_words;
	return 0;
}

SEC("struct_ops/update_idle") s32 c_update_idle(u64 *ctx)
{
	if ((bool_t)ctx[1])
		idle_cids |= 1ull << (u32)ctx[0];
	return 0;
}

SEC("struct_ops/running") s32 c_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct scx_cid_topo topo = {}, *at = &topo;
	s32 cid = scx_bpf_this_cid();

	if (odd == 1)
		scx_bpf_kick_cpu(0, 0);
	if (odd == 2)
		scx_bpf_cid_to_cpu(24);
	if (odd == 5) {
		scx_bpf_cid_topo(0, at, sizeof(topo));
		finish("cpu %lld of %lld topo %lld %lld", (s64)scx_bpf_cid_to_cpu(0), (s64)scx_bpf_cpu_to_cid(1), (s64)topo.core_cid,
		       (s64)topo.node_idx);
		return 0;
	}
	/* Between the first run and the second its CPU was idle. */
	if (p->pid != bound || cid != 13 || ++runs < 2)
		return 0;
	scx_bpf_cid_topo(cid, at, sizeof(topo));
	scx_bpf_kick_cid(12, 1);
	scx_bpf_cidperf_set(cid, 512);
	finish("task %lld cpu %llu cid %lld back %lld core %lld %lld llc %lld %lld node %lld %lld cids %llu %llu mask %llu %llu %llu perf %llu %llu idle %llu dispatched %llu prev %lld there %llu queued %lld",
	       (s64)scx_bpf_task_cid(p), bpf_get_smp_processor_id(), (s64)scx_bpf_cpu_to_cid(18), (s64)scx_bpf_cid_to_cpu(12),
	       (s64)topo.core_cid, (s64)topo.core_idx, (s64)topo.llc_cid, (s64)topo.llc_idx, (s64)topo.node_cid, (s64)topo.node_idx,
	       scx_bpf_nr_cids(), scx_bpf_nr_online_cids(), mask_base, mask_cids, mask_words, scx_bpf_cidperf_cap(0),
	       scx_bpf_cidperf_cur(23), idle_cids >> 13 & 1, dispatched >> 13 & 1, (s64)prev,
	       scx_bpf_cid_curr(0) != NULL, (s64)scx_bpf_dsq_nr_queued(LOCAL_ON | 0));
	return 0;
}

SEC("struct_ops.s/init") s32 c_init(u64 *ctx)
{
	u32 i;

	for (i = 0; i < 24; i++)
		of_cpu[i] = odd == 6 ? i / 2 : 23 - i;
	if (odd >= 5)
		scx_bpf_cid_override___compat(of_cpu, odd == 7 ? 23 * 4 : 24 * 4);
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops_cid scheduler = {
	.select_cid = (void *)c_select_cid,
	.enqueue = (void *)c_enqueue,
	.dispatch = (void *)c_dispatch,
	.running = (void *)c_running,
	.set_cmask = (void *)c_set_cmask,
	.update_idle = (void *)c_update_idle,
	.init = (void *)c_init,
	.name = "cids",
};
