/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Locks in the arena that guard run queues.
 *
 * Rules: interrupts saved and off while one is held; a fixed order where two
 * are held, a try-lock otherwise; no kfunc that can re-enter an op under one.
 *
 * The kind is chosen when the policy is loaded: `tas`, a test-and-test-and-set
 * word that no try takes while others wait for it (otherwise Linux 2.4's, and
 * robust where a waiting CPU may not be running, as in a virtual machine: then
 * tries fail until it does, and any waiter takes it), or `queued`, scx_cargo's
 * arena spin lock, first come first served, for large machines. Natively the
 * machine profile has the kind of its locks and the virtual kernel carries them
 * out.
 *
 * No wait is long, as a CPU that waits takes no interrupt: a CPU that finds that it
 * holds the lock itself, or has waited for LAB_LOCK_PATIENCE_NS, ends the policy by
 * scx_bpf_error(), which names the lock, its holder, since when it is held and where
 * it was taken. From then on, and after any other scx_bpf_error() or scx_bpf_exit(),
 * every attempt fails at once, so that CPUs do not wait one after another while
 * the kernel takes the policy out. lab_lock() is false then: the caller returns
 * and touches nothing. There is no fallback queue.
 */
#ifndef LAB_LOCK_H
#define LAB_LOCK_H

/* The data that a lock protects: the discriminants of LockClass in crates/trace. */
enum lab_lock_class {
	LAB_LOCK_CLASS_RUN_QUEUE,
	LAB_LOCK_CLASS_DSQ,
	LAB_LOCK_CLASS_KERNEL_RQ,
	LAB_LOCK_CLASS_OTHER,
};

/* A caller that ignores whether it has the lock touches data that it may not. */
#define LAB_MUST_CHECK	__attribute__((warn_unused_result))

#ifdef __bpf__

#include <bpf_arena_spin_lock.h>

enum lab_lock_kind {
	LAB_LOCK_TAS,
	LAB_LOCK_QUEUED,
};

/* Kind of the policy's locks: test-and-test-and-set, or first come first served. */
const volatile enum lab_lock_kind lab_lock_kind = LAB_LOCK_TAS;

struct lab_lock {
	u32 word;			/* tas: LAB_TAS_HELD, and how many wait times LAB_TAS_WAITER */
	arena_spinlock_t queued;
	enum lab_lock_class class;
	u32 holder;			/* 1 + the CPU that holds it, 0 = unknown; the holder's, as the next fields */
	u64 taken_ns;			/* when it took it */
	u64 taken_at;			/* where: a text, file:line */
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_lock __arena lab_lock_t;

/* One set of queue nodes per CPU, shared by all queued locks. */
struct arena_qnode __arena_global __hidden qnodes[_Q_MAX_CPUS][_Q_MAX_NODES];

#define lab_irq_save(flags)	bpf_local_irq_save(&(flags))
#define lab_irq_restore(flags)	bpf_local_irq_restore(&(flags))

#define LAB_TAS_HELD	1u
#define LAB_TAS_WAITER	2u

/*
 * Fails while others wait, too. MuQSS tries the locks of all queues in each
 * choice: in a virtual machine whose CPUs take turns, a CPU that waited for its
 * own queue found it taken at each of its turns, for 4 s.
 */
static __always_inline bool lab_tas_trylock(lab_lock_t *lock)
{
	return !*(volatile u32 __arena *)&lock->word &&
	       !__sync_val_compare_and_swap(&lock->word, 0, LAB_TAS_HELD);
}

/* One of those who wait takes it, if it is free. */
static __always_inline bool lab_tas_taken_by_waiter(lab_lock_t *lock)
{
	u32 seen = *(volatile u32 __arena *)&lock->word;

	return !(seen & LAB_TAS_HELD) &&
	       __sync_val_compare_and_swap(&lock->word, seen,
					   (seen - LAB_TAS_WAITER) | LAB_TAS_HELD) == seen;
}

/* On x86 every atomic operation keeps earlier stores before it; elsewhere one that gives a value. */
static __always_inline void lab_tas_unlock(lab_lock_t *lock)
{
#if defined(__TARGET_ARCH_x86)
	__sync_fetch_and_sub(&lock->word, LAB_TAS_HELD);
#else
	u32 before = __sync_fetch_and_sub(&lock->word, LAB_TAS_HELD);

	barrier_var(before);
#endif
}

/*
 * How long a waiter waits. In a virtual machine with more CPUs than its host has
 * cores, a holder was seen not to run for 0.4 s and a waiter to wait for 1.8 s.
 * The first of the kernel's watchdogs, that for hard lockups, steps in at 10 s; a
 * policy's own (timeout_ms) is at most 30 s.
 */
#define LAB_LOCK_PATIENCE_NS	4000000000ull

/* The policy has ended, or is about to: no lock is given any more. Alone in its line, as each attempt reads it. */
static struct {
	volatile u32 ended;
} lab_policy __attribute__((aligned(LAB_CACHELINE)));

/* A call that ends the policy in the kernel ends its locks first. */
#define scx_bpf_error_bstr(...)	(lab_policy.ended = 1, scx_bpf_error_bstr(__VA_ARGS__))
#define scx_bpf_exit_bstr(...)	(lab_policy.ended = 1, scx_bpf_exit_bstr(__VA_ARGS__))

/* So does ops.exit(), whose reason may be the kernel's own: timers of the policy may still run. */
#undef UEI_RECORD
#define UEI_RECORD(uei, ei)						\
({									\
	lab_policy.ended = 1;						\
	bpf_probe_read_kernel_str((uei).reason, sizeof((uei).reason), (ei)->reason); \
	bpf_probe_read_kernel_str((uei).msg, sizeof((uei).msg), (ei)->msg); \
	bpf_probe_read_kernel_str(uei##_dump, uei##_dump_len, (ei)->dump); \
	(uei).exit_code = (ei)->exit_code;				\
	(uei).exit_cpu = bpf_core_field_exists((ei)->exit_cpu) ? (ei)->exit_cpu : -1; \
	/* Last, and as a barrier: user space looks at the kind first. */ \
	__sync_lock_test_and_set(&(uei).kind, (ei)->kind);		\
})

/*
 * The lock for which each CPU waits, and where: texts, 0 = nothing. A CPU that waits in
 * vain reports its own and the holder's, which may wait for a lock of the waiter's.
 */
struct lab_lock_wait {
	u64 name;
	u64 place;
	lab_lock_t *lock;
};

struct lab_lock_wait __arena_global lab_lock_waits[LAB_MAX_CPUS];

/* This place in the source as a text. */
#define LAB_HERE							\
({									\
	static const char ___here[] = __FILE__ ":" SCX_TOSTRING(__LINE__); \
									\
	(u64)(unsigned long)___here;					\
})

/* A text whose address the kernel can print. */
#define LAB_TEXT_OF(text)						\
({									\
	static const char ___text[] = text;				\
									\
	(u64)(unsigned long)___text;					\
})

/* Most steps of one bpf_for() (BPF_MAX_LOOPS), and how many of those there may be. */
#define LAB_TAS_STEPS		(8 << 20)
#define LAB_TAS_ROUNDS		64

/*
 * Waits by reading, so as not to take the line from the holder. The bound is an
 * iterator and the clock, not can_loop: in ops.dispatch() of Linux 7.2.13 waits
 * bounded by can_loop were seen to end after half a millisecond instead of a
 * quarter of a second (scx_cargo's queued lock does, see docs/schedulers/dss.md).
 * A part of its own: the verifier checks the loops once and not at each place where
 * a lock is taken.
 */
LAB_PART bool lab_tas_wait(lab_lock_t *lock __arg_arena)
{
	u64 until = bpf_ktime_get_ns() + LAB_LOCK_PATIENCE_NS;
	u32 round, i;

	lab_use_arena();
	__sync_fetch_and_add(&lock->word, LAB_TAS_WAITER);
	bpf_for(round, 0, LAB_TAS_ROUNDS) {
		bpf_for(i, 0, LAB_TAS_STEPS) {
			if (lab_policy.ended)
				goto in_vain;
			if (lab_tas_taken_by_waiter(lock))
				return true;
			if (!(i & 0xfff) && bpf_ktime_get_ns() > until)
				goto in_vain;
		}
	}
in_vain:
	__sync_fetch_and_sub(&lock->word, LAB_TAS_WAITER);
	return false;
}

/* Whether the lock guards a run queue; others are in no count, as in the virtual kernel. */
static __always_inline bool lab_lock_counts(lab_lock_t *lock)
{
	return lock->class <= LAB_LOCK_CLASS_DSQ;
}

/* Whether this CPU holds it: no other one writes its number, and it takes it back before it releases. */
static __always_inline bool lab_lock_is_own(lab_lock_t *lock)
{
	return *(volatile u32 __arena *)&lock->holder == bpf_get_smp_processor_id() + 1;
}

/* An error without the place of this header before it. */
#define lab_lock_error(fmt, args...)					\
({									\
	scx_bpf_bstr_preamble(fmt, args)				\
	scx_bpf_error_bstr(___fmt, ___param, sizeof(___param));		\
})

/*
 * This CPU will not get the lock: the policy ends, with the culprit's name. Always
 * false.
 */
LAB_PART bool lab_lock_failed(lab_lock_t *lock __arg_arena)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct lab_lock_wait __arena *own = &lab_lock_waits[cpu & (LAB_MAX_CPUS - 1)];
	struct lab_lock_wait __arena *other;
	u64 held_ms, name, place;
	u32 holder, beyond = 0;
	lab_lock_t *next;

	lab_use_arena();
	if (lab_policy.ended)
		return false;
	holder = *(volatile u32 __arena *)&lock->holder;
	/* Where the holder waits for a third CPU, this one only stands behind it: the report is about those two. */
	if (holder && holder != cpu + 1) {
		other = &lab_lock_waits[(holder - 1) & (LAB_MAX_CPUS - 1)];
		next = other->lock;
		if (other->name && next)
			beyond = *(volatile u32 __arena *)&next->holder;
		if (beyond && beyond != holder && beyond != cpu + 1) {
			own = other;
			lock = next;
			cpu = holder - 1;
			holder = beyond;
		}
	}
	held_ms = (bpf_ktime_get_ns() - lock->taken_ns) / 1000000;
	if (!holder) {
		lab_lock_error("%s: lock %s: not given to CPU %d in time, though nobody has taken it: more CPUs wait than can run",
			       own->place, own->name, cpu);
		return false;
	}
	if (holder == cpu + 1) {
		lab_lock_error("%s: lock %s: CPU %d waits for itself: it took the lock at %s %llu ms ago and has not released it: release it on every path from there",
			       own->place, own->name, cpu, lock->taken_at, held_ms);
		return false;
	}
	other = &lab_lock_waits[(holder - 1) & (LAB_MAX_CPUS - 1)];
	name = other->name;
	place = other->place;
	if (name && place)
		lab_lock_error("%s: lock %s: CPU %d waits in vain for CPU %d, which took it at %s %llu ms ago and waits for lock %s at %s: take both in one order, or the second by lab_trylock()",
			       own->place, own->name, cpu, holder - 1, lock->taken_at, held_ms,
			       name, place);
	else
		lab_lock_error("%s: lock %s: CPU %d waits in vain for CPU %d, which took it at %s %llu ms ago and has not released it: release it on every path from there",
			       own->place, own->name, cpu, holder - 1, lock->taken_at, held_ms);
	return false;
}

/* The lock is this CPU's. */
static __always_inline void lab_lock_taken(lab_lock_t *lock, u64 here)
{
	lock->holder = bpf_get_smp_processor_id() + 1;
	lock->taken_ns = bpf_ktime_get_ns();
	lock->taken_at = here;
}

/*
 * The lock is not free: waits for it, or ends the policy. What this CPU waits for is
 * noted.
 */
LAB_PART bool lab_lock_wait(lab_lock_t *lock __arg_arena)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 asked = bpf_ktime_get_ns(), waited;
	bool taken;

	lab_use_arena();
	if (lab_lock_is_own(lock))
		taken = false;
	else if (lab_lock_kind == LAB_LOCK_QUEUED)
		taken = !arena_spin_lock_slowpath(&lock->queued,
						  *(volatile int __arena *)&lock->queued.val.counter);
	else
		taken = lab_tas_wait(lock);
	if (!taken)
		return lab_lock_failed(lock);
	lab_lock_waits[cpu & (LAB_MAX_CPUS - 1)].name = 0;
	if (!lab_lock_counts(lock))
		return true;
	waited = bpf_ktime_get_ns() - asked;
	lab_count(LAB_LOCK_CONTENDED, 1);
	lab_count(LAB_LOCK_WAIT_NS, waited);
	lab_count_max(LAB_LOCK_WAIT_NS_MAX, waited);
	return true;
}

/* Takes the lock if it is free; the queued kind leaves preemption off, as it is until the release. */
static __always_inline bool lab_lock_if_free(lab_lock_t *lock)
{
	if (lab_lock_kind != LAB_LOCK_QUEUED)
		return lab_tas_trylock(lock);
	bpf_preempt_disable();
	return arena_spin_trylock(&lock->queued);
}

static __always_inline void lab_lock_not_taken(void)
{
	if (lab_lock_kind == LAB_LOCK_QUEUED)
		bpf_preempt_enable();
}

static __always_inline LAB_MUST_CHECK bool lab_lock_acquire(lab_lock_t *lock, u64 name, u64 here)
{
	struct lab_lock_wait __arena *wait;

	if (lab_policy.ended)
		return false;
	if (!lab_lock_if_free(lock)) {
		wait = &lab_lock_waits[bpf_get_smp_processor_id() & (LAB_MAX_CPUS - 1)];
		wait->name = name;
		wait->place = here;
		wait->lock = lock;
		if (!lab_lock_wait(lock)) {
			lab_lock_not_taken();
			return false;
		}
	}
	lab_lock_taken(lock, here);
	if (lab_lock_counts(lock))
		lab_count(LAB_LOCK_ACQUISITIONS, 1);
	return true;
}

/* lab_lock - takes @lock; interrupts are off already. False: the policy has ended. */
#define lab_lock(lock)	lab_lock_named(lock, #lock)

/* lab_lock_named - the same, for a lock with the name @name in messages. */
#define lab_lock_named(lock, name)	lab_lock_acquire(lock, LAB_TEXT_OF(name), LAB_HERE)

static __always_inline LAB_MUST_CHECK bool lab_lock_try(lab_lock_t *lock, u64 here)
{
	bool taken;

	if (lab_policy.ended)
		return false;
	taken = lab_lock_if_free(lock);
	if (taken)
		lab_lock_taken(lock, here);
	else
		lab_lock_not_taken();
	if (lab_lock_counts(lock))
		lab_count(taken ? LAB_LOCK_ACQUISITIONS : LAB_LOCK_TRY_FAILURES, 1);
	return taken;
}

/* lab_trylock - takes @lock if it is free; interrupts are off already. */
#define lab_trylock(lock)	lab_lock_try(lock, LAB_HERE)

static __always_inline void lab_unlock(lab_lock_t *lock)
{
	u64 held = bpf_ktime_get_ns() - lock->taken_ns;
	bool counts = lab_lock_counts(lock);

	*(volatile u32 __arena *)&lock->holder = 0;
	if (lab_lock_kind == LAB_LOCK_QUEUED) {
		arena_spin_unlock(&lock->queued);
	} else {
		lab_tas_unlock(lock);
	}
	if (!counts)
		return;
	lab_count(LAB_LOCK_HOLD_NS, held);
	lab_count_max(LAB_LOCK_HOLD_NS_MAX, held);
}

static __always_inline void lab_lock_init(lab_lock_t *lock, enum lab_lock_class class)
{
	lock->word = 0;
	lock->queued.val.counter = 0;
	lock->holder = 0;
	lock->class = class;
}

#else /* !__bpf__ */

struct lab_lock {
	u32 word;			/* its address names the lock */
	enum lab_lock_class class;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_lock lab_lock_t;

/* Ops run with interrupts off in the virtual kernel; policy locks keep them so. */
#define lab_irq_save(flags)	((void)((flags) = 0))
#define lab_irq_restore(flags)	((void)(flags))

static __always_inline LAB_MUST_CHECK bool lab_lock(lab_lock_t *lock)
{
	lab_host_lock(&lock->word, lock->class);
	return true;
}

#define lab_lock_named(lock, name)	lab_lock(lock)

static __always_inline LAB_MUST_CHECK bool lab_trylock(lab_lock_t *lock)
{
	return lab_host_trylock(&lock->word, lock->class);
}

static __always_inline void lab_unlock(lab_lock_t *lock)
{
	lab_host_unlock(&lock->word);
}

static __always_inline void lab_lock_init(lab_lock_t *lock, enum lab_lock_class class)
{
	lock->class = class;
}

#endif /* __bpf__ */

/*
 * lab_lock_irqsave - interrupts off, then the lock. False: interrupts are as
 * they were, the policy has ended by an error, return at once.
 */
#define lab_lock_irqsave(lock, flags)					\
({									\
	bool ___locked;							\
									\
	lab_irq_save(flags);						\
	___locked = lab_lock_named(lock, #lock);			\
	if (!___locked)							\
		lab_irq_restore(flags);					\
	___locked;							\
})

#define lab_unlock_irqrestore(lock, flags)				\
do {									\
	lab_unlock(lock);						\
	lab_irq_restore(flags);						\
} while (0)

/*
 * Takes the lock of the queue that a task is in, queue_at(t->home), and gives
 * that queue; NULL: the policy has ended. Interrupts are off.
 */
#define lab_lock_home(t, queue_at)					\
({									\
	typeof(queue_at(0)) ___queue, ___locked = NULL;			\
	bool ___ended = false;						\
	s32 ___home;							\
	u32 ___i __maybe_unused;					\
									\
	/* It can be moved only while it waits; no CPU moves it that often. */ \
	bpf_for(___i, 0, 1024) {					\
		___home = lab_read((t)->home);				\
		___queue = queue_at(___home);				\
		___ended = !lab_lock_named(&___queue->lock,		\
					   "&" #queue_at "(" #t "->home)->lock"); \
		if (___ended)						\
			break;						\
		if (lab_glance((t)->home) == ___home) {			\
			___locked = ___queue;				\
			break;						\
		}							\
		lab_unlock(&___queue->lock);				\
	}								\
	if (!___locked && !___ended)					\
		scx_bpf_error("a waiting task was moved between queues all the time"); \
	___locked;							\
})

/*
 * Takes @other while @held is held. @in_order: that is the order in which they
 * are taken; otherwise, and if a try fails, @held is given up meanwhile. False:
 * the policy has ended, neither is held. A macro, as lab_lock() records the place
 * where the lock is taken.
 */
#define lab_lock_second(held, other, in_order)				\
({									\
	lab_lock_t *___held = (held), *___other = (other);		\
	bool ___both = false;						\
									\
	if (in_order) {							\
		___both = lab_lock_named(___other, #other);		\
		if (!___both)						\
			lab_unlock(___held);				\
	} else if (lab_trylock(___other)) {				\
		___both = true;						\
	} else {							\
		lab_unlock(___held);					\
		if (lab_lock_named(___other, #other)) {			\
			___both = lab_lock_named(___held, #held);	\
			if (!___both)					\
				lab_unlock(___other);			\
		}							\
	}								\
	___both;							\
})

#endif /* LAB_LOCK_H */
