/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Constants with the kernel's values (Linux 7.2: include/linux/sched/ext.h,
 * kernel/sched/ext/internal.h, kernel/sched/sched.h, include/uapi/linux/bpf.h).
 * A test compares them with a table of numbers.
 */
#ifndef SCHEDLAB_SCX_ENUMS_H
#define SCHEDLAB_SCX_ENUMS_H

enum scx_public_consts {
	SCX_OPS_NAME_LEN		= 128,
	SCX_SLICE_DFL			= 20 * 1000000,
	SCX_SLICE_BYPASS		= 5 * 1000000,
	SCX_SLICE_INF			= ~0ULL,
};

enum scx_dsq_id_flags {
	SCX_DSQ_FLAG_BUILTIN		= 1ULL << 63,
	SCX_DSQ_FLAG_LOCAL_ON		= 1ULL << 62,
	SCX_DSQ_INVALID			= SCX_DSQ_FLAG_BUILTIN | 0,
	SCX_DSQ_GLOBAL			= SCX_DSQ_FLAG_BUILTIN | 1,
	SCX_DSQ_LOCAL			= SCX_DSQ_FLAG_BUILTIN | 2,
	SCX_DSQ_BYPASS			= SCX_DSQ_FLAG_BUILTIN | 3,
	SCX_DSQ_LOCAL_ON		= SCX_DSQ_FLAG_BUILTIN | SCX_DSQ_FLAG_LOCAL_ON,
	SCX_DSQ_LOCAL_CPU_MASK		= 0xffffffffULL,
};

/* Of `p->scx.flags` the virtual kernel keeps this one. */
enum scx_ent_flags {
	SCX_TASK_QUEUED			= 1 << 0,
};

enum scx_exit_kind {
	SCX_EXIT_NONE			= 0,
	SCX_EXIT_DONE			= 1,
	SCX_EXIT_UNREG			= 64,
	SCX_EXIT_UNREG_BPF		= 65,
	SCX_EXIT_UNREG_KERN		= 66,
	SCX_EXIT_SYSRQ			= 67,
	SCX_EXIT_PARENT			= 68,
	SCX_EXIT_ERROR			= 1024,
	SCX_EXIT_ERROR_BPF		= 1025,
	SCX_EXIT_ERROR_STALL		= 1026,
};

enum scx_exit_code {
	SCX_ECODE_RSN_HOTPLUG		= 1ULL << 32,
	SCX_ECODE_RSN_CGROUP_OFFLINE	= 2ULL << 32,
	SCX_ECODE_ACT_RESTART		= 1ULL << 48,
};

enum scx_exit_flags {
	SCX_EFLAG_INITIALIZED		= 1 << 0,
};

enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE	= 1 << 0,
	SCX_OPS_ENQ_LAST		= 1 << 1,
	SCX_OPS_ENQ_EXITING		= 1 << 2,
	SCX_OPS_SWITCH_PARTIAL		= 1 << 3,
	SCX_OPS_ENQ_MIGRATION_DISABLED	= 1 << 4,
	SCX_OPS_ALLOW_QUEUED_WAKEUP	= 1 << 5,
	SCX_OPS_BUILTIN_IDLE_PER_NODE	= 1 << 6,
	SCX_OPS_ALWAYS_ENQ_IMMED	= 1 << 7,
	SCX_OPS_TID_TO_TASK		= 1 << 8,
};

enum scx_cpu_preempt_reason {
	SCX_CPU_PREEMPT_RT,
	SCX_CPU_PREEMPT_DL,
	SCX_CPU_PREEMPT_STOP,
	SCX_CPU_PREEMPT_UNKNOWN,
};

enum scx_wake_flags {
	SCX_WAKE_FORK			= 0x04,
	SCX_WAKE_TTWU			= 0x08,
	SCX_WAKE_SYNC			= 0x10,
};

enum scx_enq_flags {
	SCX_ENQ_WAKEUP			= 0x1,
	SCX_ENQ_HEAD			= 0x10000,
	SCX_ENQ_CPU_SELECTED		= 0x100000,
	SCX_ENQ_PREEMPT			= 1ULL << 32,
	SCX_ENQ_IMMED			= 1ULL << 33,
	SCX_ENQ_REENQ			= 1ULL << 40,
	SCX_ENQ_LAST			= 1ULL << 41,
	SCX_ENQ_CLEAR_OPSS		= 1ULL << 56,
	SCX_ENQ_DSQ_PRIQ		= 1ULL << 57,
	SCX_ENQ_NESTED			= 1ULL << 58,
	SCX_ENQ_GDSQ_FALLBACK		= 1ULL << 59,
};
#define HAVE_SCX_ENQ_CPU_SELECTED

enum scx_deq_flags {
	SCX_DEQ_SLEEP			= 0x1,
	SCX_DEQ_CORE_SCHED_EXEC		= 1ULL << 32,
	SCX_DEQ_SCHED_CHANGE		= 1ULL << 33,
};

enum scx_reenq_flags {
	SCX_REENQ_ANY			= 1 << 0,
};

enum scx_pick_idle_cpu_flags {
	SCX_PICK_IDLE_CORE		= 1 << 0,
	SCX_PICK_IDLE_IN_NODE		= 1 << 1,
};

enum scx_kick_flags {
	SCX_KICK_IDLE			= 1 << 0,
	SCX_KICK_PREEMPT		= 1 << 1,
	SCX_KICK_WAIT			= 1 << 2,
};

enum scx_dsq_iter_flags {
	SCX_DSQ_ITER_REV		= 1 << 16,
};

enum scx_cpuperf {
	SCX_CPUPERF_ONE			= 1024,
};

enum bpf_map_type {
	BPF_MAP_TYPE_UNSPEC		= 0,
	BPF_MAP_TYPE_HASH		= 1,
	BPF_MAP_TYPE_ARRAY		= 2,
	BPF_MAP_TYPE_PROG_ARRAY		= 3,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY	= 4,
	BPF_MAP_TYPE_PERCPU_HASH	= 5,
	BPF_MAP_TYPE_PERCPU_ARRAY	= 6,
	BPF_MAP_TYPE_STACK_TRACE	= 7,
	BPF_MAP_TYPE_LRU_HASH		= 9,
	BPF_MAP_TYPE_LRU_PERCPU_HASH	= 10,
	BPF_MAP_TYPE_LPM_TRIE		= 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS	= 12,
	BPF_MAP_TYPE_HASH_OF_MAPS	= 13,
	BPF_MAP_TYPE_QUEUE		= 22,
	BPF_MAP_TYPE_STACK		= 23,
	BPF_MAP_TYPE_RINGBUF		= 27,
	BPF_MAP_TYPE_TASK_STORAGE	= 29,
	BPF_MAP_TYPE_BLOOM_FILTER	= 30,
	BPF_MAP_TYPE_USER_RINGBUF	= 31,
	BPF_MAP_TYPE_CGRP_STORAGE	= 32,
	BPF_MAP_TYPE_ARENA		= 33,
};

enum {
	BPF_ANY				= 0,
	BPF_NOEXIST			= 1,
	BPF_EXIST			= 2,
	BPF_F_LOCK			= 4,
};

enum {
	BPF_F_NO_PREALLOC		= 1 << 0,
	BPF_F_NO_COMMON_LRU		= 1 << 1,
	BPF_F_MMAPABLE			= 1 << 10,
	BPF_F_NO_USER_CONV		= 1 << 18,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE	= 1 << 0,
};

enum {
	BPF_F_TIMER_ABS			= 1 << 0,
	BPF_F_TIMER_CPU_PIN		= 1 << 1,
};

enum {
	BPF_MAX_LOOPS			= 8 * 1024 * 1024,
};

/* include/uapi/linux/sched.h, include/linux/sched.h */
#define SCHED_NORMAL	0
#define SCHED_FIFO	1
#define SCHED_RR	2
#define SCHED_BATCH	3
#define SCHED_IDLE	5
#define SCHED_DEADLINE	6
#define SCHED_EXT	7

#define PF_IDLE		0x00000002
#define PF_EXITING	0x00000004
#define PF_IO_WORKER	0x00000010
#define PF_WQ_WORKER	0x00000020
#define PF_KCOMPACTD	0x00010000
#define PF_KSWAPD	0x00020000
#define PF_KTHREAD	0x00200000

/* The one that the kernel tree's common.bpf.h has; policies define others. */
#define CLOCK_MONOTONIC	1

#define NUMA_NO_NODE	(-1)

#define EPERM		1
#define ENOENT		2
#define ESRCH		3
#define EINTR		4
#define EIO		5
#define E2BIG		7
#define EAGAIN		11
#define ENOMEM		12
#define EACCES		13
#define EFAULT		14
#define EBUSY		16
#define EEXIST		17
#define ENODEV		19
#define EINVAL		22
#define ENOSPC		28
#define ERANGE		34
#define EDEADLK		35
#define ENODATA		61
#define EOPNOTSUPP	95
#define ETIMEDOUT	110
#define EINPROGRESS	115

#endif /* SCHEDLAB_SCX_ENUMS_H */
