/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/feature.md, one test a rule. `feature NAME` runs one. */
#define POLICY "../../../../policies/feature.bpf.c"
#define OPS feature_ops
#include "script.h"

static u32 script_random;

static u32 random_number(struct lab_host *h) { return script_random; }

/* Two threads a core; script.node_cpus a node and a cache. */
static u32 threads_of_a_core(struct lab_host *h, s32 cpu, u32 level)
{
	return level ? script_cpu_node(h, cpu) : cpu / 2;
}

/* Everything off that does something by itself. */
static void plain(void)
{
	election = ELECTION_FIFO;
	slice = SLICE_INFINITE;
	metric = METRIC_NR_RUN;
	periodic = PERIODIC_NEVER;
	idle = SWITCH_OFF;
	unblock = SWITCH_OFF;
	executor = EXECUTOR_ALL;
	imbalance = IMBALANCE_DIFFERS;
	placement = PLACEMENT_ALL;
}

static void start_without(u64 offline, u32 cpus, u32 node_cpus)
{
	/* A test may start more than once. */
	script = (struct script){ .offline = offline };
	lab_online[0] = 0;
	script_prepare(cpus);
	script.node_cpus = node_cpus;
	script.host.cpu_place = threads_of_a_core;
	script.host.random = random_number;
	script.now_ns = 1000 * MS;
	EQUAL(OPS.init(), 0);
}

static void start(u32 cpus, u32 node_cpus)
{
	start_without(0, cpus, node_cpus);
}

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

static rq_t *queue(s32 cpu)
{
	return feature_rq(cpu);
}

/* A thread that sleeps; its last CPU is `cpu`, and its runtime is of that CPU's clock. */
static struct task_struct *thread(s32 cpu, s64 runtime)
{
	struct task_struct *p = script_fork(NULL, 0, 1);
	task_t *t = ctx(p);

	p->__lab_cpu = cpu;
	t->lab.cpu = t->q.home = t->clock = cpu;
	t->runtime = runtime;
	return p;
}

static struct task_struct *waiting(s32 cpu, s64 runtime)
{
	struct task_struct *p = thread(cpu, runtime);
	enum feature_switch was = unblock;

	unblock = SWITCH_OFF;
	script_wake(p, cpu, 0);
	unblock = was;
	EQUAL(ctx(p)->q.home, cpu);
	return p;
}

static struct task_struct *running_on(s32 cpu)
{
	struct task_struct *p = waiting(cpu, 0);

	CHECK(!script.curr[cpu]);
	CHECK(script_schedule(cpu) == p);
	script_calm();
	return p;
}

static void loads(const u32 *nr, u32 cpus)
{
	u32 cpu, i;

	for (cpu = 0; cpu < cpus; cpu++)
		for (i = 0; i < nr[cpu]; i++)
			waiting(cpu, 0);
}

static void are(const u32 *nr, u32 cpus)
{
	u32 cpu;

	for (cpu = 0; cpu < cpus; cpu++)
		EQUAL(queue(cpu)->q.nr, nr[cpu]);
}

static void slices(void)
{
	slice = SLICE_FIXED;
	EQUAL(feature_slice(1), 10 * MS);
	EQUAL(feature_slice(50), 10 * MS);
	slice = SLICE_SPLIT;
	EQUAL(feature_slice(1), 24 * MS);
	EQUAL(feature_slice(2), 12 * MS);
	EQUAL(feature_slice(5), 4800000);
	EQUAL(feature_slice(8), 3 * MS);
	EQUAL(feature_slice(9), 3 * MS);
	EQUAL(feature_slice(100), 3 * MS);
	/* This is not asked for, but can be written. */
	split_us = split_min_us = fixed_us = 0;
	split_nr = ~0u;
	CHECK(feature_slice(1000) > 0);
	split_nr = 0;
	CHECK(feature_slice(0) > 0 && feature_slice(1000) > 0);
	slice = SLICE_FIXED;
	CHECK(feature_slice(1) > 0);
}

static void out_of_balance(void)
{
	imbalance = IMBALANCE_DIFFERS;
	CHECK(!feature_imbalanced(3, 3));
	CHECK(feature_imbalanced(4, 3));
	CHECK(!feature_imbalanced(2, 3));
	imbalance = IMBALANCE_ABOVE_20PCT;
	CHECK(!feature_imbalanced(6, 5));
	CHECK(feature_imbalanced(7, 5));
	CHECK(!feature_imbalanced(2, 3));
	CHECK(!feature_imbalanced(0, 0));
	CHECK(feature_imbalanced(1, 0));
}

/* A window of 10 ms each: 0.8 of what was, 0.2 of what was runnable. */
static void load_decays(void)
{
	struct task_struct *p;
	task_t *t;

	plain();
	metric = METRIC_USED_TIME;
	start(1, 0);
	p = thread(0, 0);
	t = ctx(p);
	EQUAL(t->load, 1024);
	script.now_ns += 10 * MS;
	feature_use(queue(0), t, script.now_ns, false);
	EQUAL(t->load, 819);
	/* Half of the next. */
	script.now_ns += 5 * MS;
	feature_use(queue(0), t, script.now_ns, false);
	script.now_ns += 5 * MS;
	feature_use(queue(0), t, script.now_ns, true);
	EQUAL(t->load, (4 * 819 + 512) / 5);
	/* Several at once, and what is begun of the next. */
	t->load = 1000;
	script.now_ns += 23 * MS;
	feature_use(queue(0), t, script.now_ns, false);
	EQUAL(t->load, 640);
	script.now_ns += 7 * MS;
	feature_use(queue(0), t, script.now_ns, true);
	EQUAL(t->load, (4 * 640 + 7 * 1024 / 10) / 5);
	/* Long ago. */
	script.now_ns += 10000 * MS;
	feature_use(queue(0), t, script.now_ns, false);
	EQUAL(t->load, 0);
	script.now_ns += 10000 * MS;
	feature_use(queue(0), t, script.now_ns, true);
	EQUAL(t->load, 1024);
}

static void order(enum feature_election by, const u32 *expected)
{
	static const s64 runtimes[] = { 30, 10, 20, 10, 0 };
	struct task_struct *p[5], *next;
	u32 i;

	plain();
	election = by;
	start(1, 0);
	for (i = 0; i < 5; i++)
		p[i] = waiting(0, runtimes[i]);
	for (i = 0; i < 5; i++) {
		next = script_schedule(0);
		CHECK(next == p[expected[i]]);
		script_block(0);
	}
	CHECK(!script_schedule(0));
	EQUAL(queue(0)->q.nr, 0);
}

static void rbtree_least_runtime(void)
{
	static const u32 expected[] = { 4, 1, 3, 2, 0 };

	order(ELECTION_RBTREE, expected);
}

static void linkedlist_least_runtime(void)
{
	static const u32 expected[] = { 4, 1, 3, 2, 0 };

	order(ELECTION_LINKEDLIST, expected);
}

static void fifo_arrival(void)
{
	static const u32 expected[] = { 0, 1, 2, 3, 4 };

	order(ELECTION_FIFO, expected);
}

/* A choice looks at one thread, whatever the number of those that wait. */
static void election_cost(void)
{
	u32 by, i;

	for (by = 0; by < 3; by++) {
		plain();
		election = by;
		start(1, 0);
		for (i = 0; i < 100; i++)
			waiting(0, i * 7919 % 100);
		script.probes[LAB_EXAMINED] = 0;
		CHECK(script_schedule(0));
		EQUAL(script.probes[LAB_EXAMINED], 1);
	}
}

/* The clock follows a thread that runs alone: one that comes later is level with it, not far ahead of it. */
static void clock_while_alone(void)
{
	struct task_struct *a, *b;
	u32 by;

	for (by = 0; by < 3; by++) {
		plain();
		election = by;
		slice = SLICE_FIXED;
		start(1, 0);
		a = running_on(0);
		script.now_ns += 60000 * MS;
		script_tick(0);
		if (election == ELECTION_FIFO)
			continue;
		EQUAL(queue(0)->clock, ctx(a)->runtime);
		b = waiting(0, 0);
		EQUAL(ctx(b)->runtime, ctx(a)->runtime);
		/* Among several it is where the least of them is. */
		script.now_ns += 3 * MS;
		script_tick(0);
		EQUAL(queue(0)->clock, ctx(b)->runtime);
	}
}

/* With least runtime first the one that ran less takes turns; what runs is charged. */
static void runtime_is_charged(void)
{
	struct task_struct *a, *b;

	plain();
	election = ELECTION_RBTREE;
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	b = waiting(0, 4 * MS);
	script.now_ns += 10 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->runtime, 10 * MS);
	/* Until it has had as much. */
	script.now_ns += 10 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(b)->runtime, 14 * MS);
}

static void slice_ends(void)
{
	struct task_struct *a, *b, *c;

	plain();
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	b = waiting(0, 0);
	script.now_ns += 9 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 1 * MS;
	script_tick(0);
	c = waiting(0, 0);
	CHECK(script_schedule(0) == b);
	script.now_ns += 10 * MS;
	script_tick(0);
	/* The one whose slice had ended before the other one came. */
	CHECK(script_schedule(0) == c);
	script.now_ns += 10 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
}

/* A split slice is as long as when its thread was picked, whichever thread comes meanwhile. */
static void slice_of_the_pick(void)
{
	struct task_struct *a, *b;

	plain();
	slice = SLICE_SPLIT;
	start(1, 0);
	a = running_on(0);
	script.now_ns += 2 * MS;
	b = waiting(0, 0);
	script.now_ns += 21 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 1 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	script.now_ns += 11 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
	script.now_ns += 1 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
}

static void slice_alone(void)
{
	struct task_struct *a, *b;

	plain();
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	script.now_ns += 12 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	/* It has a new one. */
	b = waiting(0, 0);
	script.now_ns += 8 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
	script.now_ns += 2 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == b);
}

static void slice_infinite(void)
{
	struct task_struct *a;

	plain();
	start(1, 0);
	a = running_on(0);
	waiting(0, 0);
	script.now_ns += 20000 * MS;
	script_tick(0);
	CHECK(script_schedule(0) == a);
}

/* Interrupted by a higher class, not by the clock: it goes on. */
static void interrupted(void)
{
	struct task_struct *a;

	plain();
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	waiting(0, 0);
	script.now_ns += 4 * MS;
	queue(0)->q.marked = true;
	script_preempt(0);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(a)->turn_ns, 4 * MS);
}

/* A task of a higher class has had the CPU for 1 ms; the thread waited in the local queue. */
static void higher_class(struct task_struct *p)
{
	OPS.stopping(p, true);
	script.now_ns += 1 * MS;
	OPS.running(p);
}

/* An attribute of the running thread was changed. */
static void attribute(struct task_struct *p)
{
	OPS.stopping(p, true);
	OPS.quiescent(p, 0);
	OPS.running(p);
}

/* Interrupted more often than every 10 ms: the turn goes on each time, until it is over. */
static void turn_ends(void (*interrupt)(struct task_struct *p))
{
	struct task_struct *a, *b;
	u32 i;

	plain();
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	b = waiting(0, 0);
	for (i = 0; i < 3; i++) {
		script.now_ns += 3 * MS;
		interrupt(a);
		script_tick(0);
		CHECK(script_schedule(0) == a);
		EQUAL(ctx(a)->turn_ns, 3 * MS * (i + 1));
	}
	script.now_ns += 1 * MS;
	interrupt(a);
	script_tick(0);
	CHECK(script_schedule(0) == b);
	/* Back in the queue it waits for a turn of full length, as a thread that has slept does. */
	script_block(0);
	EQUAL(ctx(b)->turn_ns, 0);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(a)->turn_ns, 0);
}

static void turn_ends_beside_higher_class(void)
{
	turn_ends(higher_class);
}

static void turn_ends_beside_changes(void)
{
	turn_ends(attribute);
}

static void yields(void)
{
	struct task_struct *a, *b;
	u32 by;

	for (by = 0; by < 3; by++) {
		plain();
		election = by;
		start(1, 0);
		a = running_on(0);
		script_yield(0);
		CHECK(script_schedule(0) == a);
		b = waiting(0, 100 * MS);
		script_yield(0);
		CHECK(script_schedule(0) == b);
	}
}

/* No thread takes the CPU from another by waking. */
static void no_wakeup_preemption(void)
{
	plain();
	election = ELECTION_RBTREE;
	start(1, 0);
	running_on(0);
	script.now_ns += 50 * MS;
	waiting(0, 0);
	EQUAL(script.nr_kicks[0], 0);
}

static void sleepers_do_not_hoard(void)
{
	struct task_struct *a, *b;

	plain();
	election = ELECTION_RBTREE;
	start(1, 0);
	b = thread(0, 0);
	a = waiting(0, 500 * MS);
	CHECK(script_schedule(0) == a);
	script_wake(b, 0, 0);
	EQUAL(ctx(b)->runtime, 500 * MS);
}

/* Runtimes are compared with the ones in the queue they are in. */
static void moved_runtime(void)
{
	struct task_struct *p;

	plain();
	election = ELECTION_RBTREE;
	start(2, 0);
	queue(0)->clock = 1000;
	queue(1)->clock = 5000;
	p = waiting(0, 1300);
	waiting(0, 1200);
	CHECK(feature_balance(1));
	EQUAL(ctx(p)->q.home, 1);
	EQUAL(ctx(p)->runtime, 5300);
}

static void metric_runnable(void)
{
	plain();
	start(2, 0);
	EQUAL(feature_load(queue(0)), 0);
	running_on(0);
	EQUAL(feature_load(queue(0)), 1);
	waiting(0, 0);
	EQUAL(feature_load(queue(0)), 2);
	script_block(0);
	script_schedule(0);
	EQUAL(feature_load(queue(0)), 1);
}

static void metric_blocked(void)
{
	struct task_struct *p;

	plain();
	metric = METRIC_NR_RUN_BLOCK;
	start(2, 0);
	p = running_on(0);
	EQUAL(feature_load(queue(0)), 1);
	script_block(0);
	CHECK(!script_schedule(0));
	EQUAL(queue(0)->q.nr, 0);
	EQUAL(feature_load(queue(0)), 1);
	/* It counts where it blocked last, until it wakes. */
	p->__lab_cpu = 1;
	script_wake(p, 1, 0);
	EQUAL(feature_load(queue(0)), 0);
	EQUAL(feature_load(queue(1)), 1);
	CHECK(script_schedule(1) == p);
	script_block(1);
	script_schedule(1);
	EQUAL(feature_load(queue(1)), 1);
	script_exit_task(p);
	EQUAL(feature_load(queue(1)), 0);
}

static void metric_used(void)
{
	struct task_struct *p;

	plain();
	metric = METRIC_USED_TIME;
	start(2, 0);
	p = running_on(0);
	waiting(0, 0);
	EQUAL(feature_load(queue(0)), 2048);
	script_block(0);
	CHECK(script_schedule(0));
	EQUAL(feature_load(queue(0)), 1024);
	/* It slept for two windows of 10 ms. */
	script.now_ns += 20 * MS;
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->load, 655);
	EQUAL(feature_load(queue(0)), 1024 + 655);
}

/* The most loaded that is out of balance gives its last thread; of equals the next CPU. */
static void source(void)
{
	static const u32 nr[] = { 2, 4, 4, 3 }, after[] = { 3, 3, 4, 3 };
	struct task_struct *last;

	plain();
	start(4, 0);
	loads(nr, 3);
	waiting(3, 0);
	waiting(3, 0);
	waiting(3, 0);
	EQUAL(feature_source(queue(0)), 1);
	/* The most loaded CPUs take no thread. */
	EQUAL(feature_source(queue(2)), -1);
	EQUAL(feature_source(queue(1)), -1);
	EQUAL(feature_source(queue(3)), 1);
	last = &script.tasks[5]->p;
	CHECK(feature_balance(0));
	are(after, 4);
	EQUAL(ctx(last)->q.home, 0);
	imbalance = IMBALANCE_ABOVE_20PCT;
	EQUAL(feature_source(queue(2)), -1);
	EQUAL(feature_source(queue(1)), 2);
}

/* A running thread is not moved; then nothing is. */
static void balance_not_running(void)
{
	static const u32 nr[] = { 1, 0 };

	plain();
	start(2, 0);
	running_on(0);
	CHECK(feature_balance(1));
	are(nr, 2);
}

static void balance_not_allowed(void)
{
	static const u32 nr[] = { 1, 1 };
	struct task_struct *free_, *bound;

	plain();
	start(2, 0);
	free_ = waiting(0, 0);
	bound = waiting(0, 0);
	script_of(bound)->mask.bits[0] = 1;
	OPS.set_cpumask(bound, bound->cpus_ptr);
	CHECK(feature_balance(1));
	are(nr, 2);
	EQUAL(ctx(free_)->q.home, 1);
	EQUAL(script.nr_kicks[1], 1);
}

/* If two decide from the same loads, only the first one acts. */
static void conflict_fails(void)
{
	static const u32 nr[] = { 1, 1 };

	plain();
	start(2, 0);
	waiting(0, 0);
	waiting(0, 0);
	CHECK(feature_balance(1));
	CHECK(!feature_move(queue(0), queue(1)));
	are(nr, 2);
}

static void idle_event(void)
{
	static const u32 nr[] = { 3, 0 }, taken[] = { 2, 1 };

	plain();
	start(2, 0);
	loads(nr, 2);
	CHECK(script_schedule(0));
	CHECK(!script_schedule(1));
	are(nr, 2);
	idle = SWITCH_ON;
	CHECK(script_schedule(1));
	are(taken, 2);
}

static void periodic_never(void)
{
	plain();
	start(4, 0);
	EQUAL(script.timer_ns, 0);
}

static void periodic_random(void)
{
	u32 i, least = ~0u, most = 0;

	periodic = PERIODIC_RANDOM;
	for (i = 0; i < 3000; i++) {
		u32 ms = feature_interval(i) / MS;

		least = ms < least ? ms : least;
		most = ms > most ? ms : most;
	}
	EQUAL(least, 500);
	EQUAL(most, 1500);
	/* Drawn anew each time. */
	plain();
	periodic = PERIODIC_RANDOM;
	executor = EXECUTOR_CORE;
	script_random = 100;
	start(4, 0);
	EQUAL(script.timer_ns, 600 * MS);
	script_random = 7;
	script_timer_expires(0);
	EQUAL(script.timer_ns, 507 * MS);
}

static void periodic_nr_cores(void)
{
	plain();
	periodic = PERIODIC_NR_CORES;
	start(24, 12);
	EQUAL(script.timer_ns, 24 * MS);
	script_timer_expires(0);
	EQUAL(script.timer_ns, 24 * MS);
	/* Those that are offline do not count. */
	start_without(0xf << 20, 24, 12);
	EQUAL(script.timer_ns, 20 * MS);
}

/* With random times each executor has its own. */
static void executors_draw(void)
{
	plain();
	periodic = PERIODIC_RANDOM;
	script_random = 200;
	start(2, 0);
	queue(1)->left_ns = 900 * MS;
	EQUAL(script.timer_ns, 700 * MS);
	script_random = 0;
	script_timer_expires(0);
	EQUAL(queue(0)->left_ns, 500 * MS);
	EQUAL(queue(1)->left_ns, 200 * MS);
	EQUAL(script.timer_ns, 200 * MS);
}

/* Each CPU for itself: a busy one at its tick, an idle one when it is woken. */
static void executor_all(void)
{
	static const u32 nr[] = { 1, 4, 0 }, busy[] = { 2, 3, 0 }, both[] = { 2, 2, 1 };

	plain();
	periodic = PERIODIC_NR_CORES;
	start(3, 0);
	loads(nr, 3);
	CHECK(script_schedule(0) && script_schedule(1));
	script_calm();
	script_timer_expires(1);
	are(nr, 3);
	EQUAL(script.nr_kicks[0], 0);
	EQUAL(script.kicks[2], SCX_KICK_IDLE);
	script_tick(0);
	are(busy, 3);
	CHECK(script_schedule(2));
	are(both, 3);
	/* Once for each time. */
	script_tick(0);
	are(both, 3);
}

/* CPU 0 for 0 and 1, CPU 2 for 2 and 3; what they take comes from anywhere. */
static void executor_node(void)
{
	static const u32 nr[] = { 5, 0, 1, 0 }, first[] = { 4, 1, 1, 0 }, both[] = { 2, 1, 2, 1 };

	plain();
	periodic = PERIODIC_NR_CORES;
	executor = EXECUTOR_NODE;
	imbalance = IMBALANCE_ABOVE_20PCT;
	start(4, 2);
	loads(nr, 4);
	CHECK(script_schedule(0) && script_schedule(2));
	script_calm();
	script_timer_expires(3);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[3], 0);
	are(nr, 4);
	script_tick(0);
	are(first, 4);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	script_tick(2);
	are(both, 4);
}

/* The first CPU that is online does it: here 4 for its node, and 1 for its node or the machine. */
static void executor_offline(void)
{
	static const u32 nr[] = { 0, 4, 0, 0, 5, 0 }, first[] = { 0, 4, 0, 0, 4, 1 },
			 both[] = { 0, 4, 1, 0, 3, 1 }, all[] = { 0, 3, 1, 0, 4, 1 };

	plain();
	periodic = PERIODIC_NR_CORES;
	executor = EXECUTOR_NODE;
	imbalance = IMBALANCE_ABOVE_20PCT;
	start_without(1 << 0 | 1 << 3, 6, 3);
	loads(nr, 6);
	CHECK(script_schedule(1) && script_schedule(4));
	script_timer_expires(1);
	are(nr, 6);
	script_tick(4);
	are(first, 6);
	script_tick(1);
	are(both, 6);

	executor = EXECUTOR_CORE;
	start_without(1 << 0 | 1 << 3, 6, 3);
	loads(nr, 6);
	CHECK(script_schedule(1) && script_schedule(4));
	script_timer_expires(1);
	are(all, 6);
}

/* One for the machine, where the timer is. */
static void executor_core(void)
{
	static const u32 nr[] = { 5, 0, 1, 0 }, after[] = { 2, 1, 2, 1 };

	plain();
	periodic = PERIODIC_NR_CORES;
	executor = EXECUTOR_CORE;
	imbalance = IMBALANCE_ABOVE_20PCT;
	start(4, 2);
	loads(nr, 4);
	CHECK(script_schedule(0) && script_schedule(2));
	script_timer_expires(3);
	are(after, 4);
}

/* Where no thread waits, no CPU is woken. */
static void nobody_waits(void)
{
	plain();
	periodic = PERIODIC_NR_CORES;
	start(4, 0);
	running_on(0);
	script_calm();
	script_timer_expires(0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2] + script.nr_kicks[3], 0);
}

static void unblock_off(void)
{
	struct task_struct *p;

	plain();
	start(4, 0);
	running_on(0);
	p = thread(0, 0);
	script_wake(p, 3, 0);
	EQUAL(p->__lab_cpu, 0);
	/* Where its parent is. */
	p = script_fork(script.curr[0], 0, 1);
	script_wake(p, 0, SCX_WAKE_FORK);
	EQUAL(p->__lab_cpu, 0);
}

static void goes_to(enum feature_placement reach, const u32 *nr, s32 last, s32 expected)
{
	struct task_struct *p;

	plain();
	start(8, 4);
	loads(nr, 8);
	unblock = SWITCH_ON;
	placement = reach;
	p = thread(last, 0);
	script_wake(p, 7, 0);
	EQUAL(p->__lab_cpu, expected);
	EQUAL(ctx(p)->q.home, expected);
}

/* Two threads a core, four CPUs a cache. */
static void placement_reach(void)
{
	static const u32 nr[] = { 3, 2, 1, 1, 0, 0, 0, 0 };

	goes_to(PLACEMENT_SMT, nr, 0, 1);
	goes_to(PLACEMENT_LLC, nr, 0, 2);
	goes_to(PLACEMENT_ALL, nr, 0, 4);
	goes_to(PLACEMENT_SMT, nr, 2, 2);
}

/* The last CPU wins among equals, then the next one of its core, its cache, the machine. */
static void placement_of_equals(void)
{
	static const u32 even[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	static const u32 nr[] = { 1, 1, 1, 2, 1, 0, 0, 0 };

	goes_to(PLACEMENT_ALL, even, 5, 5);
	goes_to(PLACEMENT_LLC, nr, 3, 0);
	goes_to(PLACEMENT_ALL, nr, 3, 5);
}

static void placement_mask(void)
{
	struct task_struct *p;

	plain();
	start(4, 0);
	running_on(0);
	unblock = SWITCH_ON;
	p = thread(0, 0);
	script_of(p)->mask.bits[0] = 9;
	script_wake(p, 0, 0);
	EQUAL(p->__lab_cpu, 3);
}

static struct task_struct *task(s32 cpu, s32 nice, u32 unused)
{
	struct task_struct *p = thread(cpu, 0);

	p->static_prio = 120 + nice;
	return p;
}

#define RANDOM_START(cpus) start(cpus, 2)
#define RANDOM_LISTED(t) ((t)->queued && election != ELECTION_RBTREE)
#define RANDOM_LISTED_RUNNING false
#define RANDOM_ELSEWHERE (election == ELECTION_RBTREE && t->queued)
#include "percpu.h"

/* Whatever happens, counts and loads include exactly the threads that are there. */
static void random_counts(void)
{
	u64 nr = 0, blocked = 0, load = 0, home = 0, counted = 0, away = 0;
	u32 i, cpu;

	for (cpu = 0; cpu < RANDOM_CPUS; cpu++) {
		blocked += queue(cpu)->blocked;
		load += queue(cpu)->load;
		nr += queue(cpu)->q.nr;
	}
	for (i = 0; i < script.nr_tasks; i++) {
		task_t *t = ctx(&script.tasks[i]->p);

		home += t->q.linked;
		counted += t->counted;
		away += t->blocked_on != 0;
	}
	EQUAL(nr, home);
	EQUAL(blocked, away);
	EQUAL(load, counted);
	CHECK(metric == METRIC_NR_RUN_BLOCK || !blocked);
	CHECK(metric == METRIC_USED_TIME || !load);
}

static void random_rbtree(void)
{
	random_operations();
	random_counts();
}

static void random_linkedlist(void)
{
	plain();
	election = ELECTION_LINKEDLIST;
	slice = SLICE_FIXED;
	metric = METRIC_NR_RUN_BLOCK;
	idle = unblock = SWITCH_ON;
	random_operations();
	random_counts();
}

static void random_fifo(void)
{
	plain();
	idle = SWITCH_ON;
	metric = METRIC_USED_TIME;
	random_operations();
	random_counts();
}

static void lost_its_cpu(void)
{
	plain();
	start(1, 1);
	loses_its_cpu(running_on(0));
}

/* A task of a higher class comes between the end of the slice and the choice. */
static void turn_ended_before_it_lost_its_cpu(void)
{
	struct task_struct *a, *b;

	plain();
	slice = SLICE_FIXED;
	start(1, 0);
	a = running_on(0);
	b = waiting(0, 0);
	script.now_ns += 10 * MS;
	script_tick(0);
	loses_its_cpu(a);
	script.host.lock = script_lock;
	script.curr[0] = NULL;
	CHECK(script_schedule(0) == b);
}

TESTS(TEST(slices), TEST(out_of_balance), TEST(load_decays), TEST(rbtree_least_runtime),
      TEST(linkedlist_least_runtime), TEST(fifo_arrival), TEST(election_cost),
      TEST(runtime_is_charged), TEST(slice_ends), TEST(slice_of_the_pick),
      TEST(slice_alone), TEST(slice_infinite),
      TEST(interrupted), TEST(turn_ends_beside_higher_class), TEST(turn_ends_beside_changes),
      TEST(yields), TEST(no_wakeup_preemption), TEST(sleepers_do_not_hoard),
      TEST(moved_runtime), TEST(metric_runnable), TEST(metric_blocked), TEST(metric_used),
      TEST(source), TEST(balance_not_running), TEST(balance_not_allowed), TEST(conflict_fails),
      TEST(idle_event), TEST(periodic_never), TEST(periodic_random), TEST(periodic_nr_cores),
      TEST(executors_draw), TEST(executor_all), TEST(executor_node), TEST(executor_offline),
      TEST(executor_core),
      TEST(nobody_waits), TEST(unblock_off), TEST(placement_reach), TEST(placement_of_equals),
      TEST(placement_mask), TEST(random_rbtree), TEST(random_linkedlist), TEST(random_fifo),
      TEST(lost_its_cpu), TEST(clock_while_alone), TEST(turn_ended_before_it_lost_its_cpu))
