/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The least of a kernel's headers that the objects here need, with prototypes of
 * their own: nothing of include/ is used, as in the tree of a stranger.
 */
#ifndef OBJECTS_KERNEL_H
#define OBJECTS_KERNEL_H

typedef unsigned char bool_t;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name)	__attribute__((section(name), used))
#define __ksym		__attribute__((section(".ksyms")))
#define __kconfig	__attribute__((section(".kconfig")))
#define __weak		__attribute__((weak))
#define __core		__attribute__((preserve_access_index))
#define __uint(name, value)	int (*name)[value]
#define __type(name, value)	typeof(value) *name
#define NULL		((void *)0)
#define noinline	__attribute__((noinline))

struct sched_ext_entity {
	u64 dsq_vtime;
	u64 slice;
	u32 weight;
} __core;

struct task_struct {
	char padding[1000];	/* places differ from those of the virtual kernel */
	int pid;
	struct sched_ext_entity scx;
	char comm[16];
} __core;

struct scx_exit_info {
	int kind;
	s64 exit_code;
	char *msg;
} __core;

struct cgroup;
struct scx_cgroup_init_args;

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool_t runnable);
	s32 (*init_task)(struct task_struct *p, void *args);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	s32 (*cgroup_prep_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool_t idle);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

#define SCX_DSQ_LOCAL	(1ull << 63 | 2)

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static void *(*const bpf_task_storage_get)(void *map, struct task_struct *p, void *value, u64 flags) = (void *)156;
static long (*const bpf_timer_init)(void *timer, void *map, u64 flags) = (void *)169;
static long (*const bpf_timer_set_callback)(void *timer, void *callback) = (void *)170;
static long (*const bpf_timer_start)(void *timer, u64 nsecs, u64 flags) = (void *)171;
static long (*const bpf_loop)(u32 nr, void *callback, void *ctx, u64 flags) = (void *)181;

extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
extern bool_t scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
extern s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool_t *is_idle) __ksym;
extern void scx_bpf_exit_bstr(s64 code, char *fmt, u64 *data, u32 size) __ksym;

/* Ends the scheduler with a message of numbers. */
#define finish(fmt, args...)						\
({									\
	static char ___fmt[] = fmt;					\
	u64 ___args[] = { args };					\
	scx_bpf_exit_bstr(7, ___fmt, ___args, sizeof(___args));		\
})

char LICENSE[] SEC("license") = "GPL";

#define QUEUE	1

/* A queue for all: what each object schedules by. */
SEC("struct_ops.s/init") s32 queue_init(u64 *ctx)
{
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC("struct_ops/enqueue") s32 queue_enqueue(u64 *ctx)
{
	scx_bpf_dsq_insert((void *)ctx[0], QUEUE, 20000000, ctx[1]);
	return 0;
}

SEC("struct_ops/dispatch") s32 queue_dispatch(u64 *ctx)
{
	scx_bpf_dsq_move_to_local(QUEUE);
	return 0;
}

#define SCHEDULER(name_, more...)					\
SEC(".struct_ops.link")							\
struct sched_ext_ops scheduler = {					\
	.enqueue = (void *)queue_enqueue,				\
	.dispatch = (void *)queue_dispatch,				\
	.init = (void *)queue_init,					\
	.name = name_,							\
	more								\
}

#endif
