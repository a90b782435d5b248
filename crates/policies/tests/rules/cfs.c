/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/cfs.md, one test a rule. `cfs NAME` runs one. */
#define POLICY "../../../../policies/cfs.bpf.c"
#define OPS cfs_ops
#include "script.h"
#include "fair_script.h"

#define MS	1000000ll
#define US	1000ll

static void t1_factor(void)
{
	static const u32 cpus[] = { 1, 2, 3, 4, 7, 8, 64 };
	static const u32 factor[] = { 1, 2, 2, 3, 3, 4, 4 };
	u32 i;

	script_start(1);
	for (i = 0; i < 7; i++) {
		cfs_times(cpus[i]);
		EQUAL(cfs_latency, factor[i] * 6 * MS);
		EQUAL(cfs_min_granularity, factor[i] * 750 * US);
		EQUAL(cfs_wakeup_granularity, factor[i] * 1 * MS);
	}
}

static void t2_period(void)
{
	script_start(8);
	EQUAL(cfs_slice(8, 1024, 8 * 1024, false), 3 * MS);
	EQUAL(cfs_period(10), 30 * MS);
	EQUAL(cfs_slice(10, 1024, 10 * 1024, false), 3 * MS);
	EQUAL(cfs_period(1), 24 * MS);
}

static void t3_slices(void)
{
	u64 two = 1024 + 335, three = 3121 + 1024 + 335;

	script_start(1);
	EQUAL(cfs_slice(2, 1024, two, false) / US, 4520);	/* 4.521 ms, rounded */
	EQUAL(cfs_slice(2, 335, two, false) / US, 1479);
	EQUAL(cfs_share(3, 3121, three) / US, 4179);	/* 4.180 ms, rounded */
	EQUAL(cfs_share(3, 1024, three) / US, 1371);
	EQUAL(cfs_share(3, 335, three) / US, 448);	/* 0.449 ms, rounded */
	EQUAL(cfs_slice(3, 335, three, false), 750 * US);
}

static void t4_virtual_time(void)
{
	script_start(1);
	EQUAL(fair_virtual(MS, fair_weight(0, 0)), MS);
	EQUAL(fair_virtual(MS, fair_weight(5, 0)) / 100, 30567);	/* 3.0567 ms */
	EQUAL((fair_virtual(MS, fair_weight(-5, 0)) + 50) / 100, 3281);
	EQUAL((fair_virtual(MS, fair_weight(19, 0)) + 500) / US, 68267);
	EQUAL(fair_weight(-20, 0), 88761);
	EQUAL(fair_weight(19, 0), 15);
	EQUAL(fair_weight(0, LAB_SCHED_IDLE), 3);
}

static void t5_sleeper(void)
{
	script_start(1);
	EQUAL(cfs_woken(50 * MS, 100 * MS, false), 97 * MS);
	EQUAL(cfs_woken(99 * MS, 100 * MS, false), 99 * MS);
	EQUAL(cfs_woken(50 * MS, 100 * MS, true), 100 * MS - 375 * US);
	gentle = false;
	EQUAL(cfs_woken(50 * MS, 100 * MS, false), 94 * MS);
}

/* The idle policy's least turn, which the number of CPUs does not lengthen, counts beside others only. */
static void idle_policy_least_turn(void)
{
	static const u32 cpus[] = { 1, 2, 4, 8 };
	u32 i;

	for (i = 0; i < 4; i++) {
		struct task_struct *p;

		script = (struct script){ };
		lab_online[0] = 0;
		script_start(cpus[i]);
		EQUAL(cfs_slice(2, 3, 1024 + 3, true), 750 * US);
		EQUAL(cfs_slice(2, 3, 3 + 3, false), 3 * MS * fair_factor(cpus[i]));
		CHECK(cfs_all_idle(2, 6) && !cfs_all_idle(2, 1027) && !cfs_all_idle(0, 0));
		running_on(0, 0, 0);
		p = script_fork(NULL, 0, 1);
		p->policy = LAB_SCHED_IDLE;
		p->__lab_cpu = 0;
		wake(p, 0);
		/* Its debit at the start: that turn in its virtual time. */
		EQUAL(ctx(p)->vruntime - rqs[0].min_v, 256 * MS);
	}
}

static void t6_wakeup_preemption(void)
{
	script_start(1);
	EQUAL(cfs_ahead(10 * MS, 89 * MS / 10, 1024), 1);
	EQUAL(cfs_ahead(10 * MS, 91 * MS / 10, 1024), 0);
	EQUAL(cfs_ahead(10 * MS, 10 * MS, 1024), -1);
	EQUAL(cfs_ahead(10 * MS, 10 * MS - 3056 * US, 335), 0);
	EQUAL(cfs_ahead(10 * MS, 10 * MS - 3058 * US, 335), 1);
}

/* The same by events: the CPU is interrupted or not. */
static void wakeup_preempts(void)
{
	struct task_struct *curr, *p;

	script_start(1);
	curr = running_on(0, 0, 100 * MS);
	p = sleeping(0, 0, 99 * MS + 100 * US);
	wake(p, 0);
	EQUAL(script.kicks[0], 0);
	p = sleeping(0, 0, 98 * MS + 900 * US);
	wake(p, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	/* It is the hint `next`, but its time is also the least. */
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	CHECK(curr);
}

static void least_virtual_time_runs(void)
{
	struct task_struct *a, *b, *c;

	script_start(1);
	a = waiting(0, 0, 103 * MS);
	b = waiting(0, 0, 101 * MS);
	c = waiting(0, 0, 102 * MS);
	CHECK(script_schedule(0) == b);
	script_block(0);
	CHECK(script_schedule(0) == c);
	/* Still runnable, it goes on until another one's time is less. */
	need_resched(0);
	CHECK(script_schedule(0) == c);
	script.now_ns += 2 * MS;
	need_resched(0);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(c)->vruntime, 104 * MS);
}

/* A turn ends when the slice is used up, or when the lead exceeds it; not before the least length. */
static void tick_ends_a_turn(void)
{
	struct task_struct *a;

	script_start(1);
	a = running_on(0, 0, 100 * MS);
	/* So far behind that the lead does not end the turn; a slice of two is 3 ms. */
	waiting(0, 0, 103 * MS);
	script.now_ns += 3 * MS;
	script_tick(0);
	CHECK(a->scx.slice);
	script.now_ns += 1;
	script_tick(0);
	CHECK(!a->scx.slice);
}

static void tick_ends_a_lead(void)
{
	struct task_struct *a, *b;

	script_start(1);
	b = waiting(0, 0, 100 * MS);
	a = running_on(0, 0, 105 * MS);
	script.now_ns += 749 * US;
	script_tick(0);
	CHECK(a->scx.slice);
	script.now_ns += 1 * US;
	script_tick(0);
	CHECK(!a->scx.slice);
	CHECK(script_schedule(0) == b);
}

static void tick_alone(void)
{
	struct task_struct *a;

	script_start(1);
	a = running_on(0, 0, 100 * MS);
	script.now_ns += 1000 * MS;
	script_tick(0);
	CHECK(a->scx.slice);
}

/* A child starts a slice of its own behind the clock, or where its parent is. */
static void fork_(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	parent = running_on(0, 0, 100 * MS);
	child = script_fork(parent, 0, 1);
	wake(child, 0);
	EQUAL(ctx(child)->vruntime, 103 * MS);
	parent = running_on(0, 0, 110 * MS);
	rqs[0].min_v = 100 * MS;
	child = script_fork(parent, 0, 1);
	wake(child, 0);
	EQUAL(ctx(child)->vruntime, 110 * MS);
}

static void fork_child_first(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	child_runs_first = true;
	parent = running_on(0, 0, 100 * MS);
	child = script_fork(parent, 0, 1);
	wake(child, 0);
	EQUAL(ctx(child)->vruntime, 100 * MS);
	EQUAL(ctx(parent)->vruntime, 103 * MS);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_preempt(0);
	CHECK(script_schedule(0) == child);
}

/* A yielding task lets the next one run, but loses no virtual time; alone it goes on. */
static void yield_(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_on(0, 0, 100 * MS);
	script_yield(0);
	CHECK(a->scx.slice);
	b = waiting(0, 0, 100 * MS + 500 * US);
	script_yield(0);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->vruntime, 100 * MS);
	/* Until that becomes unfair by more than the wakeup granularity. */
	script.now_ns += 400 * US;
	need_resched(0);
	CHECK(script_schedule(0) == b);
	script.now_ns += 101 * US;
	need_resched(0);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(a)->vruntime, 100 * MS);
}

/* A batch task's yield is one like any other. */
static void yield_batch(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = running_on(0, 0, 100 * MS);
	a->policy = ctx(a)->policy = LAB_SCHED_BATCH;
	b = waiting(0, 0, 100 * MS + 500 * US);
	script_yield(0);
	CHECK(script_schedule(0) == b);
}

/* Idle-policy tasks make way for others; they and batch tasks preempt no task. */
static void policies(void)
{
	struct task_struct *a, *p;

	script_start(1);
	a = running_on(0, 0, 100 * MS);
	p = sleeping(0, 0, 90 * MS);
	p->policy = LAB_SCHED_BATCH;
	wake(p, 0);
	EQUAL(script.kicks[0], 0);
	p = sleeping(0, 0, 90 * MS);
	p->policy = LAB_SCHED_IDLE;
	wake(p, 0);
	EQUAL(script.kicks[0], 0);
	a->policy = ctx(a)->policy = LAB_SCHED_IDLE;
	p = sleeping(0, 0, 200 * MS);
	wake(p, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

/* A task that changes queues keeps its distance from the clock. */
static void moved(void)
{
	struct task_struct *p;

	script_start(2);
	rqs[0].min_v = 1000 * MS;
	rqs[1].min_v = 50 * MS;
	running_on(1, 0, 50 * MS);
	p = sleeping(0, 0, 1004 * MS);
	p->__lab_cpu = 1;
	ctx(p)->asleep = false;
	script_of(p)->runnable = true;
	script_enqueue(p, 0);
	EQUAL(ctx(p)->vruntime, 54 * MS);
	EQUAL(ctx(p)->home, 1);
}

/*
 * A task that is taken from its CPU while it runs may be interrupted by a wakeup on the way:
 * the hint `last` is then a task that waits in another queue, and must not be chosen here.
 */
static void hint_of_one_who_went_elsewhere(void)
{
	struct task_struct *gone, *first, *woken;

	script_start(2);
	min_granularity_us = latency_us;
	cfs_times(2);
	running_on(1, 0, 100 * MS);
	gone = running_on(0, 0, 100 * MS);
	first = waiting(0, 0, 100 * MS);
	/* sched_setaffinity(): it is dequeued here ... */
	OPS.stopping(gone, true);
	OPS.quiescent(gone, 0);
	script.curr[0] = NULL;
	/* ... another wakes here ... */
	woken = sleeping(0, 0, 90 * MS);
	wake(woken, 0);
	CHECK(rqs[0].last == ctx(gone));
	CHECK(script_schedule(0) == woken);
	/* ... and it is enqueued there. */
	gone->__lab_cpu = 1;
	script_enqueue(gone, 0);
	EQUAL(rqs[1].nr, 1);
	script.cpu = 0;
	script_block(0);
	CHECK(script_schedule(0) == first);
	EQUAL(rqs[0].nr, 0);
	EQUAL(rqs[1].nr, 1);
	CHECK(ctx(gone)->queued);
}

/* The kernel runs a task that was put into a CPU's local queue; the policy did not choose it. */
static void run_by_the_local_queue(struct task_struct *p, s32 cpu)
{
	p->__lab_cpu = cpu;
	script.curr[cpu] = p;
	script.cpu = cpu;
	script_of(p)->runnable = true;
	OPS.running(p);
}

/* So does a task that comes to a CPU by its local queue, without a choice; and is awake then. */
static void moved_by_the_local_queue(void)
{
	struct task_struct *p;

	script_start(2);
	rqs[0].min_v = 1000 * MS;
	rqs[1].min_v = 50 * MS;
	p = sleeping(0, 0, 1004 * MS);
	ctx(p)->asleep = false;
	run_by_the_local_queue(p, 1);
	EQUAL(ctx(p)->vruntime, 54 * MS);
	EQUAL(ctx(p)->home, 1);
	CHECK(rqs[1].curr == ctx(p));
	/* Exiting, it sleeps and comes back by the local queue once more. */
	script_block(1);
	CHECK(!rqs[1].curr);
	rqs[0].min_v = 2000 * MS;
	run_by_the_local_queue(p, 0);
	EQUAL(ctx(p)->vruntime, 2000 * MS);
	CHECK(!ctx(p)->asleep);
	script_block(0);
	CHECK(!rqs[0].curr);
}

/*
 * The bound of fairness: of tasks that always want to run, no two virtual times
 * are ever farther apart than a tick and a slice of the heavier in virtual time.
 */
static void fairness_bound(void)
{
	static const s32 nices[] = { 0, 0, -5, 5, 10 };
	struct task_struct *p[5];
	u64 ran[5] = {}, load = 0, total = 0;
	u32 i, step;

	script_start(1);
	for (i = 0; i < 5; i++) {
		p[i] = waiting(0, nices[i], 0);
		load += ctx(p[i])->weight;
	}
	script_schedule(0);
	for (step = 0; step < 100000; step++) {
		s64 least, most, bound = 0;

		for (i = 0; i < 5; i++) {
			if (script.curr[0] == p[i])
				ran[i] += 1 * MS;
		}
		total += 1 * MS;
		script.now_ns += 1 * MS;
		script_tick(0);
		script_schedule(0);
		least = most = ctx(p[0])->vruntime;
		for (i = 0; i < 5; i++) {
			s64 v = ctx(p[i])->vruntime, turn;

			least = v < least ? v : least;
			most = v > most ? v : most;
			turn = fair_virtual(cfs_slice(5, ctx(p[i])->weight, load, false) + 1 * MS,
					    ctx(p[i])->weight);
			bound = turn > bound ? turn : bound;
		}
		CHECK(most - least <= bound);
	}
	/* And so each has its share, to 1 in 1000 of the whole. */
	for (i = 0; i < 5; i++) {
		s64 due = total * ctx(p[i])->weight / load;

		CHECK(due - (s64)ran[i] < (s64)total / 1000);
		CHECK((s64)ran[i] - due < (s64)total / 1000);
	}
}

/* A CPU without work takes the task that has waited for longest in the busiest queue. */
static void idle_takes(void)
{
	struct task_struct *a, *p;

	script_start(2);
	running_on(0, 0, 100 * MS);
	a = waiting(0, 0, 100 * MS);
	waiting(0, 0, 90 * MS);
	p = script_schedule(1);
	CHECK(p == a);
	EQUAL(rqs[0].nr, 1);
	EQUAL(ctx(a)->home, 1);
	/* But not one that may not go there. */
	script_block(1);
	forbid(1);
	CHECK(!script_schedule(1));
	EQUAL(rqs[0].nr, 1);
}

/* ... unless its times of idleness are too short to be worth it. */
static void idle_is_short(void)
{
	script_start(2);
	running_on(0, 0, 100 * MS);
	waiting(0, 0, 100 * MS);
	rqs[1].idle_avg_ns = 100 * US;
	CHECK(!script_schedule(1));
	/* A busy CPU asks for it all the same. */
	rqs[1].asked = true;
	CHECK(script_schedule(1));
}

/* A busy CPU levels its queue with the busiest one. */
static void balance(void)
{
	u32 i;

	script_start(2);
	running_on(0, 0, 100 * MS);
	running_on(1, 0, 100 * MS);
	for (i = 0; i < 4; i++)
		waiting(0, 0, 100 * MS);
	script.now_ns += 1000 * MS;
	script_tick(1);
	EQUAL(rqs[0].nr, 2);
	EQUAL(rqs[1].nr, 2);
	/* Level: nothing more to do. */
	script.now_ns += 1000 * MS;
	script_tick(0);
	EQUAL(rqs[0].nr, 2);
}

/*
 * CPUs that are offline are in no group: one that never booted looks like a thread
 * of CPU 0's core, and the first CPU of a node balances it. Nor do they count.
 */
static void offline_cpus(void)
{
	lab_place_t *place;
	s32 cpu;
	u32 i;

	script.node_cpus = 4;
	script.core_cpus = 2;
	script.offline = 1 << 4;
	script_start(8);
	EQUAL(cfs_latency, 3 * 6 * MS);
	for (cpu = 0; cpu < 8; cpu++) {
		place = lab_place_of(cpu);
		EQUAL(place->end[LAB_LEVEL_MACHINE], 7);
		EQUAL(place->end[LAB_LEVEL_CORE] - place->begin[LAB_LEVEL_CORE],
		      cpu == 4 ? 0 : cpu == 5 ? 1 : 2);
		if (cpu == 4)
			continue;
		EQUAL(place->at, cpu < 4 ? cpu : cpu - 1);
		EQUAL(lab_cpu_at(place->at), cpu);
		EQUAL(place->end[LAB_LEVEL_NODE] - place->begin[LAB_LEVEL_NODE], cpu < 4 ? 4 : 3);
		running_on(cpu, 0, 100 * MS);
		for (i = 0; cpu < 4 && i < 4; i++)
			waiting(cpu, 0, 100 * MS);
	}
	script.now_ns += 1000 * MS;
	script_tick(5);
	EQUAL(rqs[5].nr, 2);
	/* A task that last ran on one that has gone since: all are found idle, and no task is taken for one. */
	CHECK(fair_idle_near(script.curr[0], 4, LAB_LEVEL_MACHINE, true) == -1);
	rqs[6].curr = NULL;
	EQUAL(fair_idle_near(script.curr[0], 4, LAB_LEVEL_MACHINE, true), 6);
}

/* The waker's CPU if the waker is about to sleep and alone; else the previous one if idle. */
static void placement(void)
{
	struct task_struct *p;

	script_start(4);
	running_on(1, 0, 100 * MS);
	running_on(3, 0, 100 * MS);
	p = sleeping(0, 0, 100 * MS);
	script.cpu = 1;
	EQUAL(OPS.select_cpu(p, 0, 0), 0);
	running_on(0, 0, 100 * MS);
	/* Neither is idle: an idle one that shares the cache. */
	EQUAL(OPS.select_cpu(p, 0, 0), 2);
	running_on(2, 0, 100 * MS);
	script.cpu = 1;
	EQUAL(OPS.select_cpu(p, 0, 0), 0);
	EQUAL(OPS.select_cpu(p, 0, SCX_WAKE_SYNC), 1);
	waiting(0, 0, 100 * MS);
	EQUAL(OPS.select_cpu(p, 0, 0), 1);
}

static void fork_goes_to_the_idlest(void)
{
	struct task_struct *parent, *child;

	script_start(4);
	parent = running_on(0, 0, 100 * MS);
	waiting(1, 0, 100 * MS);
	running_on(2, 0, 100 * MS);
	child = script_fork(parent, 0, 1);
	script.cpu = 0;
	EQUAL(OPS.select_cpu(child, 0, SCX_WAKE_FORK), 3);
}

/* Two cores of two threads; tasks run on both of the first. */
static struct task_struct *share_a_core(void)
{
	struct task_struct *p;

	script.core_cpus = 2;
	script_start(4);
	p = running_on(0, 0, 100 * MS);
	running_on(1, 0, 100 * MS);
	return p;
}

/* Ticks of CPU 0 until its task is asked to go; 100: it is not. A look at four CPUs comes every 4 ms. */
static u32 ticks_until_pushed(struct task_struct *p)
{
	u32 i;

	for (i = 1; i < 100; i++) {
		script.now_ns += 4 * MS;
		script_tick(0);
		if (!p->scx.slice)
			break;
	}
	return i;
}

static void active_balance(void)
{
	struct task_struct *p = share_a_core();

	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
	script_calm();
	CHECK(!script_schedule(0));
	CHECK(!rqs[0].curr);
	EQUAL(rqs[0].push, 0);
	EQUAL(rqs[2].nr + rqs[3].nr, 1);
	CHECK(script.kicks[ctx(p)->home] == SCX_KICK_IDLE);
	CHECK(script_schedule(ctx(p)->home) == p);
	/* The one that is left has the core to itself. */
	script.now_ns += 100 * MS;
	script.cpu = 1;
	EQUAL(fair_push_target(script.curr[1], 1, script.now_ns), -1);
	EQUAL(rqs[1].crowded[LAB_LEVEL_LLC], 0);
}

static void active_balance_one_of_two(void)
{
	struct task_struct *p = share_a_core();
	u32 i;

	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
	/* It has not gone yet, but the other one knows. */
	for (i = 0; i < 10; i++) {
		script.now_ns += 4 * MS;
		script_tick(1);
	}
	CHECK(script.curr[1]->scx.slice);
}

static void active_balance_by_mask(void)
{
	struct task_struct *p = share_a_core();

	script_of(p)->mask.bits[0] = 0xb;
	p->nr_cpus_allowed = 3;
	OPS.set_cpumask(p, p->cpus_ptr);
	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
	CHECK(!script_schedule(0));
	EQUAL(ctx(p)->home, 3);
	CHECK(script_schedule(3) == p);
}

static void active_balance_not_allowed(void)
{
	struct task_struct *p = share_a_core();

	script_of(p)->mask.bits[0] = 3;
	p->nr_cpus_allowed = 2;
	OPS.set_cpumask(p, p->cpus_ptr);
	EQUAL(ticks_until_pushed(p), 100);
}

static void active_balance_no_idle_core(void)
{
	struct task_struct *p = share_a_core();

	running_on(3, 0, 100 * MS);
	EQUAL(ticks_until_pushed(p), 100);
}

static void active_balance_own_core(void)
{
	struct task_struct *p;

	script.core_cpus = 2;
	script_start(4);
	p = running_on(0, 0, 100 * MS);
	EQUAL(ticks_until_pushed(p), 100);
}

/* It must be so every time: a core that is busy for a moment begins the count again. */
static void active_balance_in_a_row(void)
{
	struct task_struct *p = share_a_core(), *other;

	script.now_ns += 4 * MS;
	script_tick(0);
	EQUAL(rqs[0].crowded[LAB_LEVEL_LLC], 1);
	other = running_on(2, 0, 100 * MS);
	script.now_ns += 4 * MS;
	script_tick(0);
	EQUAL(rqs[0].crowded[LAB_LEVEL_LLC], 0);
	script.cpu = 2;
	script_of(other)->runnable = false;
	other->scx.flags &= ~SCX_TASK_QUEUED;
	OPS.stopping(other, false);
	OPS.quiescent(other, SCX_DEQ_SLEEP);
	script.curr[2] = NULL;
	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
}

/* Another task runs there by now: the task goes on where it was. */
static void active_balance_too_late(void)
{
	struct task_struct *p = share_a_core();

	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
	running_on(2, 0, 100 * MS);
	running_on(3, 0, 100 * MS);
	CHECK(!script_schedule(0));
	EQUAL(ctx(p)->home, 0);
	CHECK(script_schedule(0) == p);
}

/* Another task waits for the CPU by now: it gets it, and the balancer has one to move. */
static void active_balance_not_alone(void)
{
	struct task_struct *p = share_a_core(), *next;

	EQUAL(ticks_until_pushed(p), FAIR_PUSH_LOOKS_LLC);
	next = waiting(0, 0, 1 * MS);
	CHECK(script_schedule(0) == next);
	EQUAL(ctx(p)->home, 0);
	EQUAL(ctx(p)->to, 0);
	CHECK(ctx(p)->queued);
}

static void attribute_change(void)
{
	struct task_struct *p;

	script_start(1);
	running_on(0, 0, 100 * MS);
	p = waiting(0, 0, 101 * MS);
	script_change_begin(p);
	EQUAL(rqs[0].nr, 0);
	EQUAL(rqs[0].load, 0);
	p->static_prio = 125;
	OPS.set_weight(p, 36);
	script_enqueue(p, 0);
	EQUAL(rqs[0].load, 335);
	EQUAL(ctx(p)->vruntime, 101 * MS);
}

static void idle_leaves_warm_caches(void)
{
	check_warm_caches();
}

static void balance_interval(void)
{
	check_balance_interval();
}

static void bound_queue(void)
{
	check_bound_queue();
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(latency_us, 1000000, script_start(8));
	AT_MOST(min_granularity_us, 1000000, script_start(8));
	AT_MOST(wakeup_granularity_us, 1000000, script_start(8));
	/* An allowed value fits beside many of the greatest weight. */
	min_granularity_us = 1000000;
	cfs_times(8);
	EQUAL(cfs_share(1000, fair_weight(-20, 0), fair_weight(-20, 0)), 1000ull * 4000000000);
}

TESTS(TEST(t1_factor), TEST(t2_period), TEST(t3_slices), TEST(t4_virtual_time), TEST(t5_sleeper), TEST(idle_policy_least_turn),
      TEST(t6_wakeup_preemption), TEST(wakeup_preempts), TEST(least_virtual_time_runs),
      TEST(tick_ends_a_turn), TEST(tick_ends_a_lead), TEST(tick_alone), TEST(fork_),
      TEST(fork_child_first), TEST(yield_), TEST(yield_batch), TEST(policies), TEST(moved),
      TEST(hint_of_one_who_went_elsewhere), TEST(moved_by_the_local_queue), TEST(fairness_bound),
      TEST(idle_takes), TEST(idle_is_short), TEST(idle_leaves_warm_caches),
      TEST(balance_interval), TEST(bound_queue), TEST(balance), TEST(offline_cpus),
      TEST(placement),
      TEST(fork_goes_to_the_idlest), TEST(active_balance), TEST(active_balance_one_of_two),
      TEST(active_balance_by_mask), TEST(active_balance_not_allowed),
      TEST(active_balance_no_idle_core), TEST(active_balance_own_core),
      TEST(active_balance_in_a_row), TEST(active_balance_too_late), TEST(active_balance_not_alone),
      TEST(attribute_change), TEST(option_ranges))
