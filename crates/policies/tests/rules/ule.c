/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/ule.md, one test a rule. `ule NAME` runs one. */
#define POLICY "../../../../policies/ule.bpf.c"
#define OPS ule_ops
#include "script.h"

#define MS	1000000ull

enum { M0, M1 };	/* address spaces; 0 = kernel thread */

static u32 script_nodes = 1, script_random;
static u32 script_core_cpus;

static u32 nr_node_ids(struct lab_host *h) { return script_nodes; }
static s32 cpu_node(struct lab_host *h, s32 cpu) { return cpu * script_nodes / script.nr_cpus; }
static u32 random_number(struct lab_host *h) { return script_random; }
static u32 next_random(struct lab_host *h) { return script_random += 37; }

static void start(u32 cpus, u32 nodes)
{
	script_nodes = nodes;
	script_prepare(cpus);
	script.core_cpus = script_core_cpus;
	script.host.nr_node_ids = nr_node_ids;
	script.host.cpu_node = cpu_node;
	script.host.random = random_number;
	script.now_ns = 100000 * MS;
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
	return ule_rq(rq_at(cpu));
}

/* A thread that sleeps on `cpu`, its cache long cold; a score of 50 or of 0. */
static struct task_struct *thread(s32 cpu, s32 nice, bool interactive)
{
	struct task_struct *p = script_fork(NULL, nice, M1);
	task_t *t = ctx(p);

	p->__lab_cpu = cpu;
	t->lab.cpu = t->q.home = cpu;
	t->sleep_us = interactive ? 1000000 : 1;
	t->run_us = interactive ? 1 : 1000000;
	return p;
}

static struct task_struct *task(s32 cpu, s32 nice, u32 unused)
{
	return thread(cpu, nice, unused % 3 == 0);
}

static struct task_struct *waiting(s32 cpu, s32 nice, bool interactive)
{
	struct task_struct *p = thread(cpu, nice, interactive);

	p->nr_cpus_allowed = 1;
	script_wake(p, cpu, 0);
	p->nr_cpus_allowed = script.nr_cpus;
	EQUAL(ctx(p)->q.home, cpu);
	return p;
}

static struct task_struct *running_on(s32 cpu, s32 nice, bool interactive)
{
	struct task_struct *p = waiting(cpu, nice, interactive);

	CHECK(!script.curr[cpu]);
	CHECK(script_schedule(cpu) == p);
	script_calm();
	return p;
}

static void t1_score(void)
{
	EQUAL(ule_score(0, 0), 50);
	EQUAL(ule_score(0, 1000), 0);
	EQUAL(ule_score(100, 1000), 5);
	EQUAL(ule_score(200, 1000), 10);
	EQUAL(ule_score(300, 1000), 15);
	EQUAL(ule_score(580, 1000), 29);
	EQUAL(ule_score(600, 1000), 30);
	EQUAL(ule_score(1000, 1000), 50);
	EQUAL(ule_score(2000, 1000), 50);
	EQUAL(ule_score(100, 10000), 0);
	interact_threshold = 60;
	EQUAL(ule_score(2000, 1000), 75);
}

static void t2_priority(void)
{
	EQUAL(ule_timeshare_pri(0, 0, 0), 120);
	EQUAL(ule_timeshare_pri(10, 0, 0), 130);
	EQUAL(ule_timeshare_pri(29, 0, 0), 149);
	EQUAL(ule_timeshare_pri(30, 0, 0), 172);
	EQUAL(ule_timeshare_pri(50, 0, 32), 203);
	EQUAL(ule_timeshare_pri(50, 19, 31), 222);
	EQUAL(ule_timeshare_pri(50, -20, 0), 152);
	EQUAL(ule_timeshare_pri(10, -20, 0), 120);
	EQUAL(ule_timeshare_pri(10, 19, 0), 149);
	EQUAL(ule_timeshare_pri(15, 19, 5), 196);
}

static void t3_calendar(void)
{
	EQUAL(ule_slot(152, 0, 0), 0);
	EQUAL(ule_slot(172, 0, 0), 17);
	EQUAL(ule_slot(187, 0, 0), 31);
	EQUAL(ule_slot(203, 0, 0), 45);
	EQUAL(ule_slot(222, 0, 0), 62);
	EQUAL(ule_slot(223, 0, 0), 63);
	EQUAL(ule_slot(152, 5, 3), 5);
	EQUAL(ule_slot(221, 5, 3), 2);
	EQUAL(ule_slot(222, 5, 3), 2);
}

static void t4_slices(void)
{
	static const u32 expected[] = { 12, 12, 6, 4, 3, 2, 2, 2 };
	u32 i;

	for (i = 0; i < 8; i++)
		EQUAL(ule_slice(i), 12);
	slices = SLICES_BY_LOAD;
	for (i = 0; i < 8; i++)
		EQUAL(ule_slice(i), expected[i]);
}

static void t5_balance_period(void)
{
	u32 i, least = 1000, most = 0;

	for (i = 0; i < 1000; i++) {
		least = ule_balance_ticks(i) < least ? ule_balance_ticks(i) : least;
		most = ule_balance_ticks(i) > most ? ule_balance_ticks(i) : most;
	}
	EQUAL(least, 63);
	EQUAL(most, 189);
	/* Drawn anew each time. */
	script_random = 5;
	start(2, 1);
	EQUAL(script.timer_ns, 68 * ULE_STAT_NS);
	script_random = 100;
	script_timer_expires(0);
	EQUAL(script.timer_ns, 163 * ULE_STAT_NS);
}

static void loads(const u32 *before, const u32 *after, u32 cpus)
{
	u32 cpu, i;

	start(cpus, 1);
	for (cpu = 0; cpu < cpus; cpu++)
		for (i = 0; i < before[cpu]; i++)
			waiting(cpu, 0, false);
	script_timer_expires(0);
	for (cpu = 0; cpu < cpus; cpu++)
		EQUAL(queue(cpu)->q.nr, after[cpu]);
}

static void t6_balance(void)
{
	static const u32 before[] = { 4, 0, 2, 1 }, after[] = { 3, 1, 1, 2 };

	loads(before, after, 4);
}

static void t6_balanced(void)
{
	static const u32 even[] = { 1, 1, 1, 1 };

	loads(even, even, 4);
}

static void t6_one_move(void)
{
	static const u32 before[] = { 5, 0 }, after[] = { 4, 1 };

	loads(before, after, 2);
}

/* Where nothing may go to the least loaded CPU the next one is tried. */
static void balance_next_receiver(void)
{
	struct task_struct *p;
	u32 i;

	start(3, 1);
	waiting(2, 0, false);
	for (i = 0; i < 4; i++) {
		p = waiting(0, 0, false);
		script_change_begin(p);
		script_of(p)->mask.bits[0] = 5;
		script.cpu = 0;
		script_enqueue(p, 0);
	}
	script_timer_expires(0);
	EQUAL(queue(0)->q.nr, 3);
	EQUAL(queue(1)->q.nr, 0);
	EQUAL(queue(2)->q.nr, 2);
}

static void history(task_t *t, u64 run_ms, u64 sleep_ms)
{
	t->run_us = run_ms * 1000;
	t->sleep_us = sleep_ms * 1000;
}

static void t7_history(void)
{
	task_t *t;

	start(1, 1);
	t = ctx(thread(0, 0, false));
	history(t, 3000, 4000);
	ule_fade(t);
	EQUAL(t->run_us, 1500000);
	EQUAL(t->sleep_us, 2000000);
	history(t, 2500, 3000);
	ule_fade(t);
	EQUAL(t->run_us, 2000000);
	EQUAL(t->sleep_us, 2400000);
	history(t, 9000, 2000);
	ule_fade(t);
	EQUAL(t->run_us, 5000000);
	EQUAL(t->sleep_us, 1);
	history(t, 2000, 9000);
	ule_fade(t);
	EQUAL(t->run_us, 1);
	EQUAL(t->sleep_us, 5000000);
	history(t, 2000, 2000);
	ule_fade(t);
	EQUAL(t->run_us, 2000000);
	/* A forked one's. */
	history(t, 2000, 2000);
	ule_fade_child(t);
	EQUAL(t->run_us + t->sleep_us, 500000);
	history(t, 200, 300);
	ule_fade_child(t);
	EQUAL(t->run_us, 200000);
}

/* CPU use over about ten seconds. */
static void cpu_use(void)
{
	task_t *t;
	u32 i;

	start(1, 1);
	t = ctx(thread(0, 0, false));
	t->first_us = t->last_us = 0;
	for (i = 1; i <= 500; i++)
		ule_use(t, i * 100000, i % 2);
	/* Half, of a window of 10 to 11 s. */
	CHECK(ule_part(t) == 15 || ule_part(t) == 16);
	ule_use(t, 500 * 100000 + 10000000, false);
	EQUAL(ule_part(t), 0);
	ule_use(t, 500 * 100000 + 20000000, true);
	CHECK(ule_part(t) >= 31);
}

static void preemption(void)
{
	CHECK(!ule_should_preempt(150, 150, true));
	CHECK(ule_should_preempt(223, 224, false));
	CHECK(ule_should_preempt(80, 120, false));
	CHECK(!ule_should_preempt(120, 180, false));
	CHECK(ule_should_preempt(120, 180, true));
	CHECK(!ule_should_preempt(120, 130, true));
	CHECK(!ule_should_preempt(160, 180, true));
}

/* On the waker's CPU any better priority counts; on another one few do, and one interrupt. */
static void notify(void)
{
	task_t *batch, *interactive;

	start(2, 1);
	running_on(0, 10, false);
	running_on(1, 10, false);
	batch = ctx(thread(0, 0, false));
	interactive = ctx(thread(0, 0, true));
	ule_update_pri(batch);
	ule_update_pri(interactive);
	CHECK(batch->pri < ctx(script.curr[0])->pri);
	ule_notify(queue(0), batch, false);
	EQUAL(script.nr_kicks[0], 1);
	ule_notify(queue(1), batch, true);
	EQUAL(script.nr_kicks[1], 0);
	ule_notify(queue(1), interactive, true);
	ule_notify(queue(1), interactive, true);
	EQUAL(script.nr_kicks[1], 1);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
}

/* Interactive threads first, by priority; batch threads by the calendar; idle ones last. */
static void choice(void)
{
	struct task_struct *idle, *nice, *batch, *interactive, *rt;

	start(1, 1);
	idle = thread(0, 0, true);
	idle->policy = LAB_SCHED_IDLE;
	script_wake(idle, 0, 0);
	nice = waiting(0, 19, false);
	batch = waiting(0, 0, false);
	interactive = waiting(0, 0, true);
	rt = thread(0, 0, false);
	rt->policy = LAB_SCHED_FIFO;
	rt->rt_priority = 1;
	script_wake(rt, 0, 0);
	CHECK(script_schedule(0) == rt);
	script_block(0);
	CHECK(script_schedule(0) == interactive);
	script_block(0);
	CHECK(script_schedule(0) == batch);
	script_block(0);
	CHECK(script_schedule(0) == nice);
	script_block(0);
	CHECK(script_schedule(0) == idle);
	EQUAL(queue(0)->lowpri, 224);
	script_block(0);
	CHECK(!script_schedule(0));
	EQUAL(queue(0)->lowpri, 255);
}

/* Ticks of a millisecond until the slice of the thread on CPU 0 has ended. */
static u32 ticks_of_slice(void)
{
	struct task_struct *p = script.curr[0];
	u32 ran = 0;

	while (p->scx.slice && ran < 1000) {
		script.now_ns += MS;
		script_tick(0);
		ran++;
	}
	return ran;
}

/* The end of a slice: to the calendar; any other displacement: to the head of the current slot. */
static void slice_and_preemption(void)
{
	struct task_struct *a, *b, *i;

	start(1, 1);
	a = running_on(0, 0, false);
	b = waiting(0, 0, false);
	/* 12 ticks of 127 Hz. */
	EQUAL(ticks_of_slice(), 95);
	CHECK(script_schedule(0) == b);
	EQUAL(ctx(a)->left_ns, 12 * ULE_STAT_NS);
	CHECK(ctx(a)->slot != queue(0)->ridx);
	/* An interactive one comes between: B goes on before A. */
	i = waiting(0, 0, true);
	script_preempt(0);
	CHECK(script_schedule(0) == i);
	EQUAL(ctx(b)->slot, queue(0)->ridx);
	script_block(0);
	CHECK(script_schedule(0) == b);
}

/* By load: 2 ticks of 127 Hz beside six others, whether a thread has woken, is new or goes on. */
static void slices_by_load(void)
{
	struct task_struct *b, *child;
	u32 i;

	slices = SLICES_BY_LOAD;
	start(1, 1);
	running_on(0, 0, false);
	b = thread(0, 0, false);
	script_wake(b, 0, 0);
	for (i = 0; i < 5; i++)
		waiting(0, 0, false);
	EQUAL(ticks_of_slice(), 16);
	CHECK(script_schedule(0) == b);
	EQUAL(ticks_of_slice(), 16);
	/* Forked beside six others: that is with seven in all, the parent included. */
	child = script_fork(b, 0, M1);
	script_wake(child, 0, SCX_WAKE_FORK);
	for (i = 0; i < 20 && script_schedule(0) != child; i++)
		ticks_of_slice();
	CHECK(script.curr[0] == child);
	EQUAL(ticks_of_slice(), 16);
	/* It is as long as the present load requires: of two threads each has 12 ticks. */
	CHECK(script_schedule(0) != child);
	for (i = 0; i < 6; i++) {
		script_block(0);
		CHECK(script_schedule(0));
	}
	EQUAL(queue(0)->q.nr, 2);
	EQUAL(ticks_of_slice(), 95);
	script_schedule(0);
	/* Its used time counts when others come. */
	for (i = 0; i < 50; i++) {
		script.now_ns += MS;
		script_tick(0);
	}
	CHECK(script.curr[0]->scx.slice);
	for (i = 0; i < 5; i++)
		waiting(0, 0, false);
	EQUAL(ticks_of_slice(), 1);
}

/* The calendar goes on with the stat clock, and waits for a slot that is not empty. */
static void calendar_clock(void)
{
	rq_t *rq;

	start(1, 1);
	running_on(0, 0, true);
	rq = queue(0);
	rq->next_stat_ns = script.now_ns + ULE_STAT_NS;
	script.now_ns += ULE_STAT_NS - 1;
	script_tick(0);
	EQUAL(rq->idx, 0);
	script.now_ns++;
	script_tick(0);
	EQUAL(rq->idx, 1);
	EQUAL(rq->ridx, 1);
	/* Two at once. */
	script.now_ns += 2 * ULE_STAT_NS;
	script_tick(0);
	EQUAL(rq->ridx, 3);
	/* A thread in the slot that is being emptied: the calendar stops one slot on. */
	EQUAL(ctx(waiting(0, -20, false))->slot, 3);
	script.now_ns += ULE_STAT_NS;
	script_tick(0);
	EQUAL(rq->idx, 4);
	EQUAL(rq->ridx, 3);
	script.now_ns += 10 * ULE_STAT_NS;
	script_tick(0);
	EQUAL(rq->idx, 4);
	EQUAL(rq->ridx, 3);
}

/* It goes on as the last thread of the slot leaves, and the clock then moves both. */
static void calendar_goes_on(void)
{
	struct task_struct *first, *last;
	rq_t *rq;

	start(1, 1);
	running_on(0, 0, true);
	rq = queue(0);
	rq->next_stat_ns = script.now_ns + ULE_STAT_NS;
	first = waiting(0, -20, false);
	last = waiting(0, -20, false);
	EQUAL(ctx(first)->slot, 0);
	EQUAL(ctx(last)->slot, 0);
	script.now_ns += ULE_STAT_NS;
	script_tick(0);
	script_block(0);
	CHECK(script_schedule(0) == first);
	EQUAL(rq->idx, 1);
	EQUAL(rq->ridx, 0);
	script_block(0);
	CHECK(script_schedule(0) == last);
	EQUAL(rq->idx, 1);
	EQUAL(rq->ridx, 1);
	script.now_ns += ULE_STAT_NS;
	script_tick(0);
	EQUAL(rq->idx, 2);
	EQUAL(rq->ridx, 2);
}

/* Every slot's turn comes: the worst batch thread waits for the calendar's length and a slice. */
static void worst_batch_thread_runs(void)
{
	struct task_struct *worst;
	u64 since, longest = 0;
	u32 i;

	start(1, 1);
	running_on(0, -20, false);
	worst = waiting(0, 19, false);
	since = script.now_ns;
	for (i = 0; i < 20000; i++) {
		script.now_ns += MS;
		script_tick(0);
		if (script_schedule(0) == worst)
			since = script.now_ns;
		if (script.now_ns - since > longest)
			longest = script.now_ns - since;
	}
	CHECK(longest <= (ULE_SLOTS + ULE_SLICE) * ULE_STAT_NS + MS);
}

static void fork_and_exit(void)
{
	struct task_struct *parent, *child;

	start(1, 1);
	parent = running_on(0, 0, false);
	history(ctx(parent), 1000, 3000);
	child = script_fork(parent, 0, M1);
	/* 4 s are 8 times too much. */
	EQUAL(ctx(child)->run_us, 125000);
	EQUAL(ctx(child)->sleep_us, 375000);
	EQUAL(ctx(child)->left_ns, ULE_STAT_NS);
	EQUAL(ctx(parent)->run_us, 1000000 + ULE_STAT_US);
	script_exit_task(child);
	EQUAL(ctx(parent)->run_us, 1125000 + ULE_STAT_US);
}

/* Sleep makes interactive; what it slept is seen before it is placed. */
static void wakeup_refills(void)
{
	struct task_struct *p;

	start(1, 1);
	p = running_on(0, 0, false);
	history(ctx(p), 500, 400);
	ctx(p)->left_ns = 1;
	script_block(0);
	script_schedule(0);
	script.now_ns += 1100 * MS;
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->sleep_us, 1500000);
	EQUAL(ctx(p)->left_ns, 12 * ULE_STAT_NS);
	EQUAL(ctx(p)->pri, 120 + 500000 / 30000);
}

static void placement_warm(void)
{
	struct task_struct *p;
	task_t *t;

	start(4, 2);
	p = thread(1, 0, false);
	t = ctx(p);
	ule_update_pri(t);
	/* Idle and warm. */
	EQUAL(ule_pick_cpu(t, 1, 3, t->stopped_ns + ULE_WARM_CPU_NS - 1), 1);
	/* Busy: an idle one of its node, while that is warm. */
	running_on(1, 0, false);
	EQUAL(ule_pick_cpu(t, 1, 3, t->stopped_ns + ULE_WARM_NODE_NS - 1), 0);
	/* Cold: the node with least to do. */
	CHECK(ule_pick_cpu(t, 1, 3, t->stopped_ns + ULE_WARM_NODE_NS) >= 2);
	/* Where it may go. */
	script_of(p)->mask.bits[0] = 2;
	lab_task_refresh(&t->lab, p);
	EQUAL(ule_pick_cpu(t, 1, 3, t->stopped_ns + ULE_WARM_NODE_NS), 1);
}

static void placement_busy(void)
{
	task_t *batch, *interactive;
	s32 cpu;

	start(3, 1);
	for (cpu = 0; cpu < 3; cpu++)
		running_on(cpu, 0, false);
	waiting(0, 0, false);
	waiting(1, 0, false);
	batch = ctx(thread(0, 0, false));
	interactive = ctx(thread(0, 0, true));
	ule_update_pri(batch);
	batch->pri = 223;
	ule_update_pri(interactive);
	/* No thread would make way for it: the least loaded. */
	EQUAL(ule_pick_cpu(batch, 0, 0, script.now_ns + 1000 * MS), 2);
	/* It could run at once here, and that is not much worse. */
	EQUAL(ule_pick_cpu(interactive, 0, 0, script.now_ns + 1000 * MS), 0);
	waiting(0, 0, false);
	EQUAL(ule_pick_cpu(interactive, 0, 0, script.now_ns + 1000 * MS), 2);
}

/* A core is free for its threads; of equally loaded cores, and nodes, it is the one where the thread was last. */
static void placement_cores(void)
{
	struct task_struct *p;
	task_t *t;
	u32 i;

	script_core_cpus = 2;
	start(8, 2);
	script_core_cpus = 0;
	p = thread(4, 0, false);
	t = ctx(p);
	ule_update_pri(t);
	running_on(4, 0, false);
	running_on(0, 0, false);
	script.host.random = next_random;
	/* Both nodes have one thread; the one of the last CPU has an idle core. */
	for (i = 0; i < 64; i++)
		EQUAL(ule_pick_cpu(t, 4, 4, script.now_ns + 1000 * MS) / 2, 3);
	running_on(2, 0, false);
	running_on(6, 0, false);
	/* No core is idle. */
	for (i = 0; i < 64; i++)
		EQUAL(ule_pick_cpu(t, 4, 4, script.now_ns + 1000 * MS), 5);
}

/* A CPU without work steals from one with two or more, its node's first. */
static void steal(void)
{
	struct task_struct *near, *far[3];
	u32 i;

	start(4, 2);
	running_on(0, 0, false);
	CHECK(!script_schedule(1));
	for (i = 0; i < 3; i++)
		far[i] = waiting(3, 0, false);
	near = waiting(0, 0, false);
	CHECK(script_schedule(1) == near);
	script_block(1);
	/* Not the one that would be next there. */
	CHECK(script_schedule(1) == far[1]);
	EQUAL(queue(3)->q.nr, 2);
	/* Interactive ones go first. */
	far[0] = waiting(3, 0, true);
	script_block(1);
	CHECK(script_schedule(1) == far[0]);
}

static void yield_stays_in_the_slot(void)
{
	struct task_struct *a, *b;

	start(1, 1);
	a = running_on(0, 0, false);
	b = waiting(0, 0, false);
	/* The calendar's current slot is not B's: A is chosen again. */
	script_yield(0);
	CHECK(script_schedule(0) == a);
	/* With another one in it A is behind. */
	script.cpu = 0;
	ule_take(queue(0), ctx(b));
	ctx(b)->put = PUT_PREEMPTED;
	ule_put(queue(0), ctx(b));
	script_yield(0);
	CHECK(script_schedule(0) == b);
}

static void constant_cost(void)
{
	u32 i;

	start(1, 1);
	running_on(0, 0, false);
	for (i = 0; i < 900; i++) {
		waiting(0, (s32)(i % 40) - 20, i % 2);
		script.probes[LAB_EXAMINED] = 0;
		script.nr_locks = 0;
		queue(0)->q.marked = true;
		script_preempt(0);
		CHECK(script_schedule(0));
		EQUAL(script.probes[LAB_EXAMINED], 1);
		EQUAL(script.nr_locks, 1);
	}
}

static void start_random(u32 cpus)
{
	start(cpus, 2);
}

#define RANDOM_START start_random
#define RANDOM_LISTED(t) ((t)->queue != QUEUE_NONE)
#define RANDOM_LISTED_RUNNING false
#include "percpu.h"

static void lost_its_cpu(void)
{
	start(1, 1);
	loses_its_cpu(running_on(0, 0, false));
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(interact_threshold, 120, start(1, 1));
}

TESTS(TEST(t1_score), TEST(t2_priority), TEST(t3_calendar), TEST(t4_slices),
      TEST(t5_balance_period), TEST(t6_balance), TEST(t6_balanced), TEST(t6_one_move), TEST(balance_next_receiver),
      TEST(t7_history), TEST(cpu_use), TEST(preemption), TEST(notify), TEST(choice),
      TEST(slice_and_preemption), TEST(slices_by_load), TEST(calendar_clock), TEST(calendar_goes_on),
      TEST(worst_batch_thread_runs), TEST(fork_and_exit), TEST(wakeup_refills),
      TEST(placement_warm), TEST(placement_busy), TEST(placement_cores), TEST(steal),
      TEST(yield_stays_in_the_slot), TEST(constant_cost), TEST(random_operations),
      TEST(lost_its_cpu), TEST(option_ranges))
