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
 * tries fail until it does, and whoever waits takes it), or `queued`, scx_cargo's
 * arena spin lock, first come first served, for large machines. Natively the
 * machine profile has the kind of its locks and the virtual kernel carries them
 * out.
 *
 * An acquisition whose loop budget runs out ends the policy by scx_bpf_error()
 * with the lock's name, and returns false: the caller returns at once. There
 * is no fallback queue.
 */
#ifndef LAB_LOCK_H
#define LAB_LOCK_H

/* What a lock protects: the discriminants of LockClass in crates/trace. */
enum lab_lock_class {
	LAB_LOCK_CLASS_RUN_QUEUE,
	LAB_LOCK_CLASS_DSQ,
	LAB_LOCK_CLASS_KERNEL_RQ,
	LAB_LOCK_CLASS_OTHER,
};

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
	u64 taken_ns;			/* when the holder took it; the holder's */
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
 * cores, a holder was seen not to run for 0.4 s and a waiter to wait for 1.8 s;
 * the kernel's hard-lockup detector would step in at 10 s.
 */
#define LAB_TAS_WAIT_NS		4000000000ull

/* Most steps of one bpf_for() (BPF_MAX_LOOPS), and how many of those there may be. */
#define LAB_TAS_STEPS		(8 << 20)
#define LAB_TAS_ROUNDS		64

/*
 * Waits by reading, so as not to take the line from the holder. The bound is an
 * iterator and the clock, not can_loop: in ops.dispatch() of Linux 7.2.13 waits
 * bounded by can_loop were seen to end after half a millisecond instead of a
 * quarter of a second (scx_cargo's queued lock does, see docs/schedulers/dss.md).
 * With external linkage, so that the verifier checks the loops once and not at
 * each place where a lock is taken.
 */
__weak __noinline bool lab_tas_wait(lab_lock_t *lock __arg_arena)
{
	u64 until = bpf_ktime_get_ns() + LAB_TAS_WAIT_NS;
	u32 round, i;

	lab_use_arena();
	__sync_fetch_and_add(&lock->word, LAB_TAS_WAITER);
	bpf_for(round, 0, LAB_TAS_ROUNDS) {
		bpf_for(i, 0, LAB_TAS_STEPS) {
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

static __always_inline bool lab_lock_acquire(lab_lock_t *lock)
{
	u64 asked = 0, taken;
	bool contended;

	/* The clock is read before only where there is something to wait for: it costs more than the rest. */
	if (lab_lock_kind == LAB_LOCK_QUEUED) {
		contended = *(volatile int __arena *)&lock->queued.val.counter != 0;
		if (contended)
			asked = bpf_ktime_get_ns();
		if (arena_spin_lock(&lock->queued))
			return false;
	} else {
		contended = !lab_tas_trylock(lock);
		if (contended) {
			asked = bpf_ktime_get_ns();
			if (!lab_tas_wait(lock))
				return false;
		}
	}
	taken = bpf_ktime_get_ns();
	lock->taken_ns = taken;
	if (!lab_lock_counts(lock))
		return true;
	lab_count(LAB_LOCK_ACQUISITIONS, 1);
	if (contended) {
		lab_count(LAB_LOCK_CONTENDED, 1);
		lab_count(LAB_LOCK_WAIT_NS, taken - asked);
		lab_count_max(LAB_LOCK_WAIT_NS_MAX, taken - asked);
	}
	return true;
}

/* lab_lock - takes @lock; interrupts are off already. False: it was an error. */
#define lab_lock(lock)							\
({									\
	bool ___taken = lab_lock_acquire(lock);				\
									\
	if (!___taken)							\
		scx_bpf_error("lock " #lock				\
			      ": the loop budget ran out before it was free"); \
	___taken;							\
})

/* lab_trylock - takes @lock if it is free; interrupts are off already. */
static __always_inline bool lab_trylock(lab_lock_t *lock)
{
	bool taken;

	if (lab_lock_kind == LAB_LOCK_QUEUED) {
		bpf_preempt_disable();
		taken = arena_spin_trylock(&lock->queued);
		if (!taken)
			bpf_preempt_enable();
	} else {
		taken = lab_tas_trylock(lock);
	}
	if (taken)
		lock->taken_ns = bpf_ktime_get_ns();
	if (lab_lock_counts(lock))
		lab_count(taken ? LAB_LOCK_ACQUISITIONS : LAB_LOCK_TRY_FAILURES, 1);
	return taken;
}

static __always_inline void lab_unlock(lab_lock_t *lock)
{
	u64 held = bpf_ktime_get_ns() - lock->taken_ns;
	bool counts = lab_lock_counts(lock);

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

static __always_inline bool lab_lock(lab_lock_t *lock)
{
	lab_host_lock(&lock->word, lock->class);
	return true;
}

static __always_inline bool lab_trylock(lab_lock_t *lock)
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
	___locked = lab_lock(lock);					\
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
	/* It can be moved only while it waits; nobody moves it that often. */ \
	bpf_for(___i, 0, 1024) {					\
		___home = lab_read((t)->home);				\
		___queue = queue_at(___home);				\
		___ended = !lab_lock(&___queue->lock);			\
		if (___ended)						\
			break;						\
		if ((t)->home == ___home) {				\
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
 * the policy has ended, neither is held.
 */
static __always_inline bool lab_lock_second(lab_lock_t *held, lab_lock_t *other, bool in_order)
{
	if (in_order) {
		if (lab_lock(other))
			return true;
		lab_unlock(held);
		return false;
	}
	if (lab_trylock(other))
		return true;
	lab_unlock(held);
	if (!lab_lock(other))
		return false;
	if (lab_lock(held))
		return true;
	lab_unlock(other);
	return false;
}

#endif /* LAB_LOCK_H */
