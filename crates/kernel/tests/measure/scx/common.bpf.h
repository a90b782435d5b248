/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of the kernel and of libbpf that measure.bpf.c needs, for its tests by hand-made events:
 * only the used ones, kept by cases.c instead of a kernel.
 */
#ifndef MEASURE_TEST_COMMON_H
#define MEASURE_TEST_COMMON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t __u64;
typedef uint32_t __u32;

#define SEC(name)
#define __ksym
#define __weak			__attribute__((weak))
#define __uint(name, value)	int (*name)[value]
#define __type(name, type)	type *name
#define BPF_PROG(name, args...)	name(args)
#define barrier_var(x)		asm volatile("" : "+r"(x))
#define bpf_for(i, from, to)	for ((i) = (from); (i) < (to); (i)++)

enum {
	BPF_MAP_TYPE_TASK_STORAGE = 1,
	BPF_MAP_TYPE_PERCPU_ARRAY,
	BPF_MAP_TYPE_HASH,
	BPF_MAP_TYPE_RINGBUF,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_ANY = 0,
};

struct task_note;

struct cpumask {
	unsigned long bits[4];
};

struct affinity_context {
	struct cpumask *new_mask;
};

struct signal_struct {
	struct { int counter; } live;
};

struct task_struct {
	u32 pid, tgid;
	int prio, static_prio, normal_prio;
	unsigned int policy;
	int nr_cpus_allowed;
	struct cpumask cpus_mask;
	struct { u32 cpu; } thread_info;
	struct signal_struct *signal;
	char comm[16];
	struct task_note *note;
};

struct rq {
	int __lock;
};

/* The moment, the CPU and the task of the event that is made. */
extern u64 test_now;
extern u32 test_cpu;
extern u64 test_record[16];
extern struct task_struct *test_current;

void *bpf_map_lookup_elem(void *map, void *key);
struct task_note *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags);

static inline u64 bpf_ktime_get_ns(void)
{
	return test_now;
}

static inline u32 bpf_get_smp_processor_id(void)
{
	return test_cpu;
}

static inline struct task_struct *bpf_get_current_task_btf(void)
{
	return test_current;
}

static inline int bpf_map_update_elem(void *map, void *key, void *value, u64 flags)
{
	return 0;
}

/* The last record is where the cases look for it. */
static inline void *bpf_ringbuf_reserve(void *map, u64 bytes, u64 flags)
{
	return bytes <= sizeof(test_record) ? test_record : NULL;
}

static inline void bpf_ringbuf_submit(void *record, u64 flags)
{
}

static inline void bpf_probe_read_kernel_str(char *to, u32 bytes, const char *from)
{
	strncpy(to, from, bytes);
}

static inline void bpf_probe_read_kernel(void *to, u32 bytes, const void *from)
{
	memcpy(to, from, bytes);
}

static inline int bpf_strncmp(const char *a, u32 bytes, const char *b)
{
	return strncmp(a, b, bytes);
}

static inline void *bpf_per_cpu_ptr(void *p, u32 cpu)
{
	return p;
}

#endif /* MEASURE_TEST_COMMON_H */
