/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The library that policies share: locks, probes, task contexts and run-queue
 * structures. A policy includes this file and, behind it, what only some need:
 *
 * what families of schedulers share:
 * <lab/linux24.h>, those that grew out of Linux 2.4;
 * <lab/linux24_queue.h>, what the ops of some of them do, with one queue and one lock;
 * <lab/mq.h>, the multi-queue scheduler, whose pools make three policies;
 * <lab/percpu.h>, those with a run queue and a lock for each CPU;
 * <lab/fair.h>, CFS and EEVDF, with <lab/fair_weights.h>, <lab/fair_placement.h> and
 * <lab/fair_balance.h>; <lab/deadline.h>, BFS and MuQSS;
 *
 * structures: <lab/arrays.h>, the O(1) schedulers' pair of arrays; <lab/heap.h>,
 * a heap; <lab/rbtree.h>, a tree; <lab/skiplist.h>, a skip list;
 *
 * and <lab/topology.h>, which CPUs share what; <lab/periodic.h>, a timer;
 * <lab/cores.h>, which CPUs are threads of one core; <lab/idle.h>, which idle
 * CPUs are woken;
 * <lab/higher.h>, CPUs that higher scheduling classes have taken.
 *
 * It is the only code that knows which world it is compiled for. Under
 * __bpf__ it works on a BPF arena and counts in a per-CPU map; natively the
 * same calls go to the virtual kernel (lab_host_*), which makes locks contend,
 * charges time from the machine profile and feeds the cache model. Policies
 * contain no #ifdef for either.
 */
#ifndef LAB_LAB_BPF_H
#define LAB_LAB_BPF_H

#include <scx/common.bpf.h>

/*
 * A policy serves at most this many CPUs: the bits of a context's cached mask
 * of allowed CPUs. lab_init() refuses more.
 */
#define LAB_MAX_CPUS	1024

/* Data of different CPUs on separate cache lines is aligned to this. */
#define LAB_CACHELINE	64

/*
 * Arena that holds contexts, queues and locks. The bound is an upper limit,
 * not an allocation: 1 << 17 pages are 512 MB, a million contexts with room.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 17);
#if defined(__TARGET_ARCH_arm64) || defined(__aarch64__)
	__ulong(map_extra, 0x1ull << 32);
#else
	__ulong(map_extra, 0x1ull << 44);
#endif
} arena SEC(".maps");

#ifdef __bpf__
/* A pointer argument of a global function, which the verifier looks at by itself. */
#ifndef __arg_arena
#define __arg_arena	__attribute__((btf_decl_tag("arg:arena")))
#endif

/*
 * The verifier gives a program its arena when it sees the map referenced; a
 * program that only follows pointers out of task storage would have none.
 */
#define lab_use_arena() do { asm volatile("" :: "r"(&arena)); } while (0)
#else
#define lab_use_arena() do { } while (0)
#endif

/*
 * LAB_PART int f(...) - a part of an op that the verifier looks at by itself,
 * once, instead of at each call with all that led there. Its parameters are
 * numbers and pointers into the arena (each `type *name __arg_arena`), its
 * value is a number, and it begins with lab_use_arena() if it follows pointers
 * into the arena. LAB_SMALL_PART is one that native code has inline. A function
 * that is static __noinline is no such part: it spares the stack, but the verifier
 * follows each call of it.
 */
#ifdef __bpf__
#define LAB_PART	__noinline
#define LAB_SMALL_PART	__noinline
#else
#define LAB_PART	static __attribute__((noinline))
#define LAB_SMALL_PART	static __always_inline
#endif

/*
 * A word that other CPUs write without the lock that the reader holds, or the
 * other way round. Natively each such access waits until no CPU is earlier in
 * virtual time, so that no CPU reads a word out of its future. C leaves the
 * order of operands and arguments open: two such accesses in one expression
 * stand on either side of && or ||, or compilers come to different results.
 */
#ifdef __bpf__
#define lab_read(lvalue)		(*(volatile typeof(lvalue) *)&(lvalue))
#define lab_write(lvalue, value)	\
	((void)(*(volatile typeof(lvalue) *)&(lvalue) = (value)))
#else
#define lab_read(lvalue)		(lab_host_sync(), lab_host_once(lvalue))
#define lab_write(lvalue, value)	(lab_host_sync(), (void)(lab_host_once(lvalue) = (value)))
#endif

/*
 * The same where the original reads or writes such a word with no more ado, and how
 * old a value may be does not matter: marked accesses, but no points where CPUs wait.
 */
#ifdef __bpf__
/*
 * Plain: the compiler may fuse reads of one word, but reads words as a whole. With
 * volatile ones the verifier follows too many paths (queue24_enqueue() of dss: over
 * 8,192 branches).
 */
#define lab_glance(lvalue)		(lvalue)
#define lab_post(lvalue, value)		((void)((lvalue) = (value)))
#else
#define lab_glance(lvalue)		lab_host_once(lvalue)
#define lab_post(lvalue, value)		((void)(lab_host_once(lvalue) = (value)))
#endif

/*
 * An expression whose plain accesses may race with other CPUs' on purpose, such as
 * a hint that may be wrong, and an assignment of this kind: `schedlab sim --check`
 * does not report them. Beside it stands why a torn or old value does no harm.
 */
#ifdef __bpf__
#define lab_racy(expression)		(expression)
#define lab_racy_set(lvalue, value)	((void)((lvalue) = (value)))
#else
#define lab_racy(expression)		lab_host_racy(expression)
#define lab_racy_set(lvalue, value)	\
do {					\
	lab_host_racy_block();		\
	(lvalue) = (value);		\
} while (0)
#endif

#include "option.h"
#include "probe.h"
#include "lock.h"
#include "list.h"
#include "prio_array.h"
#include "task.h"
#include "higher.h"

#endif /* LAB_LAB_BPF_H */
