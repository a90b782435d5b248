/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way from a policy into the virtual kernel: a table of functions that the
 * loader sets in each private copy of the object. A test compares its members
 * with `Table` in crates/abi/src/host_table.rs.
 */
#ifndef SCHEDLAB_SCX_HOST_H
#define SCHEDLAB_SCX_HOST_H

#include "ops.h"

struct lab_host {
	/* primitives of the policy library */
	void (*sync)(struct lab_host *h);
	void (*lock)(struct lab_host *h, void *word, u32 lock_class, const void *code);
	void (*unlock)(struct lab_host *h, void *word);
	bool (*trylock)(struct lab_host *h, void *word, u32 lock_class, const void *code);
	int (*res_lock)(struct lab_host *h, void *word, u32 lock_class, const void *code);
	void (*touch)(struct lab_host *h, const volatile void *addr, u32 len, bool write);
	void (*examine)(struct lab_host *h, const volatile void *ctx, u32 index);
	void (*look)(struct lab_host *h, const volatile void *ctx, u32 index, bool write);
	void (*recalculate)(struct lab_host *h, const volatile void *ctx, u32 index);
	void (*count)(struct lab_host *h, u32 probe, u64 n);
	void (*charge_ps)(struct lab_host *h, u64 ps);
	bool (*loop)(struct lab_host *h);
	void (*atomic)(struct lab_host *h, const volatile void *addr);
	void (*kfunc)(struct lab_host *h);
	void (*missing)(struct lab_host *h, const char *name);
	bool (*ksym_exists)(struct lab_host *h, const char *name);

	/* dispatch queues */
	s32 (*create_dsq)(struct lab_host *h, u64 dsq, s32 node);
	void (*destroy_dsq)(struct lab_host *h, u64 dsq);
	bool (*dsq_insert)(struct lab_host *h, struct task_struct *p, u64 dsq, u64 slice, u64 enq_flags,
			   const void *code);
	bool (*dsq_insert_vtime)(struct lab_host *h, struct task_struct *p, u64 dsq, u64 slice,
				 u64 vtime, u64 enq_flags, const void *code);
	bool (*dsq_move_to_local)(struct lab_host *h, u64 dsq, u64 enq_flags);
	s32 (*dsq_nr_queued)(struct lab_host *h, u64 dsq);
	struct task_struct *(*dsq_peek)(struct lab_host *h, u64 dsq);
	int (*iter_new)(struct lab_host *h, struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags);
	struct task_struct *(*iter_next)(struct lab_host *h, struct bpf_iter_scx_dsq *it);
	void (*iter_destroy)(struct lab_host *h, struct bpf_iter_scx_dsq *it);
	void (*move_set_slice)(struct lab_host *h, struct bpf_iter_scx_dsq *it, u64 slice);
	void (*move_set_vtime)(struct lab_host *h, struct bpf_iter_scx_dsq *it, u64 vtime);
	bool (*dsq_move)(struct lab_host *h, struct bpf_iter_scx_dsq *it, struct task_struct *p,
			 u64 dsq, u64 enq_flags, bool priq);
	u32 (*dispatch_nr_slots)(struct lab_host *h);
	void (*dispatch_cancel)(struct lab_host *h);
	u32 (*reenqueue)(struct lab_host *h, u64 dsq, u64 flags);

	/* CPUs */
	void (*kick_cpu)(struct lab_host *h, s32 cpu, u64 flags);
	s32 (*select_cpu_dfl)(struct lab_host *h, struct task_struct *p, s32 prev_cpu,
			      u64 wake_flags, bool *is_idle);
	s32 (*select_cpu_and)(struct lab_host *h, struct task_struct *p, s32 prev_cpu,
			      u64 wake_flags, const struct cpumask *allowed, u64 flags);
	bool (*test_and_clear_cpu_idle)(struct lab_host *h, s32 cpu);
	s32 (*pick_cpu)(struct lab_host *h, const struct cpumask *allowed, bool on_node, s32 node,
			u64 flags, bool any);
	const struct cpumask *(*idle_mask)(struct lab_host *h, bool on_node, s32 node, bool smt);
	const struct cpumask *(*online_mask)(struct lab_host *h);
	const struct cpumask *(*possible_mask)(struct lab_host *h);
	void (*put_mask)(struct lab_host *h, const struct cpumask *mask);
	u32 (*nr_cpu_ids)(struct lab_host *h);
	u32 (*nr_node_ids)(struct lab_host *h);
	s32 (*cpu_node)(struct lab_host *h, s32 cpu);
	/* which core (0), last-level cache (1), node (2) a CPU is in */
	u32 (*cpu_place)(struct lab_host *h, s32 cpu, u32 level);
	u32 (*cpuperf_cap)(struct lab_host *h, s32 cpu);
	u32 (*cpuperf_cur)(struct lab_host *h, s32 cpu);
	void (*cpuperf_set)(struct lab_host *h, s32 cpu, u32 perf);
	u32 (*smp_processor_id)(struct lab_host *h);
	struct bpf_cpumask *(*cpumask_create)(struct lab_host *h);
	void (*cpumask_acquire)(struct lab_host *h, struct bpf_cpumask *mask);
	void (*cpumask_release)(struct lab_host *h, struct bpf_cpumask *mask);
	u32 (*cpumask_any_distribute)(struct lab_host *h, const struct cpumask *a,
				      const struct cpumask *b);

	/* tasks */
	bool (*task_running)(struct lab_host *h, const struct task_struct *p);
	struct task_struct *(*cpu_curr)(struct lab_host *h, s32 cpu);
	struct rq *(*cpu_rq)(struct lab_host *h, s32 cpu);
	struct task_struct *(*current_task)(struct lab_host *h);
	struct task_struct *(*task_from_pid)(struct lab_host *h, s32 pid);
	struct task_struct *(*tid_to_task)(struct lab_host *h, u64 tid);
	bool (*task_set_slice)(struct lab_host *h, struct task_struct *p, u64 slice);
	bool (*task_set_dsq_vtime)(struct lab_host *h, struct task_struct *p, u64 vtime);

	/* maps */
	void *(*map_lookup)(struct lab_host *h, const void *map, const void *key);
	void *(*map_lookup_percpu)(struct lab_host *h, const void *map, const void *key, u32 cpu);
	long (*map_update)(struct lab_host *h, const void *map, const void *key,
			   const void *value, u64 flags);
	long (*map_delete)(struct lab_host *h, const void *map, const void *key);
	long (*map_push)(struct lab_host *h, const void *map, const void *value, u64 flags);
	long (*map_pop)(struct lab_host *h, const void *map, void *value, bool keep);
	bool (*map_next)(struct lab_host *h, const void *map, u64 *cursor, const void **key,
			 void **value);
	void *(*storage_get)(struct lab_host *h, const void *map, struct task_struct *p,
			     const void *init, u64 flags);
	long (*storage_delete)(struct lab_host *h, const void *map, struct task_struct *p);
	void *(*arena_alloc)(struct lab_host *h, const void *map, void *addr, u32 pages);
	void (*arena_free)(struct lab_host *h, const void *map, void *addr, u32 pages);

	/* time */
	u64 (*now)(struct lab_host *h);
	u32 (*random)(struct lab_host *h);
	long (*timer_init)(struct lab_host *h, struct bpf_timer *timer, const void *map, u64 flags);
	long (*timer_set_callback)(struct lab_host *h, struct bpf_timer *timer, void *callback);
	long (*timer_start)(struct lab_host *h, struct bpf_timer *timer, u64 nsecs, u64 flags);
	long (*timer_cancel)(struct lab_host *h, struct bpf_timer *timer);

	/* text */
	void (*exit)(struct lab_host *h, s64 code, const char *fmt, const u64 *args, u32 bytes);
	void (*error)(struct lab_host *h, const char *fmt, const u64 *args, u32 bytes);
	long (*print)(struct lab_host *h, const char *fmt, const u64 *args, u32 bytes, bool dump);

	/* the audit and the checker of races (audit.h) */
	void (*access)(struct lab_host *h, const volatile void *addr, u64 len, u32 kind,
		       const void *code);
	void (*atomic_access)(struct lab_host *h, const volatile void *addr, u32 len, u32 kind,
			      u32 order, const void *code);
	void (*fence)(struct lab_host *h, u32 order);
	void (*guard)(struct lab_host *h, const volatile void *lock, bool begins);
	void (*racy)(struct lab_host *h, bool begins);
	void (*context)(struct lab_host *h, const volatile void *ctx, u32 len, u32 index);
	void (*context_ends)(struct lab_host *h, const volatile void *ctx);
	void (*unaudited)(struct lab_host *h, bool begins);
};

/* One translation unit is one policy; the loader sets this before the first op. */
struct lab_host *lab_host __attribute__((used));

/*
 * The value that functions with arrays compare before they return, and where they go if it has changed:
 * no code is there, so that is a fault of the one that called (crates/abi/src/host.rs). The word is the
 * same in each run, and no text ends before it is overwritten.
 */
__asm__(".pushsection .data\n\t"
	".balign 8\n\t"
	".weak __stack_chk_guard\n\t"
	".hidden __stack_chk_guard\n"
	"__stack_chk_guard:\n\t"
	".quad 0x5afe0d0aff005afe\n\t"
	".weak __stack_chk_fail\n\t"
	".hidden __stack_chk_fail\n"
	"__stack_chk_fail:\n\t"
	".quad 0\n\t"
	".popsection");

#define LAB_INLINE static inline __attribute__((always_inline, unused))

/*
 * The stack that the virtual kernel may need when it is called (KERNEL_STACK_BYTES in
 * crates/fiber). The caller looks so far down: if the stack ends before, that is a fault here, in
 * the policy, and none in the virtual kernel in the middle of what it does. One instruction a call.
 */
#define LAB_KERNEL_STACK_BYTES 65536

LAB_INLINE struct lab_host *lab_enter(struct lab_host *host)
{
#if defined(__x86_64__)
	__asm__("testb $0, -%c1(%%rsp)" : "+r"(host) : "i"(LAB_KERNEL_STACK_BYTES));
#elif defined(__aarch64__)
	__asm__("sub x16, sp, %1\n\tldrb wzr, [x16]"
		: "+r"(host) : "i"(LAB_KERNEL_STACK_BYTES) : "x16");
#endif
	return host;
}

#define lab_host lab_enter(lab_host)

/* Order only: no CPU may read a word that was written in its future. */
LAB_INLINE void lab_host_sync(void)
{
	lab_host->sync(lab_host);
}

/* Right behind this place in the code, from which the debug information knows the lines around it and in callers. */
LAB_INLINE const void *lab_here(void)
{
	const void *code = 0;

#if defined(__x86_64__)
	__asm__ volatile("lea 0(%%rip), %0" : "=r"(code));
#elif defined(__aarch64__)
	__asm__ volatile("adr %0, . + 4" : "=r"(code));
#endif
	return code;
}

/* Takes a lock; the word holds its number, 0 = not yet numbered. */
LAB_INLINE void lab_host_lock(void *word, u32 lock_class)
{
	lab_host->lock(lab_host, word, lock_class, lab_here());
}

LAB_INLINE void lab_host_unlock(void *word)
{
	lab_host->unlock(lab_host, word);
}

LAB_INLINE bool lab_host_trylock(void *word, u32 lock_class)
{
	return lab_host->trylock(lab_host, word, lock_class, lab_here());
}

/* An access for the cache model, at the modelled address of @addr. */
LAB_INLINE void lab_host_touch(const volatile void *addr, u32 len, bool write)
{
	lab_host->touch(lab_host, addr, len, write);
}

/* A choice looks at a candidate: counted, charged, its scheduling fields touched. */
LAB_INLINE void lab_host_examine(const volatile void *ctx, u32 task_index)
{
	lab_host->examine(lab_host, ctx, task_index);
}

/* Reads or writes the scheduling fields of a task, and nothing else. */
LAB_INLINE void lab_host_look(const volatile void *ctx, u32 task_index, bool write)
{
	lab_host->look(lab_host, ctx, task_index, write);
}

/* A sweep rewrites a task's counter: charged, its scheduling fields written. */
LAB_INLINE void lab_host_recalculate(const volatile void *ctx, u32 task_index)
{
	lab_host->recalculate(lab_host, ctx, task_index);
}

/* Adds to a probe: the order of `struct Probes` in crates/engine/src/contract/this_cpu.rs. */
LAB_INLINE void lab_host_count(u32 probe, u64 n)
{
	lab_host->count(lab_host, probe, n);
}

LAB_INLINE void lab_host_charge_ps(u64 ps)
{
	lab_host->charge_ps(lab_host, ps);
}

/* One step of a bounded loop: charged; more than 8 Mi of them in one op end the run. */
LAB_INLINE bool lab_host_loop(void)
{
	return lab_host->loop(lab_host);
}

#include "audit.h"

#endif /* SCHEDLAB_SCX_HOST_H */
