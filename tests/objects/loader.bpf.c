/* SPDX-License-Identifier: GPL-2.0-only */
/* The decisions of a loader: loader.sched.toml says them. Half of the scheduler is in loader_more.bpf.c. */
#include "kernel.h"

struct config {
	u32 first;
	struct {
		u64 second;
		s32 third;
	};
};

struct cpu_arg {
	s32 cpu;
	u64 weight;
};

const volatile struct config config;
const volatile u32 table[3][2];
const volatile u64 cpus_of[64];
const volatile u64 lone[1];
u64 sum, calls;
extern u64 more_count;
extern u64 more(u64 value);

struct {
	__uint(type, 2);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_arg);
} sized SEC(".maps");

SEC("syscall") s32 enable_cpu(struct cpu_arg *arg)
{
	sum += arg->cpu * 100 + arg->weight;
	calls++;
	return 0;
}

SEC("syscall") s32 fails(void *unused)
{
	return -22;
}

SEC("struct_ops/running") s32 l_running(u64 *ctx)
{
	u32 key = 2;
	struct cpu_arg *entry = bpf_map_lookup_elem(&sized, &key);

	finish("config %llu %llu %lld table %llu %llu cpus %llu %llu calls %llu sum %llu entry %llu more %llu %llu",
	       config.first + lone[0], config.second, (s64)config.third, table[1][0], table[2][1], cpus_of[0], cpus_of[1], calls,
	       sum, entry ? entry->cpu * 1000 + entry->weight : 0, more(4), more_count);
	return 0;
}

SCHEDULER("loader", .running = (void *)l_running);
