/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moving a task by scx_bpf_dsq_move() from a timer to the local DSQ of a CPU that it may not run on.
 */
#include "rule.h"

char _license[] SEC("license") = "GPL";

#define DSQ 0

void BPF_STRUCT_OPS(timer_move_not_allowed_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 dsq = rule_is_half(p) ? DSQ : SCX_DSQ_GLOBAL;

	scx_bpf_dsq_insert(p, dsq, SCX_SLICE_DFL, enq_flags);
}

struct timer_value {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct timer_value);
} timers SEC(".maps");

#define PERIOD_NS 2000000

static int expired(void *map, int *key, struct bpf_timer *timer)
{
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, DSQ, 0) {
		scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | 0, 0);
		break;
	}
	bpf_timer_start(timer, PERIOD_NS, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(timer_move_not_allowed_init)
{
	struct bpf_timer *timer;
	u32 key = 0;
	s32 err;

	err = scx_bpf_create_dsq(DSQ, -1);
	if (err)
		return err;
	timer = bpf_map_lookup_elem(&timers, &key);
	if (!timer)
		return -ESRCH;
	err = bpf_timer_init(timer, &timers, 1 /* CLOCK_MONOTONIC */);
	if (!err)
		err = bpf_timer_set_callback(timer, expired);
	if (!err)
		err = bpf_timer_start(timer, PERIOD_NS, 0);
	return err;
}

SCX_OPS_DEFINE(timer_move_not_allowed_ops,
	       .enqueue = (void *)timer_move_not_allowed_enqueue,
	       .init = (void *)timer_move_not_allowed_init,
	       .exit = (void *)rule_exit,
	       .name = "timer_move");
