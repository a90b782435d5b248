/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replaces vmlinux.h for a policy: integer types and the structures of the
 * kernel, as far as the virtual kernel has them. A structure here is a shadow
 * of the kernel's: same names of members, own layout. A member that is missing
 * is not modelled, and using it is an error at compile time, never a made-up
 * value.
 *
 * Structures that crates/abi/src/layout.rs mirrors have their size and the
 * offset of their last member asserted in both places.
 */
#ifndef SCHEDLAB_SCX_TYPES_H
#define SCHEDLAB_SCX_TYPES_H

/* Headers that do without the kernel's types leave theirs out where this is defined. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;

typedef __u8 u8;
typedef __s8 s8;
typedef __u16 u16;
typedef __s16 s16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef unsigned long uint64_t;
typedef __s32 int32_t;
typedef long int64_t;
typedef unsigned long uintptr_t;
typedef __SIZE_TYPE__ size_t;
typedef long ssize_t;
typedef int pid_t;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef _Bool bool;
#define true	1
#define false	0
#define NULL	((void *)0)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	s64 counter;
} atomic64_t;

#define offsetof(type, member)	__builtin_offsetof(type, member)

/* Most CPUs of any machine that is modelled (CONFIG_NR_CPUS of Debian's kernel). */
#define LAB_NR_CPUS_MAX	8192

struct cpumask {
	unsigned long bits[LAB_NR_CPUS_MAX / 64];
};
typedef struct cpumask cpumask_t;

struct bpf_cpumask {
	cpumask_t cpumask;
};

struct mm_struct;
struct cgroup;
struct rq;

/*
 * The part of a task that sched_ext adds. What is the kernel's here and below the
 * verifier does not let policies write (bpf_scx_btf_struct_access()). Who plays the
 * kernel, in tests, defines it as nothing.
 */
#ifndef LAB_OF_KERNEL
#define LAB_OF_KERNEL	const
#endif

struct sched_ext_entity {
	u64 slice;		/* ns left, the policy may write it */
	u64 dsq_vtime;		/* the policy may write it */
	LAB_OF_KERNEL u64 tid;	/* never used again, unlike a pid */
	LAB_OF_KERNEL u32 flags;	/* SCX_TASK_* */
	LAB_OF_KERNEL u32 weight;	/* 1 to 10,000; 0 before ops.enable() */
	bool disallow;		/* the policy may set it in init_task */
	LAB_OF_KERNEL u8 __lab_inserted_in;	/* the op that inserted it last */
	LAB_OF_KERNEL u32 __lab_inserted_at;	/* and where in the code */
};

struct task_struct {
	LAB_OF_KERNEL u32 __lab_index;	/* which task of the virtual kernel this is */
	LAB_OF_KERNEL pid_t pid;
	LAB_OF_KERNEL pid_t tgid;
	LAB_OF_KERNEL unsigned int flags;	/* PF_* */
	LAB_OF_KERNEL int prio;
	LAB_OF_KERNEL int static_prio;
	LAB_OF_KERNEL int normal_prio;
	LAB_OF_KERNEL unsigned int rt_priority;
	LAB_OF_KERNEL unsigned int policy;	/* SCHED_* */
	LAB_OF_KERNEL int nr_cpus_allowed;
	const cpumask_t *LAB_OF_KERNEL cpus_ptr;
	struct mm_struct *LAB_OF_KERNEL mm;	/* distinguishes address spaces; cannot be followed */
	struct task_struct *LAB_OF_KERNEL real_parent;
	struct task_struct *LAB_OF_KERNEL parent;
	struct task_struct *LAB_OF_KERNEL group_leader;
	LAB_OF_KERNEL unsigned short migration_disabled;
	LAB_OF_KERNEL int __lab_cpu;	/* task_cpu() */
	struct sched_ext_entity scx;
	LAB_OF_KERNEL char comm[16];
};

_Static_assert(sizeof(struct sched_ext_entity) == 40, "mirrored in layout.rs");
_Static_assert(offsetof(struct task_struct, scx) == 88, "mirrored in layout.rs");
_Static_assert(sizeof(struct task_struct) == 144, "mirrored in layout.rs");

enum scx_exit_kind;

struct scx_exit_info {
	u32 kind;		/* enum scx_exit_kind */
	s32 exit_cpu;
	s64 exit_code;
	u64 flags;
	const char *reason;
	unsigned long *bt;
	u32 bt_len;
	char *msg;
	char *dump;
};

_Static_assert(sizeof(struct scx_exit_info) == 64, "mirrored in layout.rs");

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_exit_task_args {
	bool cancelled;
};

struct scx_cpu_acquire_args {
	/* the kernel's is empty, too */
};

struct scx_cpu_release_args {
	u32 reason;		/* enum scx_cpu_preempt_reason */
	struct task_struct *task;
};

_Static_assert(sizeof(struct scx_init_task_args) == 16, "mirrored in layout.rs");
_Static_assert(sizeof(struct scx_cpu_release_args) == 16, "mirrored in layout.rs");

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
};

_Static_assert(sizeof(struct scx_cgroup_init_args) == 32, "mirrored in layout.rs");

struct scx_dump_ctx {
	u32 kind;
	s64 exit_code;
	const char *reason;
	u64 at_ns;
	u64 at_jiffies;
};

_Static_assert(sizeof(struct scx_dump_ctx) == 40, "mirrored in layout.rs");

struct scx_sub_attach_args;
struct scx_sub_detach_args;

/* The place of a cid in the machine (kernel/sched/ext/types.h). Mirrored in crates/abi/src/cids.rs. */
struct scx_cid_topo {
	s32 core_cid;
	s32 core_idx;
	s32 llc_cid;
	s32 llc_idx;
	s32 node_cid;
	s32 node_idx;
};

/* A set of cids from a base on. Mirrored in crates/abi/src/cids.rs. */
struct scx_cmask {
	u32 base;
	u32 nr_cids;
	u32 alloc_words;
	u64 bits[];
};

_Static_assert(offsetof(struct scx_cmask, bits) == 16, "mirrored in cids.rs");

/* Packed arguments of two kfuncs (Linux 6.19 and later). */
struct scx_bpf_select_cpu_and_args {
	s32 prev_cpu;
	u64 wake_flags;
	u64 flags;
};

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

/* Opaque to the policy; the virtual kernel keeps a number in it. */
struct bpf_timer {
	u64 __opaque[2];
} __attribute__((aligned(8)));

struct bpf_spin_lock {
	u32 val;
};

struct bpf_res_spin_lock {
	u32 val;
};

struct bpf_iter_scx_dsq {
	u64 __opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	s32 __current;
	s32 __end;
};

/* The most words that an iterator over bits takes (BITS_ITER_NR_WORDS_MAX). */
#define LAB_BITS_WORDS	511

struct bpf_iter_bits {
	const u64 *__words;
	u32 __nr_bits;
	s32 __bit;
	u64 __copy[LAB_BITS_WORDS];
};

struct bpf_list_head { u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_list_node { u64 __opaque[3]; } __attribute__((aligned(8)));
struct bpf_rb_root { u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_rb_node { u64 __opaque[4]; } __attribute__((aligned(8)));
struct bpf_refcount { u32 __opaque; };

#endif /* SCHEDLAB_SCX_TYPES_H */
