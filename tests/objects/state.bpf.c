/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps, options, global variables, subprograms and callbacks. */
#include "kernel.h"

/* Runs after which it ends. */
const volatile u32 runs = 10;
const volatile s32 sign = -3;

struct {
	__uint(type, 1);
	__uint(max_entries, 100);
	__type(key, s32);
	__type(value, u64);
} by_pid SEC(".maps");

struct {
	__uint(type, 6);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} by_cpu SEC(".maps");

struct {
	__uint(type, 29);
	__uint(map_flags, 1);
	__type(key, int);
	__type(value, u64);
} by_task SEC(".maps");

u64 nr = 1000;
u64 looped;
extern int CONFIG_HZ __kconfig;

static long step(u32 index, u64 *sum)
{
	*sum += index;
	return index == 4;
}

static noinline u64 both(u64 a, u64 b)
{
	return a * 100 + b;
}

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	u64 one = 1, sum = 0, *hashed, *own, *mine;
	s32 pid = p->pid;
	u32 key = 0;

	mine = bpf_task_storage_get(&by_task, p, NULL, 1);
	own = bpf_map_lookup_elem(&by_cpu, &key);
	hashed = bpf_map_lookup_elem(&by_pid, &pid);
	if (!mine || !own)
		return 0;
	*mine += 1;
	*own += 1;
	if (hashed)
		*hashed += 1;
	else
		bpf_map_update_elem(&by_pid, &pid, &one, 1);
	__sync_fetch_and_add(&nr, 1);
	looped = bpf_loop(10, step, &sum, 0);
	if (nr == 1000 + runs) {
		u64 counts = both(*mine, hashed ? *hashed : 1);

		finish("runs %llu same %llu looped %llu sum %llu sign %lld hz %llu", *own, counts % 101 == 0, looped, sum,
		       sign, CONFIG_HZ);
	}
	return 0;
}

SCHEDULER("state", .running = (void *)k_running);
