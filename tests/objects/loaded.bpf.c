/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * For its own loader: a variable that it sets, maps that it fills, a program that it runs before it attaches, and one that runs
 * where it attaches.
 */
#include "kernel.h"

struct bpf_cpumask {
	u64 bits;
};
extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
extern void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
extern bool_t bpf_cpumask_test_cpu(u32 cpu, const struct bpf_cpumask *mask) __ksym;
extern void not_in_any_kernel(void) __ksym __weak;
static struct bpf_cpumask *(*const exchange)(void *place, void *pointer) = (void *)194;

struct task_struct___other {
	u64 not_in_any_kernel;
} __core;

/* The loader sets it: 1 calls a function that is not there, 2 reads a field, 9 lets prepare() add 1000. */
const volatile u64 chosen = 100;

struct {
	__uint(type, 1);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} filled SEC(".maps");

struct {
	__uint(type, 6);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} of_cpus SEC(".maps");

/* No program that the loader runs uses it. */
struct {
	__uint(type, 1);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, u64);
} unused SEC(".maps");

u64 prepared = 5;
u64 calls;
u64 attached;
struct bpf_cpumask *mask;

static noinline u64 add(u64 a, u64 b)
{
	return a + b;
}

SEC("syscall") int prepare(u64 *argument)
{
	struct bpf_cpumask *fresh = mask ? NULL : bpf_cpumask_create();
	u32 key = 1;
	u64 *own;

	if (fresh)
		exchange(&mask, fresh);
	if (!mask)
		return -1;
	bpf_cpumask_set_cpu(*argument, mask);
	own = bpf_map_lookup_elem(&of_cpus, &key);
	if (own)
		*own += *argument;
	prepared = add(prepared, *argument);
	if (chosen == 9)
		prepared += 1000;
	*argument = prepared;
	calls++;
	return 42;
}

SEC("fentry/bpf_scx_reg") s32 on_attach(u64 *ctx)
{
	attached++;
	return 0;
}

SEC("struct_ops/running") s32 k_running(u64 *ctx)
{
	struct task_struct___other *p = (void *)ctx[0];
	u32 key = 3, other = 1;
	u64 *value = bpf_map_lookup_elem(&filled, &key);
	u64 *own = bpf_map_lookup_elem(&of_cpus, &other);
	u64 *lone = bpf_map_lookup_elem(&unused, &other);

	if (chosen == 1)
		not_in_any_kernel();
	if (chosen == 2)
		calls += p->not_in_any_kernel;
	if (!mask || !own)
		return 0;
	finish("chosen %llu filled %llu prepared %llu calls %llu mask %llu %llu own %llu unused %llu attached %llu", chosen, value ? *value : 0,
	       add(prepared, 0), calls, bpf_cpumask_test_cpu(0, mask), bpf_cpumask_test_cpu(1, mask), *own, lone ? *lone : 0,
	       attached);
	return 0;
}

SCHEDULER("loaded", .running = (void *)k_running, .timeout_ms = 5000);
