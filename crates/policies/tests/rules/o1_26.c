/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/o1-26.md, one test a rule. `o1_26 NAME` runs one. */
#define POLICY "../../../../policies/o1-26.bpf.c"
#define OPS o1_26_ops
#include "script.h"

enum { M0, M1, M2 };	/* address spaces; 0 = kernel thread */

static u32 script_nodes = 1;

static u32 nr_node_ids(struct lab_host *h) { return script_nodes; }
static s32 cpu_node(struct lab_host *h, s32 cpu) { return cpu * script_nodes / script.nr_cpus; }

/* A machine of `cpus` in `nodes` of the same size. */
static void start(u32 cpus, u32 nodes)
{
	script_nodes = nodes;
	script_prepare(cpus);
	script.host.nr_node_ids = nr_node_ids;
	script.host.cpu_node = cpu_node;
	script.now_ns = 10000 * MS;
	EQUAL(OPS.init(), 0);
}

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

static rq_t *queue(s32 cpu)
{
	return o26_rq(rq_at(cpu));
}

/* A task that fell asleep on `cpu` just now. */
static struct task_struct *task(s32 cpu, s32 nice, u64 sleep_avg_ms)
{
	struct task_struct *p = script_fork(NULL, nice, M1);
	task_t *t = ctx(p);

	p->__lab_cpu = cpu;
	t->lab.cpu = t->q.home = cpu;
	t->sleep_avg = sleep_avg_ms * MS;
	t->stamp = t->last_ran_ns = script.now_ns;
	return p;
}

static struct task_struct *waiting(s32 cpu, s32 nice, u64 sleep_avg_ms)
{
	struct task_struct *p = task(cpu, nice, sleep_avg_ms);

	/* Woken by its own CPU, where it stays. */
	p->nr_cpus_allowed = 1;
	script_wake(p, cpu, 0);
	p->nr_cpus_allowed = script.nr_cpus;
	EQUAL(ctx(p)->q.home, cpu);
	return p;
}

static struct task_struct *running_on(s32 cpu, s32 nice, u64 sleep_avg_ms)
{
	struct task_struct *p = waiting(cpu, nice, sleep_avg_ms);

	CHECK(!script.curr[cpu]);
	CHECK(script_schedule(cpu) == p);
	script_calm();
	return p;
}

static void run_for(u64 ns)
{
	script.now_ns += ns;
}

static bool in_active(struct task_struct *p)
{
	rq_t *rq = queue(ctx(p)->q.home);

	CHECK(ctx(p)->q.linked);
	return ctx(p)->array == lab_arrays_active(&rq->arrays);
}

/* Ticks of a millisecond until the CPU is to choose again; at most `most`. */
static u32 ticks_until_marked(s32 cpu, u32 most)
{
	u32 ticks = 0;

	while (ticks < most && script.curr[cpu]->scx.slice) {
		run_for(MS);
		script_tick(cpu);
		ticks++;
	}
	return ticks;
}

static void t1_slices(void)
{
	EQUAL(o26_slice_ms(-20), 800);
	EQUAL(o26_slice_ms(-10), 600);
	EQUAL(o26_slice_ms(-1), 420);
	EQUAL(o26_slice_ms(0), 100);
	EQUAL(o26_slice_ms(1), 95);
	EQUAL(o26_slice_ms(10), 50);
	EQUAL(o26_slice_ms(19), 5);
}

static void t2_bonus(void)
{
	EQUAL(o26_bonus(99 * MS), 0);
	EQUAL(o26_bonus(100 * MS), 1);
	EQUAL(o26_bonus(500 * MS), 5);
	EQUAL(o26_prio(0, 500 * MS), 120);
	EQUAL(o26_bonus(900 * MS), 9);
	EQUAL(o26_prio(0, 900 * MS), 116);
	EQUAL(o26_bonus(1000 * MS), 10);
	EQUAL(o26_prio(0, 1000 * MS), 115);
	EQUAL(o26_prio(-20, 1000 * MS), 100);
	EQUAL(o26_prio(19, 0), 139);
}

static void t3_interactive_sleep(void)
{
	EQUAL(o26_interactive_sleep_ms(0), 799);
	EQUAL(o26_interactive_sleep_ms(-20), 299);
	EQUAL(o26_interactive_sleep_ms(10), 999);
	EQUAL(o26_interactive_sleep_ms(19), 1199);
}

static void t4_granularity(void)
{
	EQUAL(o26_granularity_ns(10, 1), 10 * MS);
	EQUAL(o26_granularity_ns(9, 1), 10 * MS);
	EQUAL(o26_granularity_ns(8, 1), 20 * MS);
	EQUAL(o26_granularity_ns(5, 1), 160 * MS);
	EQUAL(o26_granularity_ns(0, 1), 5120 * MS);
	EQUAL(o26_granularity_ns(9, 8), 80 * MS);
}

static void t5_wakeup_gain(void)
{
	struct task_struct *p;

	start(1, 1);
	p = task(0, 0, 0);
	run_for(50 * MS);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->sleep_avg, 500 * MS);
	EQUAL(ctx(p)->prio, 120);
	/* The longer ones: an idler's average, whatever it was; a kernel thread's grows on. */
	EQUAL(o26_slept(0, 800 * MS, 0, true), 900 * MS);
	EQUAL(o26_slept(1000 * MS, 800 * MS, 0, true), 900 * MS);
	EQUAL(o26_slept(0, 799 * MS, 0, true), 1000 * MS);
	EQUAL(o26_slept(0, 5000 * MS, 0, false), 1000 * MS);
	EQUAL(o26_slept(1000 * MS, 5 * MS, 0, true), 1000 * MS);
	EQUAL(o26_slept(900 * MS, 5 * MS, 0, true), 905 * MS);
}

static void t6_running_costs(void)
{
	struct task_struct *p;

	start(1, 1);
	EQUAL(o26_ran(500 * MS, 50 * MS), 490 * MS);
	EQUAL(o26_ran(50 * MS, 20 * MS), 30 * MS);
	EQUAL(o26_ran(900 * MS, 60000 * MS), 900 * MS - 1000 * MS / 9);
	p = running_on(0, 0, 500);
	run_for(50 * MS);
	script_block(0);
	EQUAL(ctx(p)->sleep_avg, 490 * MS);
}

/* The interactive tasks, by nice level: how many levels better than nice it takes. */
static void interactive(void)
{
	static const struct { s32 nice, bonus; } rows[] = {
		{ 0, 2 }, { -20, -3 }, { -10, 0 }, { 10, 4 },
	};
	u32 i;

	for (i = 0; i < 4; i++) {
		CHECK(o26_interactive(rows[i].nice, 120 + rows[i].nice - rows[i].bonus));
		CHECK(!o26_interactive(rows[i].nice, 121 + rows[i].nice - rows[i].bonus));
	}
	/* Nice 19 would need 6, and 5 is all there is. */
	CHECK(!o26_interactive(19, 139 - 5));
}

/* Waiting after a wakeup counts as sleep: 30 % of it, all of it after an interrupt. */
static void wait_counts(void)
{
	struct task_struct *p, *q;

	start(2, 1);
	p = running_on(0, 0, 300);
	q = waiting(0, 0, 0);
	EQUAL(ctx(q)->woken, WOKEN_BY_TASK);
	run_for(64 * MS);
	script_block(0);
	CHECK(script_schedule(0) == q);
	EQUAL(ctx(q)->sleep_avg, 64 * MS * 38 / 128 * 10);
	EQUAL(ctx(q)->prio, 120 + 5 - 1);
	EQUAL(ctx(q)->level, ctx(q)->prio);
	/* CPU 1 is idle: who wakes from there is an interrupt. */
	ctx(p)->sleep_avg = 0;
	ctx(p)->stamp = script.now_ns;
	script_of(p)->mask.bits[0] = 1;
	script_wake(p, 1, 0);
	EQUAL(ctx(p)->woken, WOKEN_BY_INTERRUPT);
	run_for(20 * MS);
	script_block(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->sleep_avg, 200 * MS);
	/* Only until it was chosen. */
	EQUAL(ctx(p)->woken, NOT_WOKEN);
}

/* A task that was runnable before the policy has not been woken: its wait is not sleep. */
static void runnable_before(void)
{
	struct task_struct *p;

	start(1, 1);
	p = task(0, 0, 0);
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	script_enqueue(p, 0);
	EQUAL(ctx(p)->woken, NOT_WOKEN);
	run_for(104 * MS);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->sleep_avg, 0);
	EQUAL(ctx(p)->prio, 125);
}

static void expiry(void)
{
	struct task_struct *hog, *other;

	start(1, 1);
	hog = running_on(0, 0, 0);
	other = waiting(0, 0, 0);
	EQUAL(ticks_until_marked(0, 1000), 100);
	CHECK(!in_active(hog));
	EQUAL(ctx(hog)->left_ns, 100 * MS);
	EQUAL(queue(0)->best_expired, 120);
	CHECK(queue(0)->expired_ns);
	CHECK(script_schedule(0) == other);
	/* A better one expires; then the arrays change places and the record is cleared. */
	script_block(0);
	CHECK(script_schedule(0) == hog);
	EQUAL(queue(0)->best_expired, 140);
	EQUAL(queue(0)->expired_ns, 0);
}

/* An interactive task goes on beside an expired one, until that has waited too long. */
static void starvation(void)
{
	struct task_struct *p, *hog;
	u64 since;

	start(1, 1);
	hog = running_on(0, 0, 0);
	ticks_until_marked(0, 1000);
	since = queue(0)->expired_ns;
	p = waiting(0, 0, 1000);
	CHECK(script_schedule(0) == p);
	/* Two tasks: 2 s and a tick. */
	while (script.now_ns - since < 2000 * MS) {
		CHECK(in_active(p));
		ctx(p)->sleep_avg = 1000 * MS;
		ctx(p)->stamp = script.now_ns;
		ticks_until_marked(0, 10);
		script_schedule(0);
		CHECK(script.curr[0] == p);
	}
	run_for(MS);
	CHECK(o26_starving(queue(0), ctx(p), script.now_ns));
	ctx(p)->left_ns = MS;
	CHECK(ticks_until_marked(0, 10));
	CHECK(!in_active(p));
	/* The arrays change places. */
	CHECK(script_schedule(0) == p);
	CHECK(in_active(hog) && in_active(p));
	EQUAL(queue(0)->expired_ns, 0);
}

/* The bound that 2.6.12 does not have. */
static void starvation_bound(void)
{
	struct task_struct *p;
	u32 i;

	start(1, 1);
	p = running_on(0, 0, 1000);
	for (i = 0; i < 40; i++)
		waiting(0, 0, 1000);
	queue(0)->expired_ns = script.now_ns;
	run_for(20000 * MS - 1);
	CHECK(!o26_starving(queue(0), ctx(p), script.now_ns));
	run_for(1);
	CHECK(o26_starving(queue(0), ctx(p), script.now_ns));
	starving_ms_max = 0;
	CHECK(!o26_starving(queue(0), ctx(p), script.now_ns));
	run_for(21000 * MS + O26_TICK_NS);
	CHECK(o26_starving(queue(0), ctx(p), script.now_ns));
}

/* A better nice level in the expired array ends the privilege, too. */
static void starvation_by_nice(void)
{
	struct task_struct *p;

	start(1, 1);
	running_on(0, -1, 0);
	ticks_until_marked(0, 1000);
	EQUAL(queue(0)->best_expired, 119);
	p = waiting(0, 0, 1000);
	CHECK(script_schedule(0) == p);
	CHECK(o26_starving(queue(0), ctx(p), script.now_ns));
}

/* Interactive equals take turns within their slices. */
static void granularity(void)
{
	struct task_struct *a, *b;

	start(1, 1);
	a = running_on(0, 0, 1000);
	b = waiting(0, 0, 1000);
	EQUAL(ticks_until_marked(0, 1000), 10);
	CHECK(in_active(a));
	CHECK(script_schedule(0) == b);
	EQUAL(ticks_until_marked(0, 1000), 10);
	CHECK(script_schedule(0) == a);
	EQUAL(ctx(a)->left_ns, 90 * MS);
	/* One that is not does not. */
	ctx(a)->prio = 121;
	ctx(a)->sleep_avg = 0;
	EQUAL(ticks_until_marked(0, 1000), 90);
}

static void fork_splits_slice(void)
{
	struct task_struct *parent, *child;

	start(1, 1);
	parent = running_on(0, 0, 1000);
	waiting(0, 0, 1000);
	ctx(parent)->left_ns = 7 * MS;
	child = script_fork(parent, 0, M2);
	EQUAL(ctx(child)->left_ns, 7 * MS / 2);
	EQUAL(ctx(parent)->left_ns, 7 * MS / 2);
	/* 10 steps, 95 % of which are 9. */
	EQUAL(ctx(child)->sleep_avg, 900 * MS);
	EQUAL(o26_child_sleep(599 * MS), 400 * MS);
	script_wake(child, 0, SCX_WAKE_FORK);
	/* Its own address space: before the parent, and that makes way. */
	EQUAL(ctx(child)->level, ctx(parent)->level);
	CHECK(ctx(child)->lab.node.next == &ctx(parent)->lab.node);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_calm();
	/* A thread: behind the others, and no task makes way. */
	ctx(parent)->prio = 100;
	o26_requeue(queue(0), ctx(parent), ctx(parent)->array);
	child = script_fork(parent, 0, M1);
	script_wake(child, 0, SCX_WAKE_FORK);
	EQUAL(ctx(child)->level, 116);
	EQUAL(script.nr_kicks[0], 0);
	/* Not even for one whose priority is better. */
	ctx(parent)->prio = 125;
	ctx(parent)->left_ns = 50 * MS;
	o26_requeue(queue(0), ctx(parent), ctx(parent)->array);
	child = script_fork(parent, 0, M1);
	script_wake(child, 0, SCX_WAKE_FORK);
	CHECK(ctx(child)->level < ctx(parent)->level);
	EQUAL(script.nr_kicks[0], 0);
	/* Less than a tick: the parent's slice has ended. */
	ctx(parent)->left_ns = MS;
	ctx(parent)->sleep_avg = 0;
	child = script_fork(parent, 0, M1);
	EQUAL(ctx(parent)->left_ns, 100 * MS);
	CHECK(!in_active(parent));
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

static void exit_returns(void)
{
	struct task_struct *parent, *child;

	start(1, 1);
	EQUAL(o26_reaped(800, 400), 700);
	EQUAL(o26_reaped(800, 900), 800);
	parent = running_on(0, 0, 800);
	ctx(parent)->left_ns = 60 * MS;
	child = script_fork(parent, 0, M2);
	ctx(child)->sleep_avg = 400 * MS;
	script_exit_task(child);
	EQUAL(ctx(parent)->left_ns, 60 * MS);
	EQUAL(ctx(parent)->sleep_avg, 700 * MS);
	/* Not what is left of a later slice, and no more than the child's own slice. */
	child = script_fork(parent, 0, M2);
	ctx(child)->first_slice = false;
	script_exit_task(child);
	EQUAL(ctx(parent)->left_ns, 30 * MS);
	child = script_fork(parent, 0, M2);
	ctx(child)->left_ns = 500 * MS;
	script_exit_task(child);
	EQUAL(ctx(parent)->left_ns, 100 * MS);
}

static void yield_expires(void)
{
	struct task_struct *p, *q;

	start(1, 1);
	p = running_on(0, 0, 1000);
	q = waiting(0, 19, 0);
	script_yield(0);
	CHECK(!in_active(p));
	CHECK(script_schedule(0) == q);
}

/* Where a woken task goes. */
static void wake_affine(void)
{
	struct task_struct *p;
	u64 hot;

	start(4, 2);
	running_on(0, 0, 0);
	running_on(1, 0, 0);
	running_on(2, 0, 0);
	running_on(3, 0, 0);
	queue(0)->load = queue(1)->load = queue(2)->load = O26_LOAD;
	p = task(1, 0, 0);
	hot = script.now_ns;
	/* On the waker's CPU already. */
	EQUAL(o26_wake_cpu(ctx(p), 1, 1, false, hot), 1);
	/* Its cache is warm, and the waker's CPU has as much to do. */
	EQUAL(o26_wake_cpu(ctx(p), 1, 0, false, hot + O26_HOT_NS - 1), 1);
	EQUAL(o26_wake_cpu(ctx(p), 1, 0, false, hot + O26_HOT_NS), 0);
	/* A waker that is about to sleep does not count. */
	EQUAL(o26_wake_cpu(ctx(p), 1, 0, true, hot), 0);
	/* Another node: only by load. */
	EQUAL(o26_wake_cpu(ctx(p), 1, 2, false, hot + 1000 * MS), 1);
	EQUAL(o26_wake_cpu(ctx(p), 1, 2, true, hot + 1000 * MS), 2);
	/* Not allowed there. */
	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&ctx(p)->lab, p);
	EQUAL(o26_wake_cpu(ctx(p), 1, 0, true, hot + 1000 * MS), 1);
	/* Not off an idle CPU to a busy one. */
	p = task(1, 0, 0);
	script_block(1);
	script_schedule(1);
	EQUAL(o26_wake_cpu(ctx(p), 1, 0, false, hot + 1000 * MS), 1);
}

static void wake_idle(void)
{
	struct task_struct *p;

	start(4, 2);
	running_on(0, 0, 0);
	running_on(2, 0, 0);
	p = task(0, 0, 0);
	/* Of the same node. */
	EQUAL(o26_idle_near(ctx(p), 0), 1);
	EQUAL(o26_idle_near(ctx(p), 1), 1);
	EQUAL(o26_idle_near(ctx(p), 2), 3);
	running_on(1, 0, 0);
	EQUAL(o26_idle_near(ctx(p), 0), 0);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->q.home, 0);
}

static void wakeup_preempts(void)
{
	start(2, 1);
	running_on(0, 0, 500);
	running_on(1, 0, 500);
	waiting(0, 0, 500);
	EQUAL(script.nr_kicks[0], 0);
	/* About to sleep: the waker need not be disturbed on its own CPU. */
	script_wake(task(0, 0, 900), 0, SCX_WAKE_SYNC);
	EQUAL(script.nr_kicks[0], 0);
	script_wake(task(0, 0, 900), 0, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

static void load(void)
{
	EQUAL(o26_new_load(0, 1), 64);
	EQUAL(o26_new_load(127, 1), 128);
	EQUAL(o26_new_load(128, 1), 128);
	EQUAL(o26_new_load(128, 0), 64);
	EQUAL(o26_new_load(1, 0), 0);
	start(2, 1);
	running_on(0, 0, 0);
	queue(0)->load = 300;
	EQUAL(o26_load_of(queue(0), false), 128);
	EQUAL(o26_load_of(queue(0), true), 300);
}

static void imbalance(void)
{
	/* own, busiest, average: tasks to move; a task is 128. */
	EQUAL(o26_imbalance(0, 128, 64, 1, 1), 0);
	EQUAL(o26_imbalance(0, 256, 128, 1, 1), 1);
	EQUAL(o26_imbalance(0, 4 * 128, 2 * 128, 1, 1), 2);
	EQUAL(o26_imbalance(2 * 128, 4 * 128, 3 * 128, 1, 1), 1);
	EQUAL(o26_imbalance(0, 4 * 128, 128, 1, 1), 1);
	EQUAL(o26_imbalance(2 * 128, 9 * 128, 7 * 128, 1, 1), 2);
	EQUAL(o26_imbalance(128, 256, 192, 1, 1), 0);
	EQUAL(o26_imbalance(8 * 128, 10 * 128, 9 * 128, 1, 1), 0);
	EQUAL(o26_imbalance(8 * 128, 11 * 128, 9 * 128 + 64, 1, 1), 1);
	/* Above the average itself. */
	EQUAL(o26_imbalance(5 * 128, 9 * 128, 4 * 128, 1, 1), 0);
	/* Part of a task, but work would be done that is not now. */
	EQUAL(o26_imbalance(0, 192, 96, 1, 1), 1);
	/* Nodes of four CPUs, 12 tasks in one. */
	EQUAL(o26_imbalance(0, 3 * 128, 3 * 64, 4, 4), 6);
}

/* An idle CPU takes an expired task, which stays expired, and not one with a warm cache. */
static void balance(void)
{
	struct task_struct *hot, *cold;
	rq_t *rq;

	start(2, 1);
	running_on(0, 0, 0);
	hot = waiting(0, 0, 0);
	cold = waiting(0, 0, 0);
	rq = queue(0);
	rq->load = 3 * O26_LOAD;
	o26_requeue(rq, ctx(cold), lab_arrays_expired(&rq->arrays));
	CHECK(!script_schedule(1));
	EQUAL(queue(1)->domains[DOMAIN_CPU].failed, 1);
	run_for(O26_HOT_NS);
	ctx(hot)->last_ran_ns = script.now_ns;
	queue(1)->q.marked = true;
	CHECK(script_schedule(1) == cold);
	EQUAL(queue(1)->domains[DOMAIN_CPU].failed, 0);
	EQUAL(queue(0)->q.nr, 2);
	/* After two failures warm caches do not count. */
	script_block(1);
	script_of(cold)->mask.bits[0] = 2;
	queue(0)->load = 2 * O26_LOAD;
	queue(1)->load = 0;
	ctx(hot)->last_ran_ns = script.now_ns;
	queue(1)->domains[DOMAIN_CPU].failed = O26_NICE_TRIES;
	CHECK(!script_schedule(1));
	CHECK(script_schedule(1) == hot);
}

/* Warm is the cache of one that ran a short while ago, not of one that woke then. */
static void balance_warm_by_running(void)
{
	struct task_struct *woken, *displaced;

	start(2, 1);
	displaced = running_on(0, 0, 0);
	woken = task(0, 0, 0);
	run_for(O26_HOT_NS);
	woken->nr_cpus_allowed = 1;
	script_wake(woken, 0, 0);
	woken->nr_cpus_allowed = 2;
	queue(0)->load = 2 * O26_LOAD;
	queue(1)->load = 0;
	CHECK(script_schedule(1) == woken);
	script_block(1);
	CHECK(!script_schedule(1));
	/* One that has to wait has run until now, whenever it woke. */
	run_for(1000 * MS);
	waiting(0, -20, 0);
	script_preempt(0);
	CHECK(script_schedule(0) != displaced);
	queue(0)->load = 2 * O26_LOAD;
	queue(1)->load = 0;
	run_for(O26_HOT_NS - 1);
	CHECK(!script_schedule(1));
	run_for(1);
	CHECK(script_schedule(1) == displaced);
}

static void balance_keeps_array(void)
{
	struct task_struct *cold;
	rq_t *rq;

	start(2, 1);
	running_on(0, 0, 0);
	running_on(1, 0, 0);
	waiting(0, 0, 0);
	waiting(0, 0, 0);
	cold = waiting(0, 0, 0);
	rq = queue(0);
	rq->load = 4 * O26_LOAD;
	o26_requeue(rq, ctx(cold), lab_arrays_expired(&rq->arrays));
	run_for(64 * MS);
	queue(1)->load = O26_LOAD;
	script_tick(1);
	EQUAL(ctx(cold)->q.home, 1);
	CHECK(!in_active(cold));
	EQUAL(queue(0)->q.nr, 3);
}

/* Busy CPUs balance seldom, and less often while nothing is to be done. */
static void balance_interval(void)
{
	u32 i, calls = 0;
	u64 last;

	start(2, 1);
	running_on(0, 0, 0);
	running_on(1, 0, 0);
	script_tick(0);
	last = queue(0)->domains[DOMAIN_CPU].last_ns;
	for (i = 0; i < 128 + 256 + 256 - 1; i++) {
		run_for(MS);
		script.curr[0]->scx.slice = 1;
		script_tick(0);
		calls += queue(0)->domains[DOMAIN_CPU].last_ns != last;
		last = queue(0)->domains[DOMAIN_CPU].last_ns;
	}
	EQUAL(calls, 2);
}

/* The interval counts from when a balancing was due, not from a tick that came late. */
static void balance_after_a_late_tick(void)
{
	u64 start_ns, last;
	u32 i;

	start(2, 1);
	running_on(0, 0, 0);
	running_on(1, 0, 0);
	start_ns = last = script.now_ns;
	queue(0)->domains[DOMAIN_CPU].last_ns = last;
	queue(0)->domains[DOMAIN_CPU].interval_ms = 4;
	/* 64 ticks of 4 ms. */
	for (i = 1; i <= 640; i++) {
		script.now_ns = start_ns + i * 4 * MS + (i % 3 ? 0 : 400000);
		script.curr[0]->scx.slice = 1;
		script_tick(0);
		EQUAL(queue(0)->domains[DOMAIN_CPU].last_ns != last, i % 64 == 0);
		last = queue(0)->domains[DOMAIN_CPU].last_ns;
	}
}

/* Between nodes, from the longest queue of the busiest. */
static void balance_nodes(void)
{
	u32 i;

	start(4, 2);
	for (i = 0; i < 4; i++)
		running_on(i, 0, 0);
	for (i = 0; i < 6; i++)
		waiting(3, 0, 0);
	queue(3)->load = 7 * O26_LOAD;
	for (i = 0; i < 3; i++)
		queue(i)->load = O26_LOAD;
	run_for(300 * MS);
	script.cpu = 0;
	script_lock(&script.host, &queue(0)->q.lock.word, 0, NULL);
	CHECK(o26_balance(queue(0), DOMAIN_CPU, NULL));
	EQUAL(queue(0)->q.nr, 1);
	/* Node 0: 1 task a CPU, node 1: 4, on average 2.5: 1.5 for each of the two CPUs. */
	CHECK(o26_balance(queue(0), DOMAIN_NODE, NULL));
	EQUAL(queue(0)->q.nr, 4);
	EQUAL(queue(3)->q.nr, 4);
	script_unlock(&script.host, &queue(0)->q.lock.word);
}

static void idle_tick(void)
{
	start(4, 1);
	running_on(0, 0, 0);
	queue(1)->load = 160;
	script_timer_expires(0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2] + script.nr_kicks[3], 0);
	EQUAL(queue(1)->load, 10);
	waiting(0, 0, 0);
	script_timer_expires(0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2] + script.nr_kicks[3], 1);
	EQUAL(script.timer_ns, 4 * MS);
}

/* Real-time tasks are in the CPU's own arrays, ahead of all others. */
static void realtime(void)
{
	struct task_struct *fifo, *rr, *other;

	start(1, 1);
	other = running_on(0, -20, 1000);
	fifo = task(0, 0, 0);
	fifo->policy = LAB_SCHED_FIFO;
	fifo->rt_priority = 5;
	script_wake(fifo, 0, 0);
	EQUAL(ctx(fifo)->level, 94);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	script_preempt(0);
	CHECK(script_schedule(0) == fifo);
	rr = task(0, 0, 0);
	rr->policy = LAB_SCHED_RR;
	rr->rt_priority = 5;
	script_wake(rr, 0, 0);
	EQUAL(ticks_until_marked(0, 500), 500);
	script_yield(0);
	CHECK(script_schedule(0) == rr);
	EQUAL(ticks_until_marked(0, 500), 100);
	CHECK(script_schedule(0) == fifo);
	script_block(0);
	CHECK(script_schedule(0) == rr);
	script_block(0);
	CHECK(script_schedule(0) == other);
}

/* They are placed like all others. */
static void realtime_placement(void)
{
	struct task_struct *p;

	start(2, 1);
	running_on(0, 0, 0);
	p = task(0, 0, 0);
	p->policy = LAB_SCHED_FIFO;
	p->rt_priority = 5;
	ctx(p)->q.policy = LAB_SCHED_FIFO;
	/* Its CPU is busy, the other one is idle. */
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->q.home, 1);
	CHECK(script_schedule(1) == p);
	script_block(1);
	CHECK(!script_schedule(1));
	/* Both are busy, its cache is cold: the waker's. */
	running_on(1, 0, 0);
	run_for(O26_HOT_NS);
	queue(0)->load = queue(1)->load = O26_LOAD;
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->q.home, 0);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
}

/* One task is examined and one lock taken, however many wait. */
static void constant_cost(void)
{
	u32 i;

	start(1, 1);
	running_on(0, 0, 0);
	for (i = 0; i < 900; i++) {
		waiting(0, (s32)(i % 40) - 20, i % 1000);
		script.probes[LAB_EXAMINED] = 0;
		script.nr_locks = 0;
		queue(0)->q.marked = true;
		script_preempt(0);
		CHECK(script_schedule(0));
		EQUAL(script.probes[LAB_EXAMINED], 1);
		EQUAL(script.nr_locks, 1);
	}
}

/* CPU hogs get what their slices say. */
static void fair_slices(void)
{
	static const s32 nice[] = { 0, 0, -5, 10, 19 };
	struct task_struct *p[5];
	u64 ran[5] = { }, round = 0;
	u32 i, ms;

	start(1, 1);
	for (i = 0; i < 5; i++) {
		p[i] = waiting(0, nice[i], 0);
		/* Hogs for long: what they wait is no sleep. */
		ctx(p[i])->woken = NOT_WOKEN;
		round += o26_slice_ms(nice[i]);
	}
	CHECK(script_schedule(0));
	for (ms = 0; ms < 10 * round; ms++) {
		for (i = 0; i < 5; i++)
			ran[i] += script.curr[0] == p[i];
		run_for(MS);
		script_tick(0);
		script_schedule(0);
	}
	for (i = 0; i < 5; i++)
		EQUAL(ran[i], 10 * o26_slice_ms(nice[i]));
}

static void nice_change(void)
{
	struct task_struct *a;

	start(1, 1);
	a = waiting(0, 0, 500);
	script_change_begin(a);
	EQUAL(queue(0)->q.nr, 0);
	script.cpu = 0;
	a->static_prio = 130;
	script_enqueue(a, 0);
	EQUAL(ctx(a)->level, 130);
}

/* No task gains a turn by it: one that has had its slice waits on with those that had theirs. */
static void nice_change_keeps_the_array(void)
{
	struct task_struct *a;

	start(1, 1);
	running_on(0, 0, 500);
	a = waiting(0, 0, 500);
	o26_requeue(queue(0), ctx(a), lab_arrays_expired(&queue(0)->arrays));
	script_change_begin(a);
	a->static_prio = 119;
	script.cpu = 0;
	script_enqueue(a, 0);
	CHECK(!in_active(a));

	/* Of another policy it begins anew. */
	script_change_begin(a);
	a->policy = 3;
	script_enqueue(a, 0);
	CHECK(in_active(a));
}

static void start_random(u32 cpus)
{
	start(cpus, 2);
}

#define RANDOM_START start_random
#include "percpu.h"

static void lost_its_cpu(void)
{
	start(1, 1);
	loses_its_cpu(running_on(0, 0, 500));
}

TESTS(TEST(t1_slices), TEST(t2_bonus), TEST(t3_interactive_sleep), TEST(t4_granularity),
      TEST(t5_wakeup_gain), TEST(t6_running_costs), TEST(interactive), TEST(wait_counts),
      TEST(runnable_before),
      TEST(expiry), TEST(starvation), TEST(starvation_bound),
      TEST(starvation_by_nice), TEST(granularity),
      TEST(fork_splits_slice), TEST(exit_returns), TEST(yield_expires), TEST(wake_affine),
      TEST(wake_idle), TEST(wakeup_preempts), TEST(load), TEST(imbalance), TEST(balance),
      TEST(balance_warm_by_running), TEST(balance_keeps_array), TEST(balance_interval),
      TEST(balance_after_a_late_tick), TEST(balance_nodes), TEST(idle_tick), TEST(realtime),
      TEST(realtime_placement), TEST(constant_cost), TEST(fair_slices), TEST(nice_change), TEST(nice_change_keeps_the_array),
      TEST(random_operations),
      TEST(lost_its_cpu))
