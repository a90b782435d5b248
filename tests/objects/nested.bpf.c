/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps in maps: one that is there from the beginning, and such as a loader makes (nested.sched.toml, or the loader of the tests). */
#include "kernel.h"

#define __array(name, value)	typeof(value) *name[]

static long (*const bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;

const volatile u32 updates_outer = 0;

struct numbers {
	__uint(type, 2);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} first SEC(".maps");

struct {
	__uint(type, 12);
	__uint(max_entries, 3);
	__type(key, u32);
	__array(values, struct numbers);
} by_number SEC(".maps") = {
	.values = { [1] = &first },
};

struct queue {
	__uint(type, 22);
	__uint(max_entries, 64);
	__type(value, u64);
};

struct {
	__uint(type, 12);
	__uint(max_entries, 2);
	__type(key, u32);
	__array(values, struct queue);
} queues SEC(".maps");

struct table {
	__uint(type, 1);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
};

struct {
	__uint(type, 13);
	__uint(max_entries, 4);
	__type(key, u64);
	__array(values, struct table);
} by_key SEC(".maps");

static noinline u64 read(void *map, u32 key)
{
	u64 *value = map ? bpf_map_lookup_elem(map, &key) : NULL;

	return value ? *value : 0;
}

SEC("struct_ops/running") s32 n_running(u64 *ctx)
{
	u64 forty = 40, value = 100, pushed = 0, popped = 0, seven = 7, one = 1, zero = 0, two = 2;
	void *numbers, *queue, *other, *table;
	u32 i, key = 0, at = 1, nine = 9;
	s64 none, full = 0;

	/* The map in the map is the one of the variable. */
	numbers = bpf_map_lookup_elem(&by_number, &at);
	if (numbers)
		bpf_map_update_elem(numbers, &key, &forty, 0);
	if (updates_outer)
		bpf_map_update_elem(&by_number, &key, &forty, 0);
	queue = bpf_map_lookup_elem(&queues, &key);
	other = bpf_map_lookup_elem(&queues, &at);
	if (!queue || !other)
		return 0;
	for (i = 0; i < 80 && !full; i++) {
		full = bpf_map_push_elem(queue, &value, 0);
		pushed += !full;
		value++;
	}
	bpf_map_pop_elem(queue, &popped);
	none = bpf_map_pop_elem(other, &value);
	table = bpf_map_lookup_elem(&by_key, &one);
	if (table)
		bpf_map_update_elem(table, &nine, &seven, 0);
	finish("first %llu absent %llu pushed %llu full %lld popped %llu none %lld table %llu other %llu gone %llu", read(&first, 0),
	       bpf_map_lookup_elem(&by_number, &key) == NULL, pushed, full, popped, none, read(table, 9),
	       read(bpf_map_lookup_elem(&by_key, &zero), 9), bpf_map_lookup_elem(&by_key, &two) == NULL);
	return 0;
}

SCHEDULER("nested", .running = (void *)n_running);
