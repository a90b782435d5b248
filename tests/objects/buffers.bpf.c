/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps that forget, ring buffers, counters without events, text. */
#include "kernel.h"

struct {
	__uint(type, 9);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} lately SEC(".maps");

struct {
	__uint(type, 27);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 8);
} events SEC(".maps");

static void *(*const bpf_ringbuf_reserve)(void *map, u64 size, u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, u64 flags) = (void *)132;
static void (*const bpf_ringbuf_discard)(void *data, u64 flags) = (void *)133;
static long (*const bpf_perf_event_read_value)(void *map, u64 flags, void *buf, u32 size) = (void *)55;
static long (*const bpf_snprintf)(char *str, u32 size, const char *fmt, u64 *data, u32 length) = (void *)165;
static u64 (*const bpf_jiffies64)(void) = (void *)118;
static long (*const bpf_get_current_comm)(void *buf, u32 size) = (void *)16;

char text[8];
char comm[16];

SEC("struct_ops/running") s32 b_running(u64 *ctx)
{
	static const char fmt[] = "%d of many";
	u32 one = 1, two = 2, three = 3;
	u64 value = 7, number = 12, counters[3], kept;
	void *first, *second, *third;
	long length, error;

	bpf_map_update_elem(&lately, &one, &value, 0);
	bpf_map_update_elem(&lately, &two, &value, 0);
	bpf_map_lookup_elem(&lately, &one);
	bpf_map_update_elem(&lately, &three, &value, 0);
	kept = !!bpf_map_lookup_elem(&lately, &one) * 100 + !!bpf_map_lookup_elem(&lately, &two) * 10 +
	       !!bpf_map_lookup_elem(&lately, &three);
	first = bpf_ringbuf_reserve(&ring, 3000, 0);
	second = bpf_ringbuf_reserve(&ring, 3000, 0);
	if (first)
		bpf_ringbuf_submit(first, 0);
	third = bpf_ringbuf_reserve(&ring, 3000, 0);
	if (third)
		bpf_ringbuf_discard(third, 0);
	error = bpf_perf_event_read_value(&events, 0, counters, sizeof(counters));
	length = bpf_snprintf(text, sizeof(text), fmt, &number, sizeof(number));
	bpf_get_current_comm(comm, sizeof(comm));
	finish("kept %llu records %llu event %lld length %lld text %s jiffies %llu comm %llu", kept,
	       (u64)!!first * 100 + !!second * 10 + !!third, error, length, (u64)text,
	       bpf_jiffies64() == bpf_ktime_get_ns() / 4000000, comm[0] != 0);
	return 0;
}

SCHEDULER("buffers", .running = (void *)b_running);
