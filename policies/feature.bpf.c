/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Any of 5,832 schedulers: one choice at each node of a tree of features.
 *
 * Idea: what schedulers with a queue per CPU do can be taken apart into features
 * with two or three alternatives each: which runs next, for how long, how load is
 * measured, when and by whom it is balanced, where a thread that wakes is put.
 * Every combination is a scheduler, so what a feature is worth for a workload can
 * be measured with everything else equal. The default is the point nearest CFS.
 *
 * Good for: finding out which features a workload needs, and which only matter
 * together.
 *
 * Bad for: production. Many of the combinations are poor ones, and with
 * `slice=infinite` a thread that never blocks keeps its CPU from all others.
 *
 * Source: R. Gouicem et al., the feature tree of schedulers (Compas 2019);
 * docs/schedulers/feature.md restates the rules.
 *
 * Points:
 * - cfs-like: election=rbtree,slice=split,metric=used_time,periodic=nr_cores,idle=on,unblock=on,executor=all,imbalance=above_20pct,placement=llc
 * - ule-like: election=fifo,slice=split,metric=nr_run,periodic=random,idle=on,unblock=on,executor=core,imbalance=differs,placement=all
 *
 * Mute:
 * - executor: periodic=never
 * - imbalance: periodic=never,idle=off
 * - placement: unblock=off
 *
 * Simplifications:
 * - The tree does not say, and it is so here: a balance moves one thread to its
 *   CPU, the last one in the order of election; of equal CPUs a placement takes
 *   the thread's own, then the nearest behind it; no thread preempts by waking.
 *   A split slice has the length that it has when the thread is picked; where x and
 *   y are to differ, x is the greater one.
 * - Runtime is relative to the CPU's queue: a thread that wakes or is new starts
 *   level with the least runtime there, so that old threads do not wait for new
 *   ones to catch up. Nice levels count for nothing, and real-time ones neither.
 * - load(t) is brought up to date when the thread wakes, is elected, blocks, or at
 *   a tick; while it waits its share in its CPU's load stays as before. It takes
 *   its load along when it blocks. Where slices are infinite, a time slice is
 *   `fixed_us` here.
 * - Slices are charged with running time and looked at by ticks, of whatever HZ.
 * - sched_ext has no tick on idle CPUs. A timer kicks the CPU that is to balance; a
 *   busy CPU does it at its next tick, an idle one is woken if tasks wait
 *   anywhere. The one CPU that balances for the machine does it in the timer.
 * - A thread that yields goes behind one other thread.
 */
#include <lab/lab.bpf.h>
#include <lab/percpu.h>
#include <lab/periodic.h>
#include <lab/rbtree.h>
#include <lab/topology.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

enum feature_election { ELECTION_RBTREE, ELECTION_LINKEDLIST, ELECTION_FIFO };
enum feature_slice { SLICE_INFINITE, SLICE_FIXED, SLICE_SPLIT };
enum feature_metric { METRIC_NR_RUN, METRIC_NR_RUN_BLOCK, METRIC_USED_TIME };
enum feature_periodic { PERIODIC_NEVER, PERIODIC_RANDOM, PERIODIC_NR_CORES };
enum feature_switch { SWITCH_OFF, SWITCH_ON };
enum feature_executor { EXECUTOR_ALL, EXECUTOR_NODE, EXECUTOR_CORE };
enum feature_imbalance { IMBALANCE_DIFFERS, IMBALANCE_ABOVE_20PCT };
enum feature_placement { PLACEMENT_SMT, PLACEMENT_LLC, PLACEMENT_ALL };

/* The task that runs next: least runtime first, from a tree or a sorted list; or by arrival. */
const volatile enum feature_election election = ELECTION_RBTREE;

/* For how long: until it blocks; 10 ms; or 24 ms shared out, and 3 ms among more than 8. */
const volatile enum feature_slice slice = SLICE_SPLIT;

/* Load of a CPU: runnable threads; with those that blocked last here; or a decaying average of use. */
const volatile enum feature_metric metric = METRIC_USED_TIME;

/* When CPUs balance whatever happens: never; 0.5 to 1.5 s apart; or every n ms of n CPUs. */
const volatile enum feature_periodic periodic = PERIODIC_NR_CORES;

/* Whether a CPU balances for itself when it becomes idle. */
const volatile enum feature_switch idle = SWITCH_ON;

/* Whether a thread that is new or wakes is placed, or stays where it was (or its parent is). */
const volatile enum feature_switch unblock = SWITCH_ON;

/* The CPU that balances periodically: each for itself; one of a node for it; or one for the machine. */
const volatile enum feature_executor executor = EXECUTOR_ALL;

/* Which load makes another CPU a source: one that is greater, or more than 1.2 times the own. */
const volatile enum feature_imbalance imbalance = IMBALANCE_ABOVE_20PCT;

/* How far from its last CPU a thread may be placed: its core's, its cache's, or the machine's. */
const volatile enum feature_placement placement = PLACEMENT_LLC;

/* Length of a fixed slice, in µs. */
const volatile u32 fixed_us = 10000;

/* The time that split slices share out, in µs. */
const volatile u32 split_us = 24000;

/* How many threads may share it out; among more, split slices have their least length. */
const volatile u32 split_nr = 8;

/* Least length of split slices, in µs. */
const volatile u32 split_min_us = 3000;

#define MS			1000000ull

/* The random balancer draws from half a second to one and a half. */
#define FEATURE_RANDOM_MS	500
#define FEATURE_RANDOM_SPAN_MS	1001

/* Load of a thread that is always runnable. */
#define FEATURE_LOAD		1024

/* After so many windows nothing is left of a load (0.8 ^ 32 is less than a thousandth). */
#define FEATURE_WINDOWS		32

struct feature_task {
	union {
		struct lab_task lab;
		struct lab_rq_task q;
	};
	struct lab_rb_node tree;	/* election=rbtree; in the others' lists: lab.node */
	s64 runtime;		/* ns, of the clock of CPU `clock` */
	u64 turn_ns;		/* ran since its slice began */
	u64 slice_ns;		/* length of that, as when it was picked */
	u64 window_ns;		/* when the window of its load began */
	u64 seen_ns;		/* up to when that is accounted for */
	u64 runnable_ns;	/* of the window */
	u32 load;		/* of FEATURE_LOAD */
	u32 counted;		/* of it, in its home's load */
	s32 clock;
	u32 blocked_on;		/* CPU that counts it as blocked, one higher; 0 = none */
	bool queued;		/* in the structure of its home, as a running thread is not */
	bool kept;		/* it lost its CPU before its slice ended */
	bool yielded;
	bool moved;		/* by a balance, and not chosen since */
	bool pad[4];
};

LAB_TASKS(struct feature_task);

struct feature_rq {
	struct lab_rq q;
	/* Others read these without the lock. */
	u64 load;		/* sum of its threads' */
	u64 blocked;		/* threads that blocked last here */
	s64 clock;		/* least runtime of its threads, only moves forward */
	bool due;		/* this CPU is to balance */
	/* The timer's. */
	u64 left_ns;		/* until this CPU balances, from the last expiry on */
	/* Under the lock; one of them is used. */
	struct lab_rb_tree tree __attribute__((aligned(LAB_CACHELINE)));
	struct lab_list list;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct feature_rq __arena rq_t;

static __always_inline rq_t *feature_rq(s32 cpu)
{
	return (rq_t *)rq_at(cpu);
}

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

/* Length of a slice in a queue of @nr threads, the running one included; ns, never 0. */
static __always_inline u64 feature_slice(u64 nr)
{
	u64 us = fixed_us;

	if (slice == SLICE_SPLIT)
		us = nr > split_nr ? split_min_us : split_us;
	us = us ? us : 1;
	if (slice == SLICE_SPLIT && nr && nr <= split_nr)
		return us * 1000 / nr;
	return us * 1000;
}

/*
 * Whether load @x of a source and @y of a destination are out of balance. Where x and y
 * only have to differ the source is the greater one still: else the most loaded CPU would
 * take from another.
 */
static __always_inline bool feature_imbalanced(u64 x, u64 y)
{
	return imbalance == IMBALANCE_DIFFERS ? x > y : 5 * x > 6 * y;
}

/* A load after one more window, of which @part of FEATURE_LOAD were runnable. */
static __always_inline u32 feature_next_load(u32 load, u32 part)
{
	return (4 * load + part) / 5;
}

/* Time to the next balancing, from a random number; ns. */
static __always_inline u64 feature_interval(u32 random)
{
	if (periodic == PERIODIC_RANDOM)
		return (FEATURE_RANDOM_MS + random % FEATURE_RANDOM_SPAN_MS) * MS;
	return lab_nr_online * MS;
}

/*
 * Load.
 */

/* Brings load(t) up to now; since last time it was runnable, or blocked. */
LAB_PART int feature_age(task_t *t __arg_arena, u64 length, u64 now, bool runnable)
{
	u64 end;
	u32 i __maybe_unused;

	lab_use_arena();
	bpf_for(i, 0, FEATURE_WINDOWS) {
		end = t->window_ns + length;
		if (now < end) {
			if (runnable && now > t->seen_ns)
				t->runnable_ns += now - t->seen_ns;
			t->seen_ns = now;
			return 0;
		}
		if (runnable && end > t->seen_ns)
			t->runnable_ns += end - t->seen_ns;
		if (t->runnable_ns > length)
			t->runnable_ns = length;
		t->load = feature_next_load(t->load, t->runnable_ns * FEATURE_LOAD / length);
		t->runnable_ns = 0;
		t->window_ns = end;
		if (t->seen_ns < end)
			t->seen_ns = end;
	}
	t->load = runnable ? FEATURE_LOAD : 0;
	t->window_ns = t->seen_ns = now;
	return 0;
}

static __always_inline void feature_use(rq_t *rq, task_t *t, u64 now, bool runnable)
{
	if (metric == METRIC_USED_TIME)
		feature_age(t, feature_slice(lab_read(rq->q.nr)), now, runnable);
}

/* Its share in the load of its home, whose lock is held, is its load. */
static __always_inline void feature_recount(rq_t *rq, task_t *t, u32 share)
{
	if (metric != METRIC_USED_TIME || t->counted == share)
		return;
	lab_write(rq->load, rq->load + share - t->counted);
	t->counted = share;
}

static __always_inline u64 feature_load(rq_t *rq)
{
	u64 load;

	if (metric == METRIC_USED_TIME) {
		lab_touch(&rq->load, false);
		load = lab_read(rq->load);
		return lab_cpu_taken(rq->q.cpu) ? load + FEATURE_LOAD : load;
	}
	lab_touch(&rq->q.nr, false);
	load = rq_nr_with_higher(rq->q.cpu);
	if (metric == METRIC_NR_RUN)
		return load;
	lab_touch(&rq->blocked, false);
	return load + lab_read(rq->blocked);
}

static __always_inline void feature_count_blocked(rq_t *rq, task_t *t)
{
	if (metric != METRIC_NR_RUN_BLOCK || t->blocked_on)
		return;
	t->blocked_on = rq->q.cpu + 1;
	lab_touch(&rq->blocked, true);
	__sync_fetch_and_add(&rq->blocked, 1);
}

static __always_inline void feature_uncount_blocked(task_t *t)
{
	rq_t *rq;

	if (metric != METRIC_NR_RUN_BLOCK || !t->blocked_on)
		return;
	rq = feature_rq(t->blocked_on - 1);
	t->blocked_on = 0;
	lab_touch(&rq->blocked, true);
	__sync_fetch_and_add(&rq->blocked, -1ull);
}

/*
 * The queue.
 */

static __always_inline s64 feature_later(s64 a, s64 b)
{
	return lab_rb_less(a, b) ? b : a;
}

/* Into a sorted list, behind its equals. */
static __always_inline bool feature_insert(rq_t *rq, task_t *t)
{
	lab_node_t *pos;
	task_t *other;

	lab_list_for_each(pos, &rq->list) {
		other = lab_entry(pos, struct feature_task, lab.node);
		consult(other);
		if (lab_rb_less(t->runtime, other->runtime))
			break;
	}
	if (pos != &rq->list.head && !lab_rb_less(t->runtime,
			lab_entry(pos, struct feature_task, lab.node)->runtime))
		return false;
	lab_list_link(&rq->list, &t->lab.node, pos->prev, pos);
	return true;
}

/*
 * The clock follows the least runtime of the queue's threads, the running one
 * included, however long that runs alone. Its lock is held.
 */
static __noinline int feature_advance(rq_t *rq, task_t *curr)
{
	s64 least = curr->runtime;
	lab_node_t *first;
	task_t *t;

	lab_use_arena();
	if (election == ELECTION_RBTREE) {
		if (rq->tree.first) {
			lab_touch(rq->tree.first, false);
			if (lab_rb_less(rq->tree.first->key, least))
				least = rq->tree.first->key;
		}
	} else {
		first = rq->list.head.next;
		if (first != &rq->list.head) {
			t = lab_entry(first, struct feature_task, lab.node);
			consult(t);
			if (lab_rb_less(t->runtime, least))
				least = t->runtime;
		}
	}
	lab_write(rq->clock, feature_later(rq->clock, least));
	return 0;
}

/* Puts a thread that waits into its queue. */
LAB_PART int feature_put(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	bool linked = true;

	lab_use_arena();
	if (election == ELECTION_RBTREE) {
		t->tree.key = t->runtime;
		t->tree.value = 0;
		linked = lab_rb_add(&rq->tree, &t->tree);
	} else {
		lab_touch(&rq->list, true);
		if (election == ELECTION_LINKEDLIST)
			linked = feature_insert(rq, t);
		else if (t->kept)
			lab_list_add_head(&rq->list, &t->lab.node);
		else
			lab_list_add_tail(&rq->list, &t->lab.node);
	}
	if (!linked)
		scx_bpf_error("the loop budget ran out in a queue of %llu threads", rq->q.nr);
	t->queued = linked;
	t->kept = false;
	return 0;
}

LAB_PART int feature_take(rq_t *rq __arg_arena, task_t *t __arg_arena)
{
	lab_use_arena();
	if (!t->queued)
		return 0;
	if (election == ELECTION_RBTREE) {
		lab_rb_del(&rq->tree, &t->tree);
	} else {
		lab_touch(&rq->list, true);
		lab_list_del(&rq->list, &t->lab.node);
	}
	t->queued = false;
	return 0;
}

static __noinline void rq_link(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;
	rq_t *rq = (rq_t *)q;

	lab_use_arena();
	if (t->clock != q->cpu) {
		t->runtime += (u64)rq->clock - (u64)lab_read(feature_rq(t->clock)->clock);
		t->clock = q->cpu;
	}
	if (t->q.asleep)
		t->runtime = feature_later(t->runtime, rq->clock);
	feature_put(rq, t);
	feature_recount(rq, t, t->load);
	rq_count(q, 1);
}

static __noinline void rq_unlink(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;
	rq_t *rq = (rq_t *)q;

	lab_use_arena();
	feature_take(rq, t);
	feature_recount(rq, t, 0);
	rq_count(q, -1);
	if (t->q.asleep)
		feature_count_blocked(rq, t);
}

static __always_inline bool feature_elects(rq_t *rq, task_t *t, task_t *prev)
{
	examine(t);
	return t == prev ? !t->yielded : t->q.takeable && lab_allowed(&t->lab, rq->q.cpu);
}

/*
 * Address of the thread that runs next: the first one that may run here; one that
 * has yielded if there is no other; 0 = none.
 */
LAB_PART u64 feature_elect(rq_t *rq __arg_arena, task_t *prev __arg_arena)
{
	lab_rb_node_t *node;
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	if (election == ELECTION_RBTREE) {
		lab_touch(&rq->tree.first, false);
		for (node = rq->tree.first; node && can_loop; node = lab_rb_next(node)) {
			t = lab_entry(node, struct feature_task, tree);
			if (feature_elects(rq, t, prev))
				return (u64)t;
		}
	} else {
		lab_touch(&rq->list, false);
		lab_list_for_each(pos, &rq->list) {
			t = lab_entry(pos, struct feature_task, lab.node);
			if (feature_elects(rq, t, prev))
				return (u64)t;
		}
	}
	return prev && prev->queued ? (u64)prev : 0;
}

/*
 * Whether a balance may move the thread. One that was moved waits for its turn where it is,
 * unless @to has nothing else to do: between CPUs that are always busy it would be moved on
 * and on before a CPU chooses it.
 */
static __always_inline bool feature_may_move(task_t *t, lab_rq_t *to, bool anyway)
{
	return rq_may_pull(&t->q, to) && (anyway || !t->moved || !to->nr);
}

/*
 * Address of the thread that a balance moves: the last in order that may go; 0 = none.
 * @anyway: its CPU is taken, it has no turn there.
 */
LAB_PART u64 feature_movable(rq_t *from __arg_arena, lab_rq_t *to __arg_arena, bool anyway)
{
	lab_rb_node_t *node;
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	if (election == ELECTION_RBTREE) {
		for (node = lab_rb_last(&from->tree); node && can_loop; node = lab_rb_prev(node)) {
			t = lab_entry(node, struct feature_task, tree);
			if (feature_may_move(t, to, anyway))
				return (u64)t;
		}
		return 0;
	}
	for (pos = from->list.head.prev; pos != &from->list.head && can_loop; pos = pos->prev) {
		t = lab_entry(pos, struct feature_task, lab.node);
		if (feature_may_move(t, to, anyway))
			return (u64)t;
	}
	return 0;
}

/*
 * Balancing.
 */

/* The source for a balance of @to: the most loaded of those that are out of balance; -1 = none. */
LAB_PART s32 feature_source(rq_t *to __arg_arena)
{
	u64 own, load, most = 0;
	u32 i, cpu;
	s32 best = -1;
	rq_t *rq;

	lab_use_arena();
	own = feature_load(to);
	bpf_for(i, 1, lab_nr_cpus) {
		/* Of equals the next one, so that not all go to the same. */
		cpu = (to->q.cpu + i) % lab_nr_cpus;
		rq = feature_rq(cpu);
		if (!rq->q.online)
			continue;
		load = feature_load(rq);
		if (feature_imbalanced(load, own) && (best < 0 || load > most)) {
			most = load;
			best = cpu;
		}
	}
	return best;
}

static __noinline bool rq_give(lab_rq_t *from, lab_rq_t *to)
{
	task_t *t;

	lab_use_arena();
	t = (task_t *)feature_movable((rq_t *)from, to, true);
	if (!t)
		return false;
	rq_pull(from, to, &t->q);
	t->moved = true;
	return true;
}

/* Moves a thread, both locks held, if the two are still out of balance. */
LAB_PART bool feature_move(rq_t *from __arg_arena, rq_t *to __arg_arena)
{
	u64 theirs, own;
	task_t *t;

	lab_use_arena();
	/* One after the other: C leaves the order of arguments open, and with it what each look costs. */
	theirs = feature_load(from);
	own = feature_load(to);
	if (!feature_imbalanced(theirs, own))
		return false;
	t = (task_t *)feature_movable(from, &to->q, false);
	if (!t)
		return false;
	rq_pull(&from->q, &to->q, &t->q);
	t->moved = true;
	return true;
}

/* A CPU without threads, its lock held, takes one. False: the policy has ended, no lock is held. */
LAB_PART bool feature_balance_idle(rq_t *rq __arg_arena)
{
	rq_t *from;
	s32 cpu;

	lab_use_arena();
	cpu = feature_source(rq);
	if (cpu < 0)
		return true;
	from = feature_rq(cpu);
	if (!rq_lock_second(&rq->q, &from->q))
		return false;
	if (!rq->q.nr)
		feature_move(from, rq);
	lab_unlock(&from->q.lock);
	return true;
}

/* The periodic balance of one CPU; no lock is held. False: the policy has ended. */
LAB_PART bool feature_balance(u32 cpu)
{
	unsigned long flags;
	rq_t *from, *to;
	s32 source;

	lab_use_arena();
	to = feature_rq(cpu);
	source = feature_source(to);
	if (source < 0)
		return true;
	from = feature_rq(source);
	lab_irq_save(flags);
	if (!lab_lock(&from->q.lock)) {
		lab_irq_restore(flags);
		return false;
	}
	if (!rq_lock_second(&from->q, &to->q)) {
		lab_irq_restore(flags);
		return false;
	}
	if (feature_move(from, to) && !to->q.curr)
		rq_mark(&to->q);
	lab_unlock(&to->q.lock);
	lab_unlock(&from->q.lock);
	lab_irq_restore(flags);
	return true;
}

/* The work of the executor on this CPU: the balance of each CPU it is in charge of. */
LAB_PART int feature_execute(u32 cpu)
{
	u32 i, begin, end;
	lab_place_t *place;
	rq_t *rq;

	lab_use_arena();
	rq = feature_rq(cpu);
	lab_write(rq->due, false);
	if (executor == EXECUTOR_ALL) {
		feature_balance(cpu);
		return 0;
	}
	place = lab_place_of(cpu);
	begin = executor == EXECUTOR_NODE ? place->begin[LAB_LEVEL_NODE] : 0;
	end = executor == EXECUTOR_NODE ? place->end[LAB_LEVEL_NODE] : lab_nr_online;
	bpf_for(i, begin, end) {
		cpu = lab_cpu_at(i);
		if (feature_rq(cpu)->q.online && !feature_balance(cpu))
			break;
	}
	return 0;
}

/* Whether a CPU balances for itself, its node or the machine. */
static __always_inline bool feature_is_executor(u32 cpu)
{
	lab_place_t *place = lab_place_of(cpu);

	if (executor == EXECUTOR_ALL)
		return true;
	if (executor == EXECUTOR_NODE)
		return place->at == place->begin[LAB_LEVEL_NODE];
	return !place->at;
}

/* Whether tasks wait behind others anywhere. */
static __noinline bool feature_work_waits(void)
{
	u32 i;

	lab_use_arena();
	bpf_for(i, 0, lab_nr_cpus) {
		if (lab_read(rq_at(i)->nr) > 1)
			return true;
	}
	return false;
}

/* The timer has kicked an executor to balance. */
LAB_PART int feature_due(u32 cpu)
{
	rq_t *rq;

	lab_use_arena();
	if (executor == EXECUTOR_CORE)
		return feature_execute(cpu);
	rq = feature_rq(cpu);
	lab_write(rq->due, true);
	if (!lab_read(rq->q.curr))
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return 0;
}

/* Delay of the timer. */
static u64 feature_delay_ns;

/* Each executor has a time of its own; the timer expires for the next of them. */
static void feature_expired(void)
{
	u64 next = ~0ull, passed = feature_delay_ns;
	bool waits = feature_work_waits();
	rq_t *rq;
	u32 cpu;

	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = feature_rq(cpu);
		if (!rq->q.online || !feature_is_executor(cpu))
			continue;
		if (rq->left_ns > passed) {
			rq->left_ns -= passed;
		} else {
			rq->left_ns = feature_interval(bpf_get_prandom_u32());
			/* Where no thread waits, none can be moved. */
			if (waits && passed)
				feature_due(cpu);
		}
		if (rq->left_ns < next)
			next = rq->left_ns;
	}
	feature_delay_ns = next == ~0ull ? 1000 * MS : next;
}

LAB_PERIODIC(feature_timer, feature_expired, feature_delay_ns);

/*
 * Placement.
 */

/* The least loaded CPU within reach of the last one, which wins among equals. */
LAB_PART s32 feature_place(task_t *t __arg_arena, s32 last)
{
	u32 i, begin, nr, own, level, cpu;
	u64 load, least = ~0ull;
	lab_place_t *place;
	s32 best = last;
	rq_t *rq;

	lab_use_arena();
	level = placement == PLACEMENT_SMT ? LAB_LEVEL_CORE :
		placement == PLACEMENT_LLC ? LAB_LEVEL_LLC : LAB_LEVEL_MACHINE;
	place = lab_place_of(last);
	begin = place->begin[level];
	nr = place->end[level] - begin;
	own = place->at - begin;
	bpf_for(i, 0, nr) {
		cpu = lab_cpu_at(begin + (own + i) % nr);
		rq = feature_rq(cpu);
		if (!rq->q.online || !lab_allowed(&t->lab, cpu))
			continue;
		load = feature_load(rq);
		if (load < least) {
			least = load;
			best = cpu;
		}
		if (!load)
			break;
	}
	return best;
}

/*
 * Ops, in the order of a task's life.
 */

static __always_inline void feature_charge(task_t *t, u64 now)
{
	u64 ran = now > t->q.started_ns ? now - t->q.started_ns : 0;

	t->q.started_ns = now;
	t->runtime += ran;
	t->turn_ns += ran;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(feature_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	rq_refresh(&t->q, p);
	t->q.home = t->clock = scx_bpf_task_cpu(p);
	t->q.asleep = true;
	t->q.fresh = true;
	lab_note_higher(p);
	t->runtime = lab_read(feature_rq(t->clock)->clock);
	t->load = FEATURE_LOAD;
	t->window_ns = t->seen_ns = scx_bpf_now();
	return 0;
}

s32 BPF_STRUCT_OPS(feature_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (!t || unblock == SWITCH_OFF)
		return prev_cpu;
	alter(t);
	rq_refresh(&t->q, p);
	return feature_place(t, prev_cpu);
}

static __always_inline bool feature_slice_over(task_t *t)
{
	return slice != SLICE_INFINITE && t->turn_ns >= t->slice_ns;
}

/* The thread has lost its CPU: its turn is over, or it is to go on with it. */
static __always_inline void feature_end_turn(task_t *t)
{
	if (feature_slice_over(t))
		t->turn_ns = 0;
	else
		t->kept = !t->yielded;
}

void BPF_STRUCT_OPS(feature_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);
	unsigned long flags;
	bool found;
	rq_t *rq;

	if (!t) {
		lab_no_context(p);
		return;
	}
	found = t->queued;
	if (rq_enqueue_stays(&t->q, p, found, enq_flags)) {
		if (found)
			return;
		/* It has lost its CPU without a choice. */
		rq = feature_rq(t->q.home);
		if (!lab_lock_irqsave(&rq->q.lock, flags))
			return;
		feature_end_turn(t);
		feature_put(rq, t);
		t->q.takeable = true;
		lab_unlock_irqrestore(&rq->q.lock, flags);
		return;
	}
	rq = feature_rq(t->q.home);
	feature_use(rq, t, scx_bpf_now(), !t->q.asleep);
	feature_uncount_blocked(t);
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	rq_add(&rq->q, &t->q);
	t->q.asleep = false;
	t->q.fresh = false;
	t->q.takeable = true;
	if (!rq->q.curr)
		rq_mark(&rq->q);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(feature_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_dequeue(&t->q, deq_flags);
}

/* A turn begins; the thread has run for none of it. */
static __always_inline void feature_begin_turn(rq_t *rq, task_t *t)
{
	t->turn_ns = 0;
	t->slice_ns = feature_slice(lab_read(rq->q.nr));
}

/* The previous thread waits with the others, and may be chosen again. */
static __always_inline void feature_put_prev(rq_t *rq, task_t *prev, u64 now)
{
	feature_end_turn(prev);
	if (!prev->q.linked || prev->q.home != rq->q.cpu || prev->queued)
		return;
	feature_use(rq, prev, now, true);
	feature_recount(rq, prev, prev->load);
	feature_put(rq, prev);
}

static __always_inline bool feature_choose(rq_t *rq, task_t *prev, task_t **chosen)
{
	*chosen = (task_t *)feature_elect(rq, prev);
	return true;
}

void BPF_STRUCT_OPS(feature_dispatch, s32 cpu, struct task_struct *prev_p)
{
	task_t *prev = NULL, *next = NULL;
	struct task_struct *p = NULL;
	u64 now = scx_bpf_now();
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	rq = feature_rq(cpu);
	if (!rq_previous(&rq->q, prev_p, (lab_rq_task_t **)&prev))
		return;
	if (prev) {
		feature_charge(prev, now);
	} else if (lab_read(rq->due)) {
		feature_execute(cpu);
	}
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	rq_begin_choice(&rq->q);
	if (prev)
		feature_put_prev(rq, prev, now);
	if (idle == SWITCH_ON && !rq->q.nr && !feature_balance_idle(rq)) {
		lab_irq_restore(flags);
		return;
	}
	rq_choose(next, prev, p, cpu, feature_choose(rq, prev, &next));
	if (next) {
		if (next != prev)
			next->turn_ns = 0;
		else if (!next->turn_ns)
			feature_begin_turn(rq, next);
		feature_take(rq, next);
		next->moved = false;
		next->yielded = false;
		lab_write(rq->clock, feature_later(rq->clock, next->runtime));
	}
	if (p) {
		feature_use(rq, next, now, true);
		feature_recount(rq, next, next->load);
	}
	rq_end_choice(&rq->q, &next->q, p, prev_p, prev);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(feature_running, struct task_struct *p)
{
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t)
		return;
	rq_running(&t->q, p);
	rq = (rq_t *)rq_this();
	/* It goes on with its turn after tasks of higher classes, and after changes of its attributes. */
	if (!t->turn_ns)
		feature_begin_turn(rq, t);
	if (!t->queued)
		return;
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	feature_take(rq, t);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(feature_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t)
		return;
	rq = (rq_t *)rq_this();
	feature_charge(t, now);
	if ((metric == METRIC_USED_TIME || election != ELECTION_FIFO) && t->q.linked &&
	    t->q.home == rq->q.cpu) {
		feature_use(rq, t, now, true);
		if (!lab_lock_irqsave(&rq->q.lock, flags))
			return;
		feature_recount(rq, t, t->load);
		if (election != ELECTION_FIFO)
			feature_advance(rq, t);
		lab_unlock_irqrestore(&rq->q.lock, flags);
	}
	if (feature_slice_over(t)) {
		if (lab_read(rq->q.nr) > 1)
			rq_mark_current(&rq->q, p);
		else
			feature_begin_turn(rq, t);
	}
	if (lab_read(rq->due))
		feature_execute(rq->q.cpu);
}

bool BPF_STRUCT_OPS(feature_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to)
		return false;
	t->yielded = true;
	rq_mark_current(rq_this(), from);
	return true;
}

void BPF_STRUCT_OPS(feature_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(feature_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(feature_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		feature_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(feature_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (!t || !rq_quiescent(&t->q, deq_flags))
		return;
	t->turn_ns = 0;
	feature_use((rq_t *)rq_this(), t, scx_bpf_now(), true);
}

static __always_inline void feature_forget(task_t *t)
{
	rq_forget(&t->q);
	feature_uncount_blocked(t);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(feature_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		feature_forget(t);
}

void BPF_STRUCT_OPS(feature_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	feature_forget(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(feature_init)
{
	int error = lab_init();
	rq_t *rq;
	u32 cpu;

	if (!error)
		error = rq_init(sizeof(struct feature_rq));
	if (error)
		return error;
	lab_topology_init();
	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = feature_rq(cpu);
		rq->load = 0;
		rq->blocked = 0;
		rq->clock = 0;
		rq->due = false;
		rq->left_ns = 0;
		lab_rb_init(&rq->tree);
		lab_list_init(&rq->list);
	}
	if (periodic == PERIODIC_NEVER)
		return 0;
	/* Nothing has passed: every executor draws its first time. */
	feature_delay_ns = 0;
	feature_expired();
	return feature_timer_start();
}

void BPF_STRUCT_OPS(feature_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(feature_ops,
	       .init_task		= (void *)feature_init_task,
	       .select_cpu		= (void *)feature_select_cpu,
	       .enqueue			= (void *)feature_enqueue,
	       .dequeue			= (void *)feature_dequeue,
	       .dispatch		= (void *)feature_dispatch,
	       .running			= (void *)feature_running,
	       .tick			= (void *)feature_tick,
	       .yield			= (void *)feature_yield,
	       .set_cpumask		= (void *)feature_set_cpumask,
	       .cpu_release		= (void *)feature_cpu_release,
	       .stopping		= (void *)feature_stopping,
	       .quiescent		= (void *)feature_quiescent,
	       .disable			= (void *)feature_disable,
	       .exit_task		= (void *)feature_exit_task,
	       .init			= (void *)feature_init,
	       .exit			= (void *)feature_exit,
	       .name			= "feature");
