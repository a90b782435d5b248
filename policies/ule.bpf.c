/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ULE, the scheduler of FreeBSD.
 *
 * Idea: every CPU has a lock and three queues of 64 lists: real-time and
 * interactive threads by priority; batch threads in a calendar, where a worse
 * priority means a later slot and every slot's turn comes; idle ones. A thread is
 * interactive if it sleeps sufficiently more than it runs. A woken thread goes where
 * its cache is warm, or to the least loaded CPU. One CPU balances for all, at random
 * times half a second to one and a half apart, one thread a pair of CPUs; a CPU
 * that becomes idle steals.
 *
 * Good for: interactive threads beside batch jobs; many CPUs with little sharing.
 *
 * Bad for: batch threads on CPUs of uneven load, levelled one thread a second;
 * interactive threads that use so much time that batch ones wait for long.
 *
 * Source: FreeBSD 9.3 (sys/kern/sched_ule.c); docs/schedulers/ule.md restates
 * the rules.
 *
 * Simplifications:
 * - The choice is ops.dispatch(), under the CPU's lock. A blocked thread leaves
 *   the queue there; ops.quiescent() only notes it.
 * - Run time and slices are charged with running time, not by ticks of 127 Hz;
 *   they are looked at by ticks, of whatever HZ is. Times are in µs.
 * - Levels of topology are a CPU, a core, a NUMA node and the machine, without
 *   caches; cores count where a CPU is chosen only. Idle threads do not spin.
 * - Without a way back to user mode there is no static boost of sleepers, and a
 *   softer preemption on the thread's own CPU is honoured at once.
 * - A voluntary yield goes to the current slot of the calendar like a preempted
 *   thread, but to its tail: at the head it would be chosen again.
 * - The 99 real-time priorities of Linux are mapped on 32. In a real kernel
 *   real-time tasks never get here. Interrupt threads are not bound.
 */
#include <lab/lab.bpf.h>
#include <lab/percpu.h>
#include <lab/periodic.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

enum ule_slices { SLICES_FIXED, SLICES_BY_LOAD };

/* 12 stat ticks for all, or, as from FreeBSD 10 on, fewer the more threads the CPU has now. */
const volatile enum ule_slices slices = SLICES_FIXED;

/* A score below this makes a thread interactive (0 to 120, which all are below). */
const volatile u32 interact_threshold = 30;

/* The stat clock. */
#define ULE_STAT_HZ		127
#define ULE_STAT_NS		(1000000000ull / ULE_STAT_HZ)
#define ULE_STAT_US		(1000000ull / ULE_STAT_HZ)

/* Ticks of a slice (stathz / 10), and of the shortest by load. */
#define ULE_SLICE		12
#define ULE_SLICE_MIN		2

/* Priorities: less is better. */
#define ULE_REALTIME		48
#define ULE_KERNEL		80
#define ULE_INTERACTIVE		120
#define ULE_BATCH		152
#define ULE_BATCH_MAX		223
#define ULE_IDLE		224
#define ULE_NONE		255

#define ULE_SLOTS		64
/* Batch priority of nice 0 that has used no time, and how many its use makes. */
#define ULE_BATCH_BASE		172
#define ULE_TICKS_RANGE		32

#define ULE_SCORE_HALF		50
/* Above the worst score, with nice 19. */
#define ULE_INTERACT_MAX	120

/* The length of the run and sleep history (SCHED_SLP_RUN_MAX), and a fork's share. */
#define ULE_HISTORY_US		5000000ull
#define ULE_FORK_US		500000ull

/* The window over which CPU use is measured. */
#define ULE_WINDOW_US		10000000ull
#define ULE_WINDOW_SLACK_US	1000000ull

/* A cache is warm for so long: of the last CPU (L2), of its node (L3). */
#define ULE_WARM_CPU_NS		2000000ull
#define ULE_WARM_NODE_NS	3000000ull

/* Loads of CPUs, and the discounts for the thread's last CPU and for the groups that contain it. */
#define ULE_LOAD		256
#define ULE_PREFER		64

/* A metric has the load of the core, in units of ULE_PREFER, in its upper bits and the load of the CPU below, up to 2^16 threads. */
#define ULE_CORE_SHIFT		26

/* A CPU with fewer threads is not stolen from. */
#define ULE_STEAL_MIN		2

/* Which queue a thread is in, and how it got there. */
enum { QUEUE_NONE, QUEUE_REALTIME, QUEUE_TIMESHARE, QUEUE_IDLE };
enum { PUT_NORMAL, PUT_PREEMPTED, PUT_YIELDED };

struct ule_task {
	union {
		struct lab_task lab;
		struct lab_rq_task q;
	};
	u64 run_us;		/* history of running ... */
	u64 sleep_us;		/* ... and of voluntary sleep */
	u64 ran_ns;		/* charged and not yet in run_us */
	u64 used_us;		/* CPU use since first_us */
	u64 first_us;		/* begin and ... */
	u64 last_us;		/* ... end of the window of used_us */
	u64 stopped_ns;		/* when it left a CPU last */
	u64 left_ns;		/* of its slice, see ule_slice_rest() */
	u32 pri;
	u32 queue;		/* it waits in; the running thread is in none */
	u32 slot;
	u32 put;		/* how it is to be put into a queue */
	struct lab_parent parent;
	bool slice_end;		/* its slice has ended while it runs */
	bool pad[7];
};

LAB_TASKS(struct ule_task);

struct ule_rq {
	struct lab_rq q;
	u32 lowpri;		/* best priority of the CPU's threads; read without the lock */
	u32 idx;		/* calendar: where threads are put in ... */
	u32 ridx;		/* ... and taken out */
	s32 node;
	u64 next_stat_ns;	/* when its stat clock ticks next */
	bool donor;		/* balancing: may still give ... */
	bool receiver;		/* ... or take */
	struct lab_prio_array realtime, timeshare, idle;
	struct lab_list lists[3 * ULE_SLOTS];
};

typedef struct ule_rq __arena rq_t;

static u32 nr_nodes;

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

static __always_inline u64 ule_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* How little it sleeps: 0 to 50. */
static __always_inline u32 ule_score(u64 run, u64 sleep)
{
	u64 unit;

	if (interact_threshold <= ULE_SCORE_HALF && run >= sleep)
		return ULE_SCORE_HALF;
	if (run > sleep) {
		unit = ule_max(1, run / ULE_SCORE_HALF);
		return 2 * ULE_SCORE_HALF - sleep / unit;
	}
	if (sleep > run)
		return run / ule_max(1, sleep / ULE_SCORE_HALF);
	return run ? ULE_SCORE_HALF : 0;
}

/* Priority of a timeshare thread; `part` is its CPU use, 0 to 31. */
static __always_inline u32 ule_timeshare_pri(u32 score, s32 nice, u32 part)
{
	s32 value = (s32)score + nice;

	if (value < 0)
		value = 0;
	if (value < (s32)interact_threshold)
		return ULE_INTERACTIVE + (ULE_BATCH - ULE_INTERACTIVE) / interact_threshold * value;
	if (part > ULE_TICKS_RANGE - 1)
		part = ULE_TICKS_RANGE - 1;
	return ULE_BATCH_BASE + part + nice;
}

static __always_inline u32 ule_realtime_pri(u32 rt_priority)
{
	return ULE_REALTIME + (99 - rt_priority) * (ULE_KERNEL - ULE_REALTIME) / 99;
}

/* Slot of the calendar for a priority. */
static __always_inline u32 ule_slot(u32 pri, u32 idx, u32 ridx)
{
	u32 slot = (ULE_SLOTS * (pri - ULE_BATCH) / (ULE_BATCH_MAX + 1 - ULE_BATCH) + idx) %
		   ULE_SLOTS;

	/* The slot that is being emptied would be a turn too early. */
	if (idx != ridx && slot == ridx)
		slot = (slot + ULE_SLOTS - 1) % ULE_SLOTS;
	return slot;
}

/* Ticks of a slice on a CPU with `others` threads besides. */
static __always_inline u32 ule_slice(u64 others)
{
	if (slices == SLICES_FIXED || others <= 1)
		return ULE_SLICE;
	if (others >= ULE_SLICE / ULE_SLICE_MIN)
		return ULE_SLICE_MIN;
	return ULE_SLICE / (u32)others;
}

/*
 * The rest of a slice when it has ended, of the 12 ticks that it begins with: the load
 * at its end decides the length of a slice by load, and the time that a thread has
 * used counts, whenever it was.
 */
static __always_inline u64 ule_slice_rest(u64 others)
{
	return (ULE_SLICE - ule_slice(others)) * ULE_STAT_NS;
}

/* A forked thread's first slice: a tick, or by load the shortest one. */
static __always_inline u64 ule_first_slice(u64 others)
{
	if (slices == SLICES_FIXED)
		return ULE_STAT_NS;
	return ule_slice_rest(others) + ULE_SLICE_MIN * ULE_STAT_NS;
}

/* Whether a thread of priority `pri` makes the running one, of `current`, stop at once. */
static __always_inline bool ule_should_preempt(u32 pri, u32 current, bool remote)
{
	if (pri >= current)
		return false;
	if (current >= ULE_IDLE || pri <= ULE_KERNEL)
		return true;
	return remote && pri < ULE_BATCH && current >= ULE_BATCH;
}

/* Stat ticks from one balancing to the next, from a random number. */
static __always_inline u32 ule_balance_ticks(u32 random)
{
	return ULE_STAT_HZ / 2 + random % ULE_STAT_HZ;
}

/*
 * History.
 */

/* Lets the past fade. */
static __always_inline void ule_fade(task_t *t)
{
	u64 sum = t->run_us + t->sleep_us;

	if (sum < ULE_HISTORY_US)
		return;
	if (sum > 2 * ULE_HISTORY_US) {
		if (t->run_us > t->sleep_us) {
			t->run_us = ULE_HISTORY_US;
			t->sleep_us = 1;
		} else {
			t->sleep_us = ULE_HISTORY_US;
			t->run_us = 1;
		}
		return;
	}
	if (sum > ULE_HISTORY_US / 5 * 6) {
		t->run_us /= 2;
		t->sleep_us /= 2;
		return;
	}
	t->run_us = t->run_us / 5 * 4;
	t->sleep_us = t->sleep_us / 5 * 4;
}

/* A forked thread's history weighs little. */
static __always_inline void ule_fade_child(task_t *t)
{
	u64 ratio = (t->run_us + t->sleep_us) / ULE_FORK_US;

	if (t->run_us + t->sleep_us <= ULE_FORK_US)
		return;
	t->run_us /= ratio;
	t->sleep_us /= ratio;
}

/* The window of CPU use moves up to now; what was since its end was running, or not. */
static __always_inline void ule_use(task_t *t, u64 now_us, bool running)
{
	u64 length;

	if (now_us - t->last_us >= ULE_WINDOW_US) {
		t->used_us = 0;
		t->first_us = now_us - ULE_WINDOW_US;
	} else if (now_us - t->first_us >= ULE_WINDOW_US + ULE_WINDOW_SLACK_US) {
		length = t->last_us - t->first_us;
		if (length)
			t->used_us = t->used_us * (t->last_us - (now_us - ULE_WINDOW_US)) / length;
		t->first_us = now_us - ULE_WINDOW_US;
	}
	if (running)
		t->used_us += now_us - t->last_us;
	t->last_us = now_us;
}

static __always_inline u32 ule_part(task_t *t)
{
	return t->used_us * ULE_TICKS_RANGE /
	       ule_max(t->last_us - t->first_us, ULE_WINDOW_SLACK_US);
}

static __always_inline void ule_update_pri(task_t *t)
{
	if (lab_realtime(t->q.policy))
		t->pri = ule_realtime_pri(t->q.rt_priority);
	else if (t->q.policy == LAB_SCHED_IDLE)
		t->pri = ULE_IDLE;
	else
		t->pri = ule_timeshare_pri(ule_score(t->run_us, t->sleep_us), t->q.nice,
					   ule_part(t));
}

/* Charges a running thread up to now. */
static __always_inline void ule_charge(task_t *t, u64 now)
{
	u64 ran = now > t->q.started_ns ? now - t->q.started_ns : 0;

	t->q.started_ns = now;
	t->left_ns = ran < t->left_ns ? t->left_ns - ran : 0;
	t->ran_ns += ran;
	t->run_us += t->ran_ns / 1000;
	t->ran_ns %= 1000;
	ule_use(t, now / 1000, true);
	ule_fade(t);
}

/*
 * The queues.
 */

static __always_inline rq_t *ule_rq(lab_rq_t *q)
{
	return (rq_t *)q;
}

static __always_inline lab_prio_array_t *ule_queue(rq_t *rq, u32 queue)
{
	return queue == QUEUE_REALTIME ? &rq->realtime :
	       queue == QUEUE_TIMESHARE ? &rq->timeshare : &rq->idle;
}

/* Puts a thread that waits into its queue. */
static __noinline int ule_put(rq_t *rq, task_t *t)
{
	bool head = t->put == PUT_PREEMPTED;

	lab_use_arena();
	t->slot = t->pri / 4 % ULE_SLOTS;
	if (t->pri < ULE_BATCH) {
		t->queue = QUEUE_REALTIME;
	} else if (t->pri < ULE_IDLE) {
		t->queue = QUEUE_TIMESHARE;
		t->slot = t->put == PUT_NORMAL ? ule_slot(t->pri, rq->idx, rq->ridx) : rq->ridx;
	} else {
		t->queue = QUEUE_IDLE;
	}
	t->put = PUT_NORMAL;
	if (head)
		lab_prio_add_head(ule_queue(rq, t->queue), t->slot, &t->lab.node);
	else
		lab_prio_add_tail(ule_queue(rq, t->queue), t->slot, &t->lab.node);
	if (t->pri < rq->lowpri)
		lab_write(rq->lowpri, t->pri);
	return 0;
}

static __noinline int ule_take(rq_t *rq, task_t *t)
{
	lab_use_arena();
	if (t->queue != QUEUE_NONE)
		lab_prio_del(ule_queue(rq, t->queue), t->slot, &t->lab.node);
	/* The calendar has waited for this slot, and its clock for the calendar. */
	if (t->queue == QUEUE_TIMESHARE && t->slot == rq->ridx && rq->idx != rq->ridx &&
	    !lab_prio_list(&rq->timeshare, rq->ridx)->nr)
		rq->ridx = (rq->ridx + 1) % ULE_SLOTS;
	t->queue = QUEUE_NONE;
	return 0;
}

static __noinline void rq_link(lab_rq_t *q, lab_rq_task_t *qt)
{
	lab_use_arena();
	ule_put(ule_rq(q), (task_t *)qt);
	rq_count(q, 1);
}

static __noinline void rq_unlink(lab_rq_t *q, lab_rq_task_t *qt)
{
	lab_use_arena();
	ule_take(ule_rq(q), (task_t *)qt);
	rq_count(q, -1);
}

/*
 * Address of a thread of an array that may go to another queue, from a slot on
 * and around. @spare: leave the very first one found, which is the next to run,
 * unless it is the only one.
 */
LAB_PART u64 ule_stealable(lab_prio_array_t *array __arg_arena, u32 from, bool spare,
			   lab_rq_t *to __arg_arena)
{
	task_t *t, *first = NULL;
	lab_list_t *list;
	lab_node_t *pos;
	s32 level;
	u32 around;

	lab_use_arena();
	bpf_for(around, 0, 2) {
		for (level = lab_prio_next(array, around ? 0 : from); level >= 0 && can_loop;
		     level = lab_prio_next(array, level + 1)) {
			if (around && level >= from)
				break;
			list = lab_prio_list(array, level);
			lab_list_for_each(pos, list) {
				t = lab_entry(pos, struct ule_task, lab.node);
				if (!rq_may_pull(&t->q, to))
					continue;
				if (!spare || first)
					return (u64)t;
				first = t;
			}
		}
	}
	return (u64)first;
}

/* Moves one thread, both locks held. True: one went. */
LAB_PART bool ule_move(rq_t *from __arg_arena, rq_t *to __arg_arena)
{
	task_t *t;

	lab_use_arena();
	t = (task_t *)ule_stealable(&from->realtime, 0, false, &to->q);
	if (!t)
		t = (task_t *)ule_stealable(&from->timeshare, from->ridx, true, &to->q);
	if (!t)
		t = (task_t *)ule_stealable(&from->idle, 0, false, &to->q);
	if (!t)
		return false;
	rq_pull(&from->q, &to->q, &t->q);
	return true;
}

static __noinline bool rq_give(lab_rq_t *from, lab_rq_t *to)
{
	lab_use_arena();
	return ule_move((rq_t *)from, (rq_t *)to);
}

/* Most loaded CPU of a node (-1: of the machine) that comes after `below` in that order. */
LAB_PART u64 ule_highest(rq_t *rq __arg_arena, s32 node, u64 below)
{
	u64 best = 0, key;
	rq_t *other;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		other = ule_rq(rq_at(i));
		if (other == rq || !other->q.online || (node >= 0 && other->node != node))
			continue;
		lab_touch(&other->q.nr, false);
		/* Of equals the first. */
		key = lab_read(other->q.nr) << 32 | (LAB_MAX_CPUS - i);
		if (key > best && key < below)
			best = key;
	}
	return best;
}

static __always_inline u32 ule_key_cpu(u64 key)
{
	return LAB_MAX_CPUS - (u32)key;
}

/* A CPU without work takes a thread, of its node if there is one. False: the policy has ended. */
LAB_PART bool ule_steal(rq_t *rq __arg_arena, s32 node)
{
	u32 i __maybe_unused;
	rq_t *from;
	u64 key;
	bool moved;

	lab_use_arena();
	key = ~0ull;
	bpf_for(i, 0, lab_nr_cpus) {
		key = ule_highest(rq, node, key);
		if (key >> 32 < ULE_STEAL_MIN)
			break;
		from = ule_rq(rq_at(ule_key_cpu(key)));
		if (!rq_lock_second(&rq->q, &from->q))
			return false;
		moved = !rq->q.nr && from->q.nr >= ULE_STEAL_MIN && ule_move(from, rq);
		lab_unlock(&from->q.lock);
		if (moved || rq->q.nr)
			break;
	}
	return true;
}

/*
 * The balancer: one for the machine.
 */

/* Least loaded CPU that may take, with at most `load` threads; -1 = none. */
LAB_PART s32 ule_lowest(u64 load)
{
	u64 best = ~0ull, nr;
	s32 cpu = -1;
	rq_t *rq;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		rq = ule_rq(rq_at(i));
		if (!rq->receiver)
			continue;
		nr = lab_read(rq->q.nr);
		if (nr <= load && nr < best) {
			best = nr;
			cpu = i;
		}
	}
	return cpu;
}

/* Most loaded CPU that may give; -1 = none. */
LAB_PART s32 ule_donor(void)
{
	u64 most = 0, nr;
	s32 cpu = -1;
	rq_t *rq;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		rq = ule_rq(rq_at(i));
		nr = lab_read(rq->q.nr);
		if (rq->donor && nr > most) {
			most = nr;
			cpu = i;
		}
	}
	return cpu;
}

static __always_inline bool ule_runs_at_once(rq_t *rq, u32 pri)
{
	task_t *curr = (task_t *)rq->q.curr;

	if (!curr)
		return true;
	consult(curr);
	return ule_should_preempt(pri, lab_glance(curr->pri), true);
}

/* One thread from one CPU to another. 1: it went, 0: none did, -1: the policy has ended. */
LAB_PART s32 ule_balance_pair(u32 high, u32 low)
{
	unsigned long flags;
	rq_t *from, *to;
	s32 moved = 0;

	lab_use_arena();
	from = ule_rq(rq_at(high));
	to = ule_rq(rq_at(low));
	lab_irq_save(flags);
	if (!lab_lock(&from->q.lock)) {
		lab_irq_restore(flags);
		return -1;
	}
	if (!rq_lock_second(&from->q, &to->q)) {
		lab_irq_restore(flags);
		return -1;
	}
	if (from->q.nr > to->q.nr && ule_move(from, to)) {
		moved = 1;
		if (ule_runs_at_once(to, to->lowpri))
			rq_mark(&to->q);
	}
	lab_unlock(&to->q.lock);
	lab_unlock(&from->q.lock);
	lab_irq_restore(flags);
	return moved;
}

/* Makes the donors that are left receivers again; false: no donor is left. */
static __noinline bool ule_receivers(void)
{
	bool any = false;
	rq_t *rq;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		rq = ule_rq(rq_at(i));
		rq->receiver = rq->donor;
		any |= rq->donor;
	}
	return any;
}

/* Tries every CPU that may take from `high`. 1: go on, 0: nobody could at all, -1: ended. */
LAB_PART s32 ule_balance_from(u32 high)
{
	bool tried = false;
	u32 i __maybe_unused;
	rq_t *to;
	s32 low, moved;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		low = ule_lowest(lab_read(rq_at(high)->nr) - 1);
		if (low < 0)
			return tried;
		tried = true;
		to = ule_rq(rq_at(low));
		moved = ule_balance_pair(high, low);
		if (moved < 0)
			return -1;
		to->receiver = false;
		if (moved) {
			to->donor = false;
			return 1;
		}
	}
	return 1;
}

static void ule_balance(void)
{
	u32 i, round __maybe_unused;
	s32 high;

	bpf_for(i, 0, lab_nr_cpus)
		ule_rq(rq_at(i))->donor = rq_at(i)->online;
	bpf_for(round, 0, lab_nr_cpus) {
		high = ule_donor();
		if (high < 0)
			break;
		ule_rq(rq_at(high))->donor = false;
		if (!ule_receivers() || ule_balance_from(high) <= 0)
			break;
	}
}

LAB_PERIODIC(ule_balancer, ule_balance, ule_balance_ticks(bpf_get_prandom_u32()) * ULE_STAT_NS);

/*
 * Placement.
 */

/* Best priority of the threads of a CPU; one of a higher class has a better one than all of ours. */
static __always_inline u32 ule_lowpri(rq_t *rq)
{
	return lab_cpu_taken(rq->q.cpu) ? ULE_REALTIME - 1 : lab_read(rq->lowpri);
}

/* Load of a group of CPUs, which has the thread's last one or not, in units of ULE_PREFER. */
static __always_inline u64 ule_group_load(u64 threads, bool has_last)
{
	return threads * (ULE_LOAD / ULE_PREFER) + 1 - has_last;
}

static __always_inline bool ule_same_core(s32 cpu, s32 other)
{
	return lab_core_keys[cpu & (LAB_MAX_CPUS - 1)] == lab_core_keys[other & (LAB_MAX_CPUS - 1)];
}

/* Threads of the other CPUs of the core. */
static __noinline u64 ule_siblings_load(s32 cpu)
{
	u64 load = 0;
	s32 other;

	lab_use_arena();
	if (!lab_siblings)
		return 0;
	for (other = lab_next_thread(cpu); other != cpu && can_loop; other = lab_next_thread(other)) {
		lab_touch(&rq_at(other)->nr, false);
		load += rq_nr_with_higher(other);
	}
	return load;
}

/*
 * The least loaded CPU of a node whose best priority is worse than `limit`: its
 * metric << 16 | its CPU, ~0 = none. First the load of its core counts, then its
 * own; the last CPU's is less, and so is its core's and its node's, so that
 * of equal ones a thread that wakes up stays and a child is put beside its parent
 * (cpu_search() adds what it has taken off to the load of the group); some
 * randomness spreads equals. @total: the load of the node.
 */
LAB_PART u64 ule_lowest_of_node(task_t *t __arg_arena, s32 node, u32 limit, u64 *total)
{
	u64 best = ~0ull, metric, load, sum = 0;
	bool has_last = false;
	rq_t *rq;
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		rq = ule_rq(rq_at(i));
		if (!rq->q.online || rq->node != node)
			continue;
		lab_touch(&rq->q.nr, false);
		load = rq_nr_with_higher(i);
		sum += load;
		has_last |= i == t->lab.cpu;
		if (!lab_allowed(&t->lab, i) || ule_lowpri(rq) <= limit)
			continue;
		metric = 1024 + ULE_LOAD * load - (bpf_get_prandom_u32() & 63);
		if (i == t->lab.cpu)
			metric -= ULE_PREFER;
		if (lab_siblings)
			metric += ule_group_load(load + ule_siblings_load(i),
						 ule_same_core(i, t->lab.cpu)) << ULE_CORE_SHIFT;
		if ((metric << 16 | i) < best)
			best = metric << 16 | i;
	}
	if (total)
		*total = ule_group_load(sum, has_last);
	return best;
}

/* The same of the machine: the node with least load that has such a CPU. -1 = none. */
LAB_PART s32 ule_lowest_cpu(task_t *t __arg_arena, s32 limit)
{
	u64 best = ~0ull, least = ~0ull, found, total = 0;
	u32 node;

	lab_use_arena();
	bpf_for(node, 0, nr_nodes) {
		/* Below every priority: any CPU will do. */
		found = ule_lowest_of_node(t, node, limit < 0 ? 0 : limit, &total);
		if (found == ~0ull)
			continue;
		if (total < least || (total == least && found < best)) {
			least = total;
			best = found;
		}
	}
	return best == ~0ull ? -1 : (s32)(best & 0xffff);
}

/* sched_pickcpu() */
LAB_PART s32 ule_pick_cpu(task_t *t __arg_arena, s32 last, s32 this_cpu, u64 now)
{
	rq_t *rq, *here;
	u64 found, nr;
	s32 cpu;

	lab_use_arena();
	rq = ule_rq(rq_at(last));
	if (lab_allowed(&t->lab, last)) {
		if (!lab_read(rq->q.nr) && rq_cpu_free(&rq->q) && !ule_siblings_load(last) &&
		    now < t->stopped_ns + ULE_WARM_CPU_NS)
			return last;
		if (now < t->stopped_ns + ULE_WARM_NODE_NS) {
			found = ule_lowest_of_node(t, rq->node, ule_max(t->pri, ULE_BATCH_MAX),
						   NULL);
			if (found != ~0ull)
				return found & 0xffff;
		}
	}
	cpu = ule_lowest_cpu(t, t->pri);
	if (cpu < 0)
		cpu = ule_lowest_cpu(t, -1);
	if (cpu < 0)
		return last;
	rq = ule_rq(rq_at(cpu));
	here = ule_rq(rq_at(this_cpu));
	nr = lab_read(rq->q.nr);
	if (lab_allowed(&t->lab, this_cpu) && ule_lowpri(here) > t->pri &&
	    ule_lowpri(rq) < ULE_IDLE && lab_read(here->q.nr) <= nr + 1)
		return this_cpu;
	return cpu;
}

/*
 * The choice.
 */

static __always_inline task_t *ule_first(rq_t *rq, task_t *prev)
{
	u64 t = rq_first(&rq->q, &rq->realtime, 0, &prev->q);

	if (!t)
		t = rq_first(&rq->q, &rq->timeshare, rq->ridx, &prev->q);
	if (!t)
		t = rq_first(&rq->q, &rq->timeshare, 0, &prev->q);
	if (!t)
		t = rq_first(&rq->q, &rq->idle, 0, &prev->q);
	return (task_t *)t;
}

/* Priority of the thread that would be chosen if the running one stopped. */
static __noinline u32 ule_waiting_pri(rq_t *rq)
{
	lab_prio_array_t *array;
	s32 level = LAB_PRIO_NONE;
	task_t *t;

	lab_use_arena();
	array = &rq->realtime;
	level = lab_prio_first(array);
	if (level < 0) {
		array = &rq->timeshare;
		level = lab_prio_next(array, rq->ridx);
		if (level < 0)
			level = lab_prio_first(array);
	}
	if (level < 0) {
		array = &rq->idle;
		level = lab_prio_first(array);
	}
	if (level < 0)
		return ULE_NONE;
	t = lab_entry(lab_prio_list(array, level)->head.next, struct ule_task, lab.node);
	consult(t);
	return t->pri;
}

/* False: the policy has ended, no lock is held. */
static __always_inline bool ule_choose(rq_t *rq, task_t *prev, task_t **chosen)
{
	if (!rq->q.nr && !ule_steal(rq, rq->node))
		return false;
	if (!rq->q.nr && nr_nodes > 1 && !ule_steal(rq, -1))
		return false;
	*chosen = ule_first(rq, prev);
	return true;
}

/*
 * Ops, in the order of a task's life.
 */

/* It wakes: what it slept is in its history, and it has a full slice. */
static __always_inline void ule_woken(task_t *t, u64 now)
{
	if (!t->q.asleep)
		return;
	t->q.asleep = false;
	if (!t->q.fresh) {
		if (now > t->stopped_ns)
			t->sleep_us += (now - t->stopped_ns) / 1000;
		ule_fade(t);
		t->left_ns = ULE_SLICE * ULE_STAT_NS;
	}
	t->q.fresh = false;
	ule_use(t, now / 1000, false);
	ule_update_pri(t);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(ule_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *current_p = bpf_get_current_task_btf();
	task_t *t = task_new(p), *parent = NULL;
	u64 now = scx_bpf_now();

	if (!t)
		return -ENOMEM;
	rq_new_task(&t->q, p);
	t->stopped_ns = now;
	t->first_us = t->last_us = now / 1000;
	t->left_ns = ULE_SLICE * ULE_STAT_NS;
	ule_update_pri(t);
	if (args->fork && current_p && current_p->pid)
		parent = task_of(current_p);
	if (!parent)
		return 0;
	t->q.fresh = true;
	lab_parent_set(&t->parent, &parent->lab);
	t->run_us = parent->run_us;
	t->sleep_us = parent->sleep_us;
	ule_fade_child(t);
	t->left_ns = ule_first_slice(slices == SLICES_FIXED ? 0 : lab_read(rq_this()->nr) - 1);
	t->used_us = parent->used_us;
	t->first_us = parent->first_us;
	t->last_us = parent->last_us;
	ule_update_pri(t);
	parent->run_us += ULE_STAT_US;
	ule_fade(parent);
	ule_update_pri(parent);
	return 0;
}

s32 BPF_STRUCT_OPS(ule_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);
	u64 now = scx_bpf_now();

	if (!t)
		return prev_cpu;
	alter(t);
	rq_refresh(&t->q, p);
	ule_woken(t, now);
	return ule_pick_cpu(t, prev_cpu, bpf_get_smp_processor_id(), now);
}

/* The running thread of its new CPU is preempted by the rules of preemption. */
static __always_inline void ule_notify(rq_t *rq, task_t *t, bool remote)
{
	task_t *curr = (task_t *)rq->q.curr;
	u32 current;

	if (!curr) {
		rq_mark(&rq->q);
		return;
	}
	consult(curr);
	current = lab_glance(curr->pri);
	if (remote ? ule_should_preempt(t->pri, current, true) && !lab_read(rq->q.marked) :
		     t->pri < current)
		rq_mark(&rq->q);
}

void BPF_STRUCT_OPS(ule_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);
	u64 now = scx_bpf_now();
	unsigned long flags;
	bool found;
	rq_t *rq;

	if (!t) {
		lab_no_context(p);
		return;
	}
	found = t->queue != QUEUE_NONE;
	if (rq_enqueue_stays(&t->q, p, found, enq_flags)) {
		if (found)
			return;
		/* It has lost its CPU without a choice. */
		rq = ule_rq(rq_at(t->q.home));
		if (!lab_lock_irqsave(&rq->q.lock, flags))
			return;
		t->put = PUT_PREEMPTED;
		ule_put(rq, t);
		t->q.takeable = true;
		lab_unlock_irqrestore(&rq->q.lock, flags);
		return;
	}
	ule_woken(t, now);
	ule_update_pri(t);
	rq = ule_rq(rq_at(t->q.home));
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	t->put = PUT_NORMAL;
	rq_add(&rq->q, &t->q);
	t->q.takeable = true;
	ule_notify(rq, t, t->q.home != bpf_get_smp_processor_id());
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(ule_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_dequeue(&t->q, deq_flags);
}

void BPF_STRUCT_OPS(ule_dispatch, s32 cpu, struct task_struct *prev_p)
{
	task_t *prev = NULL, *next = NULL;
	struct task_struct *p = NULL;
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	rq = ule_rq(rq_at(cpu));
	if (!rq_previous(&rq->q, prev_p, (lab_rq_task_t **)&prev))
		return;
	if (prev)
		ule_charge(prev, scx_bpf_now());
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	rq_begin_choice(&rq->q);
	if (prev && prev->q.linked && prev->q.home == cpu && prev->queue == QUEUE_NONE) {
		/* It waits with the others, and may be chosen again. */
		if (prev->slice_end)
			prev->put = PUT_NORMAL;
		else if (prev->put == PUT_NORMAL)
			prev->put = PUT_PREEMPTED;
		prev->slice_end = false;
		ule_put(rq, prev);
	}
	if (!rq_choose(next, prev, p, cpu, ule_choose(rq, prev, &next))) {
		lab_irq_restore(flags);
		return;
	}
	if (next) {
		ule_take(rq, next);
		lab_write(rq->lowpri, next->pri);
	} else if (!prev) {
		lab_write(rq->lowpri, ULE_NONE);
	}
	rq_end_choice(&rq->q, &next->q, p, prev_p, prev);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(ule_running, struct task_struct *p)
{
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t)
		return;
	rq_running(&t->q, p);
	ule_use(t, t->q.started_ns / 1000, false);
	if (t->queue == QUEUE_NONE)
		return;
	rq = ule_rq(rq_this());
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	ule_take(rq, t);
	lab_write(rq->lowpri, t->pri);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

/* The stat clock: the calendar goes on. Where a thread waits, its removal goes on: ule_take(). */
static __always_inline void ule_stat_tick(rq_t *rq)
{
	if (rq->idx != rq->ridx)
		return;
	rq->idx = (rq->idx + 1) % ULE_SLOTS;
	if (!lab_prio_list(&rq->timeshare, rq->ridx)->nr)
		rq->ridx = rq->idx;
}

void BPF_STRUCT_OPS(ule_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	unsigned long flags;
	u32 i __maybe_unused, best;
	rq_t *rq;

	if (!t)
		return;
	rq = ule_rq(rq_this());
	ule_charge(t, now);
	ule_update_pri(t);
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	best = ule_waiting_pri(rq);
	lab_write(rq->lowpri, best < t->pri ? best : t->pri);
	if (rq->next_stat_ns + ULE_STAT_HZ * ULE_STAT_NS < now)
		rq->next_stat_ns = now;
	bpf_for(i, 0, ULE_STAT_HZ + 1) {
		if (rq->next_stat_ns > now)
			break;
		rq->next_stat_ns += ULE_STAT_NS;
		ule_stat_tick(rq);
	}
	if (t->left_ns <= ule_slice_rest(rq->q.nr - 1) && t->q.policy != LAB_SCHED_FIFO) {
		t->left_ns = ULE_SLICE * ULE_STAT_NS;
		t->slice_end = true;
		rq_mark_current(&rq->q, p);
	}
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

bool BPF_STRUCT_OPS(ule_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	t->put = PUT_YIELDED;
	rq_mark_current(rq_this(), from);
	return true;
}

void BPF_STRUCT_OPS(ule_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(ule_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(ule_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	ule_charge(t, scx_bpf_now());
	t->stopped_ns = t->q.started_ns;
}

void BPF_STRUCT_OPS(ule_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_quiescent(&t->q, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(ule_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		rq_forget(&t->q);
}

/* exit(): a parent answers for what its child ran. */
void BPF_STRUCT_OPS(ule_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	rq_forget(&t->q);
	parent = task_parent(&t->parent);
	if (parent) {
		alter(parent);
		/*
		 * Model: without the lock of its thread, which FreeBSD takes. Of two changes
		 * at once one may be lost, or the past fades once more.
		 */
		lab_racy_set(parent->run_us, parent->run_us + t->run_us);
		lab_racy(ule_fade(parent));
	}
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(ule_init)
{
	rq_t *rq;
	int error;
	u32 cpu;

	if (!lab_at_most(interact_threshold, ULE_INTERACT_MAX))
		return -EINVAL;
	error = lab_init() ?: rq_init(sizeof(struct ule_rq));
	if (error)
		return error;
	lab_cores_init();
	nr_nodes = scx_bpf_nr_node_ids();
	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = ule_rq(rq_at(cpu));
		rq->lowpri = ULE_NONE;
		rq->idx = rq->ridx = 0;
		rq->next_stat_ns = 0;
		rq->node = scx_bpf_cpu_node(cpu);
		if (!lab_prio_init(&rq->realtime, rq->lists, ULE_SLOTS) ||
		    !lab_prio_init(&rq->timeshare, rq->lists + ULE_SLOTS, ULE_SLOTS) ||
		    !lab_prio_init(&rq->idle, rq->lists + 2 * ULE_SLOTS, ULE_SLOTS))
			return -EINVAL;
	}
	return ule_balancer_start();
}

void BPF_STRUCT_OPS(ule_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(ule_ops,
	       .init_task		= (void *)ule_init_task,
	       .select_cpu		= (void *)ule_select_cpu,
	       .enqueue			= (void *)ule_enqueue,
	       .dequeue			= (void *)ule_dequeue,
	       .dispatch		= (void *)ule_dispatch,
	       .running			= (void *)ule_running,
	       .tick			= (void *)ule_tick,
	       .yield			= (void *)ule_yield,
	       .set_cpumask		= (void *)ule_set_cpumask,
	       .cpu_release		= (void *)ule_cpu_release,
	       .stopping		= (void *)ule_stopping,
	       .quiescent		= (void *)ule_quiescent,
	       .disable			= (void *)ule_disable,
	       .exit_task		= (void *)ule_exit_task,
	       .init			= (void *)ule_init,
	       .exit			= (void *)ule_exit,
	       .name			= "ule");
