/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The O(1) scheduler as it was in Linux 2.6.
 *
 * Idea: as in o1, every CPU has a lock and two arrays of lists, and the next
 * task is the head of the first list in use. A task's priority moves by up to
 * five levels around its nice level, by a running average of how much it sleeps.
 * One that counts as interactive goes back to the active array when its slice
 * ends, unless others have waited in the expired one for too long. A woken task
 * may go to the CPU that woke it. CPUs balance by their load, seldom where they
 * have work, and leave tasks with a warm cache where they are.
 *
 * Good for: desktops and servers of many tasks; cost that does not grow with
 * their number.
 *
 * Bad for: workloads whose sleeping does not tell which tasks are interactive;
 * fairness among tasks of equal nice levels within a slice.
 *
 * Source: Linux 2.6.12 (kernel/sched.c); docs/schedulers/o1-26.md restates the
 * rules.
 *
 * Simplifications:
 * - schedule() is ops.dispatch(), under the CPU's lock. A blocked task leaves
 *   the queue there; ops.quiescent() only notes it.
 * - Slices are charged with running time and looked at by ticks, of whatever HZ.
 * - A policy does not learn how a task slept, so every sleep counts as one that
 *   signals interrupt. A wakeup counts as made by an interrupt if the CPU that
 *   made it was idle.
 * - Domains are the CPUs of a NUMA node and the nodes of the machine: a policy
 *   sees no caches and no siblings. The node domain's constants (8 to 32 ms,
 *   32 times when busy) are 2.6.12's defaults.
 * - Balancing by pushing a running task off its CPU (the migration thread's), of
 *   forks and of exec, is left out.
 * - An expired task waits for 20 s at most until interactive ones expire, too.
 * - sched_ext has no tick on idle CPUs. A timer looks every 4 ms whether tasks
 *   wait behind others and wakes as many idle CPUs, which then balance.
 * - In a real kernel real-time tasks never get here. Tasks that come by a CPU's
 *   local queue (exiting ones) are counted and linked when they run.
 */
#include <lab/lab.bpf.h>
#include <lab/arrays.h>
#include <lab/percpu.h>
#include <lab/periodic.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/*
 * The longest an expired task waits before interactive ones expire, too, in ms;
 * 0: as long as 2.6.12 lets it, a second for every task of the CPU. The kernel
 * ejects a scheduler that leaves a task waiting for 30 s.
 */
const volatile u32 starving_ms_max = 20000;

#define MS			1000000ull

/* 100 real-time levels, then 40 of ordinary tasks; nice 0 is 120. */
#define O26_LEVELS		140
#define O26_RT_LEVELS		100
#define O26_NICE_0		120

/* A tick of Linux 2.6 on i386. */
#define O26_TICK_NS		MS

/* Slices (DEF_TIMESLICE, MIN_TIMESLICE): of nice 0, and the shortest. */
#define O26_SLICE_MS		100
#define O26_SLICE_MIN_MS	5

/* The longest sleep that is remembered, and how many priorities it is worth (MAX_BONUS). */
#define O26_SLEEP_MAX		1000
#define O26_SLEEP_MAX_NS	(O26_SLEEP_MAX * MS)
#define O26_BONUS_MAX		10

/* The part of a wait after a wakeup by a task that counts as sleep, in 1/128 (30 %). */
#define O26_WAIT_WEIGHT		38

/* The part of its bonus that a forked task keeps, in percent (CHILD_PENALTY). */
#define O26_CHILD_PERCENT	95

/* Load that one task makes (SCHED_LOAD_SCALE), and what a group must have more to be pulled from. */
#define O26_LOAD		128
#define O26_IMBALANCE_PERCENT	125

/* A task that ran less long ago has its cache warm: within a node, and between nodes. */
#define O26_HOT_NS		(2500 * MS / 1000)
#define O26_HOT_NODE_NS		(10 * MS)

/* Failed balancings after which warm caches do not count any more (cache_nice_tries). */
#define O26_NICE_TRIES		1

#define O26_IDLE_NS		(4 * MS)

/* Levels of domains. */
enum { DOMAIN_CPU, DOMAIN_NODE, DOMAINS };

enum { NOT_WOKEN, WOKEN_BY_TASK, WOKEN_BY_INTERRUPT };

struct o26_task {
	union {
		struct lab_task lab;
		struct lab_rq_task q;
	};
	u64 sleep_avg;		/* ns, up to O26_SLEEP_MAX_NS */
	u64 stamp;		/* when it woke, or was switched to or from */
	u64 last_ran_ns;	/* when it last ran */
	u64 left_ns;		/* of its slice */
	struct lab_node __arena *before; /* to be linked before this one, NULL = last */
	s32 prio;		/* 100 to 139, of an ordinary task */
	s32 prio_nice;		/* nice level that prio was computed from */
	u32 array;		/* index of the array it is linked in */
	u32 level;		/* list it is linked in */
	u32 to_array;		/* 1 + index of the array it is to be linked in, 0 = the active one */
	u32 woken;		/* by what, until it is first chosen */
	struct lab_parent parent;
	bool first_slice;	/* what is left of it goes back to the parent at exit */
	bool pad[7];
};

LAB_TASKS(struct o26_task);

struct o26_domain {
	u64 last_ns;		/* when the last balancing was due */
	u32 interval_ms;
	u32 failed;		/* balancings since one moved a task */
};

struct o26_rq {
	struct lab_rq q;
	u64 load;		/* average of nr, times O26_LOAD */
	u64 expired_ns;		/* when the first task expired since the arrays changed places, 0 = none */
	u32 best_expired;	/* best static priority in the expired array */
	s32 node;
	u64 moved;		/* tasks that the balancing under way has moved */
	struct o26_domain domains[DOMAINS];
	struct lab_arrays arrays;
	struct lab_list lists[2 * O26_LEVELS];
};

typedef struct o26_rq __arena rq_t;

static u32 nr_nodes;

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

static __always_inline u64 o26_slice_ms(s32 nice)
{
	u64 ms = (nice < 0 ? 4 : 1) * O26_SLICE_MS * (u64)(20 - nice) / 20;

	return ms < O26_SLICE_MIN_MS ? O26_SLICE_MIN_MS : ms;
}

/* CURRENT_BONUS: 0 to 10. */
static __always_inline u64 o26_bonus(u64 sleep_avg)
{
	return sleep_avg * O26_BONUS_MAX / O26_SLEEP_MAX_NS;
}

static __always_inline s32 o26_prio(s32 nice, u64 sleep_avg)
{
	s32 prio = O26_NICE_0 + nice - ((s32)o26_bonus(sleep_avg) - O26_BONUS_MAX / 2);

	return prio < O26_RT_LEVELS ? O26_RT_LEVELS : prio >= O26_LEVELS ? O26_LEVELS - 1 : prio;
}

/* By how many levels a task must be better than its nice level to count as interactive. */
static __always_inline s32 o26_delta(s32 nice)
{
	s32 tenths = (nice < 0 ? -nice : nice) * O26_BONUS_MAX / 40;

	return (nice < 0 ? -tenths : tenths) + 2;
}

static __always_inline bool o26_interactive(s32 nice, s32 prio)
{
	return prio <= O26_NICE_0 + nice - o26_delta(nice);
}

/* A sleep longer than this makes an idler of a task, not an interactive one. */
static __always_inline u64 o26_interactive_sleep_ms(s32 nice)
{
	return (u64)(O26_SLEEP_MAX * (O26_BONUS_MAX / 2 + o26_delta(nice) + 1) / O26_BONUS_MAX - 1);
}

/* After this much of its slice an interactive task makes way for its equals. */
static __always_inline u64 o26_granularity_ns(u64 bonus, u32 cpus)
{
	u64 steps = bonus >= O26_BONUS_MAX - 1 ? 1 : O26_BONUS_MAX - bonus;

	return (10 * MS << (steps - 1)) * cpus;
}

/* Its average after a sleep of so long. */
static __always_inline u64 o26_slept(u64 sleep_avg, u64 slept_ns, s32 nice, bool user)
{
	u64 bonus = o26_bonus(sleep_avg);

	if (slept_ns > O26_SLEEP_MAX_NS)
		slept_ns = O26_SLEEP_MAX_NS;
	if (user && slept_ns > o26_interactive_sleep_ms(nice) * MS)
		return O26_SLEEP_MAX_NS - O26_SLICE_MS * MS;
	sleep_avg += slept_ns * (bonus < O26_BONUS_MAX ? O26_BONUS_MAX - bonus : 1);
	return sleep_avg > O26_SLEEP_MAX_NS ? O26_SLEEP_MAX_NS : sleep_avg;
}

/* Its average after it ran for so long. */
static __always_inline u64 o26_ran(u64 sleep_avg, u64 ran_ns)
{
	u64 bonus = o26_bonus(sleep_avg);

	if (ran_ns > O26_SLEEP_MAX_NS)
		ran_ns = O26_SLEEP_MAX_NS;
	ran_ns /= bonus ? bonus : 1;
	return sleep_avg > ran_ns ? sleep_avg - ran_ns : 0;
}

static __always_inline u64 o26_child_sleep(u64 sleep_avg)
{
	return o26_bonus(sleep_avg) * O26_CHILD_PERCENT / 100 * (O26_SLEEP_MAX_NS / O26_BONUS_MAX);
}

/* The average of a parent whose child has exited. */
static __always_inline u64 o26_reaped(u64 parents, u64 childs)
{
	return childs < parents ? (3 * parents + childs) / 4 : parents;
}

/* The load of a queue at a tick. */
static __always_inline u64 o26_new_load(u64 old, u64 nr)
{
	u64 now = nr * O26_LOAD;

	return (old + (now > old) + now) / 2;
}

static __always_inline u64 o26_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static __always_inline u64 o26_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/*
 * How many tasks to move to a group of load @own from one of load @busiest, in a
 * domain of load @average; all per CPU. A group's CPUs are @power_own and
 * @power_busiest.
 */
static __always_inline u64 o26_imbalance(u64 own, u64 busiest, u64 average, u64 power_own,
					 u64 power_busiest)
{
	u64 now, moved, part, load;

	if (own >= busiest || own >= average ||
	    100 * busiest <= O26_IMBALANCE_PERCENT * own)
		return 0;
	load = o26_min(busiest - average, average - own) * o26_min(power_own, power_busiest);
	if (load >= O26_LOAD)
		return load / O26_LOAD;
	if (busiest - own >= 2 * O26_LOAD)
		return 1;
	/* One task, if more work gets done then. */
	now = power_busiest * o26_min(O26_LOAD, busiest) + power_own * o26_min(O26_LOAD, own);
	part = O26_LOAD / power_busiest;
	moved = busiest > part ? power_busiest * o26_min(O26_LOAD, busiest - part) : 0;
	part = o26_min(busiest * power_busiest, O26_LOAD) / power_own;
	moved += power_own * o26_min(O26_LOAD, own + part);
	return moved >= now + O26_LOAD / 8;
}

/*
 * Time.
 */

/* Charges a running task up to now. */
static __always_inline void o26_charge(task_t *t, u64 now)
{
	u64 ran = now > t->q.started_ns ? now - t->q.started_ns : 0;

	t->q.started_ns = now;
	if (t->q.policy != LAB_SCHED_FIFO)
		t->left_ns = ran < t->left_ns ? t->left_ns - ran : 0;
}

/* It has run since it was switched to. */
static __always_inline void o26_account(task_t *t, u64 now)
{
	if (now > t->stamp)
		t->sleep_avg = o26_ran(t->sleep_avg, now - t->stamp);
	t->stamp = t->last_ran_ns = now;
}

static __always_inline u64 o26_full_slice(task_t *t)
{
	return o26_slice_ms(t->q.nice) * MS;
}

static __always_inline bool o26_is_rt(task_t *t)
{
	return lab_realtime(t->q.policy);
}

/* Its priority, which is its list: less is better. */
static __always_inline u32 o26_level(task_t *t)
{
	return o26_is_rt(t) ? O26_RT_LEVELS - 1 - t->q.rt_priority : t->prio;
}

/*
 * The queues.
 */

static __always_inline rq_t *o26_rq(lab_rq_t *q)
{
	return (rq_t *)q;
}

static __noinline void rq_link(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;
	rq_t *rq = o26_rq(q);
	lab_prio_array_t *array;

	lab_use_arena();
	t->level = o26_level(t);
	t->array = t->to_array ? t->to_array - 1 : lab_arrays_active(&rq->arrays);
	array = lab_arrays_at(&rq->arrays, t->array);
	if (t->before)
		lab_prio_add_before(array, t->level, &t->lab.node, t->before);
	else
		lab_prio_add_tail(array, t->level, &t->lab.node);
	t->before = NULL;
	t->to_array = 0;
	rq_count(q, 1);
}

static __noinline void rq_unlink(lab_rq_t *q, lab_rq_task_t *qt)
{
	task_t *t = (task_t *)qt;

	lab_use_arena();
	lab_prio_del(lab_arrays_at(&o26_rq(q)->arrays, t->array), t->level, &t->lab.node);
	rq_count(q, -1);
}

/* A task becomes the last of a list of its queue. */
static __always_inline void o26_requeue(rq_t *rq, task_t *t, u32 array)
{
	alter(t);
	lab_prio_del(lab_arrays_at(&rq->arrays, t->array), t->level, &t->lab.node);
	t->array = array;
	t->level = o26_level(t);
	lab_prio_add_tail(lab_arrays_at(&rq->arrays, array), t->level, &t->lab.node);
}

/* EXPIRED_STARVING: others have waited in the expired array for too long, or deserve it more. */
static __always_inline bool o26_starving(rq_t *rq, task_t *t, u64 now)
{
	u64 limit = O26_SLEEP_MAX_NS * rq->q.nr + O26_TICK_NS;

	if (starving_ms_max && limit > starving_ms_max * MS)
		limit = starving_ms_max * MS;
	if (rq->expired_ns && now - rq->expired_ns >= limit)
		return true;
	return O26_NICE_0 + t->q.nice > rq->best_expired;
}

/* Its slice has ended: a new one, at once for an interactive task. */
static __always_inline void o26_expire(rq_t *rq, task_t *t, u64 now)
{
	u32 static_prio = O26_NICE_0 + t->q.nice;

	t->prio = o26_prio(t->q.nice, t->sleep_avg);
	t->left_ns = o26_full_slice(t);
	t->first_slice = false;
	if (!rq->expired_ns)
		rq->expired_ns = now;
	if (o26_interactive(t->q.nice, t->prio) && !o26_starving(rq, t, now)) {
		o26_requeue(rq, t, lab_arrays_active(&rq->arrays));
		return;
	}
	o26_requeue(rq, t, lab_arrays_expired(&rq->arrays));
	if (static_prio < rq->best_expired)
		rq->best_expired = static_prio;
}

static __always_inline void o26_swap_if_empty(rq_t *rq)
{
	if (!lab_arrays_swap_if_empty(&rq->arrays))
		return;
	rq->expired_ns = 0;
	rq->best_expired = O26_LEVELS;
}

/*
 * Balancing.
 */

/* A remote queue counts by the lesser of its load and its tasks, the own one by the greater. */
static __always_inline u64 o26_load_of(rq_t *rq, bool own)
{
	u64 now = rq_nr_with_higher(rq->q.cpu) * O26_LOAD, load;

	lab_touch(&rq->q.nr, false);
	load = lab_glance(rq->load);
	return own ? o26_max(load, now) : o26_min(load, now);
}

/* The result of a search. In the arena, so that the verifier need not follow the numbers. */
struct o26_search {
	u64 total, groups;	/* load of the domain and its CPUs */
	u64 own, own_cpus;	/* of the own group */
	u64 busiest, busiest_cpus, load, cpus;
	u64 queue;		/* load of the longest queue ... */
	u64 imbalance;
	s32 cpu;		/* ... and its CPU, -1 = none */
	s32 node;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct o26_search __arena search_t;

struct o26_search __arena_global searches[LAB_MAX_CPUS];

/* Within a node every CPU is a group of its own. */
LAB_PART int o26_search_cpus(rq_t *rq __arg_arena, search_t *s __arg_arena)
{
	rq_t *other;
	u64 load;
	u32 i;

	lab_use_arena();
	s->total = s->groups = s->queue = 0;
	s->cpu = -1;
	bpf_for(i, 0, lab_nr_cpus) {
		other = o26_rq(rq_at(i));
		if (!other->q.online || other->node != rq->node)
			continue;
		load = o26_load_of(other, other == rq);
		s->total += load;
		s->groups++;
		if (other == rq) {
			s->own = load;
		} else if (load > s->queue) {
			s->queue = load;
			s->cpu = i;
		}
	}
	s->imbalance = 0;
	if (s->cpu >= 0)
		s->imbalance = o26_imbalance(s->own, s->queue, s->total / s->groups, 1, 1);
	return 0;
}

/* Load per CPU of a node, into s->load and s->cpus. */
static __noinline int o26_node_load(rq_t *rq, search_t *s, s32 node)
{
	rq_t *other;
	u32 i;

	lab_use_arena();
	s->load = s->cpus = 0;
	bpf_for(i, 0, lab_nr_cpus) {
		other = o26_rq(rq_at(i));
		if (!other->q.online || other->node != node)
			continue;
		s->load += o26_load_of(other, node == rq->node);
		s->cpus++;
	}
	s->total += s->load;
	s->groups += s->cpus;
	if (s->cpus)
		s->load /= s->cpus;
	return 0;
}

/* Nodes are the groups; of the one with most load per CPU the longest queue. */
LAB_PART int o26_search_nodes(rq_t *rq __arg_arena, search_t *s __arg_arena)
{
	rq_t *other;
	u64 load;
	u32 i;

	lab_use_arena();
	s->total = s->groups = s->busiest = s->queue = s->imbalance = 0;
	s->cpu = -1;
	s->node = -1;
	bpf_for(i, 0, nr_nodes) {
		o26_node_load(rq, s, i);
		if (i == rq->node) {
			s->own = s->load;
			s->own_cpus = s->cpus;
		} else if (s->load > s->busiest) {
			s->busiest = s->load;
			s->busiest_cpus = s->cpus;
			s->node = i;
		}
	}
	if (s->node < 0)
		return 0;
	bpf_for(i, 0, lab_nr_cpus) {
		other = o26_rq(rq_at(i));
		if (!other->q.online || other->node != s->node)
			continue;
		load = o26_load_of(other, false);
		if (load > s->queue) {
			s->queue = load;
			s->cpu = i;
		}
	}
	s->imbalance = o26_imbalance(s->own, s->busiest, s->total / s->groups, s->own_cpus,
				     s->busiest_cpus);
	return 0;
}

/*
 * Moves the task that ran longest ago of the best list that has one that may go,
 * to the array of the same name; @curr runs there, NULL while that CPU is
 * choosing. @hot_ns: younger ones stay. True: one went.
 */
LAB_PART bool o26_pull(rq_t *from __arg_arena, rq_t *to __arg_arena, bool expired, u64 hot_ns,
		       task_t *curr __arg_arena)
{
	u64 now = scx_bpf_now();
	lab_prio_array_t *array;
	lab_list_t *list;
	lab_node_t *pos;
	task_t *t;
	s32 level;

	lab_use_arena();
	array = lab_arrays_at(&from->arrays, expired ? lab_arrays_expired(&from->arrays) :
						       lab_arrays_active(&from->arrays));
	for (level = lab_prio_first(array); level >= 0 && can_loop;
	     level = lab_prio_next(array, level + 1)) {
		list = lab_prio_list(array, level);
		for (pos = list->head.prev; pos != &list->head && can_loop; pos = pos->prev) {
			t = lab_entry(pos, struct o26_task, lab.node);
			consult(t);
			if (now < lab_glance(t->last_ran_ns) + hot_ns || !rq_may_pull(&t->q, &to->q))
				continue;
			t->to_array = 1 + (expired ? lab_arrays_expired(&to->arrays) :
						     lab_arrays_active(&to->arrays));
			rq_pull(&from->q, &to->q, &t->q);
			if (curr && t->level < curr->level)
				rq_mark(&to->q);
			return true;
		}
	}
	return false;
}

static __noinline bool rq_give(lab_rq_t *from, lab_rq_t *to)
{
	lab_use_arena();
	if (to->curr)
		consult((task_t *)to->curr);
	return o26_pull(o26_rq(from), o26_rq(to), true, 0, (task_t *)to->curr) ||
	       o26_pull(o26_rq(from), o26_rq(to), false, 0, (task_t *)to->curr);
}

/* Moves up to s->imbalance tasks, expired ones first. False: the policy has ended. */
static __noinline bool o26_move(rq_t *rq, search_t *s, u64 hot_ns, task_t *curr)
{
	rq_t *from;
	u32 i __maybe_unused;

	lab_use_arena();
	rq->moved = 0;
	from = o26_rq(rq_at(s->cpu));
	if (!rq_lock_second(&rq->q, &from->q))
		return false;
	if (from->q.nr > 1) {
		bpf_for(i, 0, 1024) {
			if (rq->moved >= s->imbalance || from->q.nr <= 1)
				break;
			if (!o26_pull(from, rq, true, hot_ns, curr) &&
			    !o26_pull(from, rq, false, hot_ns, curr))
				break;
			rq->moved++;
		}
	}
	lab_unlock(&from->q.lock);
	return true;
}

/*
 * load_balance() in one domain. The queue's lock is held and may be given up
 * meanwhile. False: the policy has ended, no lock is held.
 */
LAB_PART bool o26_balance(rq_t *rq __arg_arena, u32 level, task_t *curr __arg_arena)
{
	struct o26_domain __arena *d;
	search_t *s;
	u64 hot_ns;

	lab_use_arena();
	d = &rq->domains[level & 1];
	s = &searches[rq->q.cpu & (LAB_MAX_CPUS - 1)];
	if (level == DOMAIN_CPU)
		o26_search_cpus(rq, s);
	else
		o26_search_nodes(rq, s);
	rq->moved = 0;
	if (s->cpu < 0 || !s->imbalance) {
		d->interval_ms = o26_min(2 * d->interval_ms, level == DOMAIN_CPU ? 4 : 32);
		d->failed = 0;
		return true;
	}
	hot_ns = level == DOMAIN_CPU ? O26_HOT_NS : O26_HOT_NODE_NS;
	if (!o26_move(rq, s, d->failed > O26_NICE_TRIES ? 0 : hot_ns, curr))
		return false;
	if (rq->moved) {
		d->failed = 0;
		d->interval_ms = level == DOMAIN_CPU ? 1 : 8;
	} else {
		d->failed++;
	}
	return true;
}

/* rebalance_tick(): each domain in its time. False: the policy has ended, no lock is held. */
static __always_inline bool o26_rebalance(rq_t *rq, task_t *curr, u64 now)
{
	struct o26_domain __arena *d;
	u64 interval, passed;
	u32 level;

	for (level = 0; level < DOMAINS; level++) {
		if (level == DOMAIN_NODE && nr_nodes < 2)
			break;
		d = &rq->domains[level];
		interval = d->interval_ms * MS * (level == DOMAIN_CPU ? 64 : 32);
		passed = now - d->last_ns;
		if (passed < interval)
			continue;
		/* Since it was due: after a late tick the next one is not too early. */
		d->last_ns = passed < 2 * interval ? d->last_ns + interval : now;
		if (!o26_balance(rq, level, curr))
			return false;
	}
	return true;
}

static void o26_idle_tick(void)
{
	rq_t *rq;
	u32 i;

	bpf_for(i, 0, lab_nr_cpus) {
		rq = o26_rq(rq_at(i));
		if (!lab_read(rq->q.nr))
			lab_post(rq->load, lab_glance(rq->load) >> O26_IDLE_NS / O26_TICK_NS);
	}
	rq_wake_idle();
}

LAB_PERIODIC(o26_idle, o26_idle_tick, O26_IDLE_NS);

/*
 * The choice.
 */

static __always_inline task_t *o26_first(rq_t *rq, u32 array, task_t *prev)
{
	return (task_t *)rq_first(&rq->q, lab_arrays_at(&rq->arrays, array), 0, &prev->q);
}

/* False: the policy has ended, no lock is held. */
static __always_inline bool o26_choose(rq_t *rq, task_t *prev, task_t **chosen)
{
	bool idle_tick = lab_read(rq->q.idle_tick);
	task_t *t = NULL;

	if (!rq->q.nr) {
		if (!o26_balance(rq, DOMAIN_CPU, NULL))
			return false;
		if (!rq->q.nr && idle_tick && nr_nodes > 1 && !o26_balance(rq, DOMAIN_NODE, NULL))
			return false;
	}
	if (idle_tick)
		lab_write(rq->q.idle_tick, false);
	if (rq->q.nr) {
		o26_swap_if_empty(rq);
		t = o26_first(rq, lab_arrays_active(&rq->arrays), prev);
		if (!t)
			t = o26_first(rq, lab_arrays_expired(&rq->arrays), prev);
	}
	*chosen = t;
	return true;
}

/* Its wait since it woke counts as sleep, all of it or a part. */
static __always_inline void o26_first_run(rq_t *rq, task_t *t, u64 now)
{
	u64 waited = now > t->stamp ? now - t->stamp : 0;

	if (t->woken != NOT_WOKEN && !o26_is_rt(t)) {
		if (t->woken == WOKEN_BY_TASK)
			waited = waited * O26_WAIT_WEIGHT / 128;
		t->sleep_avg = o26_slept(t->sleep_avg, waited, t->q.nice, t->lab.mm);
		t->prio = o26_prio(t->q.nice, t->sleep_avg);
		o26_requeue(rq, t, t->array);
	}
	t->woken = NOT_WOKEN;
	t->stamp = now;
}

/*
 * Ops, in the order of a task's life.
 */

/*
 * An idle CPU of the same node as @cpu that the task may use, else @cpu (wake_idle);
 * the first threads of cores before the others.
 */
LAB_PART s32 o26_idle_near(task_t *t __arg_arena, s32 cpu)
{
	rq_t *rq, *other;
	u32 at, i;

	lab_use_arena();
	rq = o26_rq(rq_at(cpu));
	if (rq_cpu_free(&rq->q))
		return cpu;
	bpf_for(at, 0, lab_nr_online) {
		i = lab_cpu_spread(at);
		other = o26_rq(rq_at(i));
		if (other->node == rq->node && lab_allowed(&t->lab, i) &&
		    rq_cpu_free(&other->q) && !lab_read(other->q.nr))
			return i;
	}
	return cpu;
}

/* Its last CPU, or the waker's. */
static __always_inline s32 o26_wake_cpu(task_t *t, s32 last, s32 waker, bool sync, u64 now)
{
	rq_t *from = o26_rq(rq_at(last)), *to = o26_rq(rq_at(waker));
	u64 load, this_load;
	bool near;

	if (last == waker || !lab_allowed(&t->lab, waker))
		return last;
	load = o26_load_of(from, false);
	this_load = o26_load_of(to, true);
	if (sync)
		this_load = this_load > O26_LOAD ? this_load - O26_LOAD : 0;
	/* Not off an idle CPU to a busy one. */
	if (load < O26_LOAD / 2 && this_load > O26_LOAD / 2)
		return last;
	near = from->node == to->node;
	if (near && now >= t->last_ran_ns + O26_HOT_NS)
		return waker;
	if ((O26_IMBALANCE_PERCENT + (O26_IMBALANCE_PERCENT - 100) / 2) * this_load <= 100 * load)
		return waker;
	return last;
}

/* The waker of a task on this CPU. */
static __always_inline u32 o26_woken_by(void)
{
	struct task_struct *current_p = bpf_get_current_task_btf();

	return current_p && current_p->pid ? WOKEN_BY_TASK : WOKEN_BY_INTERRUPT;
}

/* fork(): parent and child share what is left of the slice. */
static __always_inline void o26_fork(task_t *t, task_t *parent, u64 now)
{
	unsigned long flags;
	rq_t *rq;

	lab_parent_set(&t->parent, &parent->lab);
	t->q.fresh = true;
	t->first_slice = true;
	t->sleep_avg = o26_child_sleep(parent->sleep_avg);
	t->prio = o26_prio(t->q.nice, t->sleep_avg);
	t->left_ns = parent->left_ns - parent->left_ns / 2;
	parent->left_ns /= 2;
	if (parent->left_ns >= O26_TICK_NS || o26_is_rt(parent))
		return;
	/* Less than a tick is left, and charged at once: the slice has ended. */
	lab_irq_save(flags);
	rq = o26_rq(rq_lock_home(&parent->q));
	if (rq) {
		if (parent->q.linked)
			o26_expire(rq, parent, now);
		else
			parent->left_ns = o26_full_slice(parent);
		rq_mark(&rq->q);
		lab_unlock(&rq->q.lock);
	}
	lab_irq_restore(flags);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o26_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_struct *current_p = bpf_get_current_task_btf();
	task_t *t = task_new(p), *parent = NULL;
	u64 now = scx_bpf_now();

	if (!t)
		return -ENOMEM;
	rq_new_task(&t->q, p);
	t->left_ns = o26_full_slice(t);
	t->prio = o26_prio(t->q.nice, 0);
	t->prio_nice = t->q.nice;
	t->stamp = now;
	if (args->fork && current_p && current_p->pid)
		parent = task_of(current_p);
	if (parent)
		o26_fork(t, parent, now);
	return 0;
}

s32 BPF_STRUCT_OPS(o26_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);
	s32 cpu;

	if (!t)
		return prev_cpu;
	rq_woken(&t->q, wake_flags);
	if (t->q.fresh)
		return prev_cpu;
	t->woken = o26_woken_by();
	consult(t);
	lab_task_refresh(&t->lab, p);
	cpu = o26_wake_cpu(t, prev_cpu, t->q.waker, t->q.sync, scx_bpf_now());
	return o26_idle_near(t, cpu);
}

/* Whether the task was forked by the one that runs here. */
static __always_inline bool o26_child_of_current(rq_t *rq, task_t *t)
{
	task_t *curr = (task_t *)rq->q.curr;

	return curr && lab_parent_is(&t->parent, &curr->lab);
}

/* A forked task with an address space of its own goes before its parent. */
static __always_inline bool o26_before_parent(rq_t *rq, task_t *t)
{
	task_t *parent = (task_t *)rq->q.curr;

	if (!o26_child_of_current(rq, t) || o26_is_rt(t))
		return false;
	consult(parent);
	if (o26_is_rt(parent) || !parent->q.linked || parent->q.home != rq->q.cpu ||
	    parent->lab.mm == t->lab.mm)
		return false;
	t->prio = parent->level;
	t->to_array = 1 + parent->array;
	t->before = &parent->lab.node;
	return true;
}

void BPF_STRUCT_OPS(o26_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id();
	task_t *t = task_of(p), *curr;
	bool mark = false, thread = false, sync;
	u64 now = scx_bpf_now();
	unsigned long flags;
	rq_t *rq;

	if (!t) {
		lab_no_context(p);
		return;
	}
	if (rq_enqueue_stays(&t->q, p, true, enq_flags))
		return;
	if (t->q.stayed)
		t->to_array = 1 + t->array;
	t->prio += t->q.nice - t->prio_nice;
	t->prio = t->prio < O26_RT_LEVELS ? O26_RT_LEVELS :
		  t->prio >= O26_LEVELS ? O26_LEVELS - 1 : t->prio;
	t->prio_nice = t->q.nice;
	sync = t->q.sync;
	t->q.sync = false;
	rq = o26_rq(rq_at(t->q.home));
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	if (t->q.asleep) {
		if (!t->q.fresh) {
			t->sleep_avg = o26_slept(t->sleep_avg, now > t->stamp ? now - t->stamp : 0,
						 t->q.nice, t->lab.mm);
			t->prio = o26_prio(t->q.nice, t->sleep_avg);
			/*
			 * No CPU was chosen for a single-CPU task. A task that was
			 * runnable before this policy has not been woken.
			 */
			if (t->woken == NOT_WOKEN && (enq_flags & SCX_ENQ_WAKEUP))
				t->woken = o26_woken_by();
		}
		t->stamp = now;
		t->q.asleep = false;
	}
	if (t->q.fresh) {
		mark = o26_before_parent(rq, t);
		/*
		 * A parent goes on beside a new thread of its own, whatever that one's
		 * priority. The original sees it by the flags of clone().
		 */
		thread = o26_child_of_current(rq, t) &&
			 lab_unaudited(rq->q.curr->lab.mm) == t->lab.mm;
	}
	t->q.fresh = false;
	rq_add(&rq->q, &t->q);
	t->q.takeable = true;
	curr = (task_t *)rq->q.curr;
	if (!curr) {
		mark = true;
	} else if (!mark) {
		consult(curr);
		mark = t->level < curr->level && !(sync && t->q.home == this_cpu) && !thread;
	}
	if (mark)
		rq_mark(&rq->q);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(o26_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_dequeue(&t->q, deq_flags);
}

/* schedule() */
void BPF_STRUCT_OPS(o26_dispatch, s32 cpu, struct task_struct *prev_p)
{
	task_t *prev = NULL, *next = NULL;
	struct task_struct *p = NULL;
	u64 now = scx_bpf_now();
	unsigned long flags;
	rq_t *rq;

	lab_use_arena();
	rq = o26_rq(rq_at(cpu));
	if (!rq_previous(&rq->q, prev_p, (lab_rq_task_t **)&prev))
		return;
	if (prev) {
		o26_charge(prev, now);
		o26_account(prev, now);
	}
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	rq_begin_choice(&rq->q);
	if (!rq_choose(next, prev, p, cpu, o26_choose(rq, prev, &next))) {
		lab_irq_restore(flags);
		return;
	}
	if (p)
		o26_first_run(rq, next, now);
	rq_end_choice(&rq->q, &next->q, p, prev_p, prev);
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

void BPF_STRUCT_OPS(o26_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	rq_running(&t->q, p);
	t->stamp = t->q.started_ns;
}

/* scheduler_tick() of the running task, `before_ns` of whose slice were left at the last one. */
static __always_inline void o26_tick_task(rq_t *rq, task_t *t, struct task_struct *p, u64 now,
					  u64 before_ns)
{
	u64 granularity, full;

	if (o26_is_rt(t)) {
		if (t->q.policy != LAB_SCHED_RR || t->left_ns)
			return;
		t->left_ns = o26_full_slice(t);
		t->first_slice = false;
		o26_requeue(rq, t, t->array);
		rq_mark_current(&rq->q, p);
		return;
	}
	if (t->array != lab_arrays_active(&rq->arrays)) {
		rq_mark_current(&rq->q, p);
		return;
	}
	if (!t->left_ns) {
		o26_expire(rq, t, now);
		rq_mark_current(&rq->q, p);
		return;
	}
	if (!o26_interactive(t->q.nice, t->prio))
		return;
	granularity = o26_granularity_ns(o26_bonus(t->sleep_avg), lab_nr_online);
	full = o26_full_slice(t);
	if (before_ns > full)
		before_ns = full;
	if (t->left_ns < granularity || t->left_ns > full ||
	    (full - before_ns) / granularity == (full - t->left_ns) / granularity)
		return;
	o26_requeue(rq, t, t->array);
	rq_mark_current(&rq->q, p);
}

void BPF_STRUCT_OPS(o26_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now(), before_ns;
	task_t *t = task_of(p);
	unsigned long flags;
	rq_t *rq;

	if (!t)
		return;
	rq = o26_rq(rq_this());
	before_ns = t->left_ns;
	o26_charge(t, now);
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return;
	if (t->q.linked && t->q.home == rq->q.cpu)
		o26_tick_task(rq, t, p, now, before_ns);
	lab_post(rq->load, o26_new_load(lab_glance(rq->load), rq->q.nr));
	if (!o26_rebalance(rq, t, now)) {
		lab_irq_restore(flags);
		return;
	}
	lab_unlock_irqrestore(&rq->q.lock, flags);
}

/* sched_yield(): behind all that have time left; a real-time task behind its equals. */
bool BPF_STRUCT_OPS(o26_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);
	unsigned long flags;
	rq_t *rq;

	if (!t || to)
		return false;
	rq = o26_rq(rq_this());
	if (!lab_lock_irqsave(&rq->q.lock, flags))
		return false;
	if (t->q.linked && t->q.home == rq->q.cpu)
		o26_requeue(rq, t, o26_is_rt(t) ? t->array : lab_arrays_expired(&rq->arrays));
	rq_mark_current(&rq->q, from);
	lab_unlock_irqrestore(&rq->q.lock, flags);
	return true;
}

void BPF_STRUCT_OPS(o26_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(o26_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(o26_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	o26_charge(t, scx_bpf_now());
	o26_account(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(o26_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		rq_quiescent(&t->q, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(o26_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		rq_forget(&t->q);
}

/* exit(): what is left of its first slice goes back; a parent answers for a busy child. */
void BPF_STRUCT_OPS(o26_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	rq_forget(&t->q);
	parent = task_parent(&t->parent);
	if (parent) {
		/*
		 * In 2.6 a task waits for it on its own CPU, whose cache has the line.
		 * Model: without the lock of its queue. Of two changes at once one is lost:
		 * the rest of a slice, or one child's part in an average.
		 */
		lab_unaudited_block();
		if (t->first_slice)
			lab_racy_set(parent->left_ns, o26_min(parent->left_ns + t->left_ns,
							      o26_full_slice(t)));
		lab_racy_set(parent->sleep_avg, o26_reaped(parent->sleep_avg, t->sleep_avg));
	}
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(o26_init)
{
	int error = lab_init();
	rq_t *rq;
	u32 cpu;

	if (!error)
		error = rq_init(sizeof(struct o26_rq));
	if (error)
		return error;
	lab_cores_init();
	nr_nodes = scx_bpf_nr_node_ids();
	bpf_for(cpu, 0, lab_nr_cpus) {
		rq = o26_rq(rq_at(cpu));
		rq->load = 0;
		rq->expired_ns = 0;
		rq->best_expired = O26_LEVELS;
		rq->node = scx_bpf_cpu_node(cpu);
		rq->domains[DOMAIN_CPU].last_ns = rq->domains[DOMAIN_NODE].last_ns = 0;
		rq->domains[DOMAIN_CPU].failed = rq->domains[DOMAIN_NODE].failed = 0;
		rq->domains[DOMAIN_CPU].interval_ms = 1;
		rq->domains[DOMAIN_NODE].interval_ms = 8;
		if (!lab_arrays_init(&rq->arrays, rq->lists, O26_LEVELS))
			return -EINVAL;
	}
	return o26_idle_start();
}

void BPF_STRUCT_OPS(o26_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(o1_26_ops,
	       .init_task		= (void *)o26_init_task,
	       .select_cpu		= (void *)o26_select_cpu,
	       .enqueue			= (void *)o26_enqueue,
	       .dequeue			= (void *)o26_dequeue,
	       .dispatch		= (void *)o26_dispatch,
	       .running			= (void *)o26_running,
	       .tick			= (void *)o26_tick,
	       .yield			= (void *)o26_yield,
	       .set_cpumask		= (void *)o26_set_cpumask,
	       .cpu_release		= (void *)o26_cpu_release,
	       .stopping		= (void *)o26_stopping,
	       .quiescent		= (void *)o26_quiescent,
	       .disable			= (void *)o26_disable,
	       .exit_task		= (void *)o26_exit_task,
	       .init			= (void *)o26_init,
	       .exit			= (void *)o26_exit,
	       .name			= "o1_26");
