/* SPDX-License-Identifier: GPL-2.0-only */
/* Prototypes and enumerators of its own, and nothing else: it schedules. */
#include "kernel.h"

enum { CLOCK_BOOTTIME = 7 };

struct pulse {
	struct bpf_timer {
		u64 opaque[2];
	} timer;
	u64 beats;
};

struct {
	__uint(type, 2);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pulse);
} pulses SEC(".maps");

u64 switches;

static int beat(void *map, u32 *key, struct pulse *pulse)
{
	pulse->beats++;
	bpf_timer_start(&pulse->timer, 1000000, 0);
	return 0;
}

SEC("struct_ops.s/init") s32 k_init(u64 *ctx)
{
	u32 key = 0;
	struct pulse *pulse = bpf_map_lookup_elem(&pulses, &key);

	if (!pulse || bpf_timer_init(&pulse->timer, &pulses, CLOCK_BOOTTIME))
		return -22;
	bpf_timer_set_callback(&pulse->timer, beat);
	bpf_timer_start(&pulse->timer, 1000000, 0);
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	u32 key = 0;
	struct pulse *pulse = bpf_map_lookup_elem(&pulses, &key);

	switches++;
	if (pulse && pulse->beats >= 5)
		finish("beats %llu switches %llu", pulse->beats >= 5, switches > 0);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops scheduler = {
	.enqueue = (void *)queue_enqueue,
	.dispatch = (void *)queue_dispatch,
	.running = (void *)k_running,
	.init = (void *)k_init,
	.name = "prototypes",
};
