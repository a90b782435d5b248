/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/o1.md, one test a rule. `o1 NAME` runs one. */
#define POLICY "../../../../policies/o1.bpf.c"
#define OPS o1_ops
#include "script.h"

enum { M0, M1, M2, M3, M4 };	/* address spaces; 0 = kernel thread */

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

static rq_t *queue(s32 cpu)
{
	return o1_rq(rq_at(cpu));
}

/* A task that sleeps on `cpu`, with a priority that waking does not change. */
static struct task_struct *task(s32 cpu, s32 nice, s32 prio)
{
	struct task_struct *p = script_fork(NULL, nice, M1);
	task_t *t = ctx(p);

	p->__lab_cpu = cpu;
	t->lab.cpu = t->q.home = cpu;
	t->prio = prio;
	t->updated = o1_ticks(script.now_ns);
	return p;
}

static struct task_struct *waiting(s32 cpu, s32 nice, s32 prio)
{
	struct task_struct *p = task(cpu, nice, prio);

	script_wake(p, cpu, 0);
	EQUAL(ctx(p)->prio, prio);
	return p;
}

static struct task_struct *running_on(s32 cpu, s32 nice, s32 prio)
{
	struct task_struct *p = waiting(cpu, nice, prio);

	CHECK(!script.curr[cpu]);
	CHECK(script_schedule(cpu) == p);
	script_calm();
	return p;
}

static struct task_struct *make_rt(struct task_struct *p, u32 policy, u32 prio)
{
	p->policy = policy;
	p->rt_priority = prio;
	return p;
}

static struct task_struct *realtime(s32 cpu, u32 policy, u32 prio)
{
	struct task_struct *p = make_rt(task(cpu, 0, 44), policy, prio);

	script_wake(p, cpu, 0);
	return p;
}

/* The CPU has got what it was sent, and chooses. */
static struct task_struct *interrupted(s32 cpu)
{
	if (script.kicks[cpu] & SCX_KICK_PREEMPT)
		script_preempt(cpu);
	script.kicks[cpu] = 0;
	return script_schedule(cpu);
}

static bool in_active(struct task_struct *p)
{
	rq_t *rq = queue(ctx(p)->q.home);

	CHECK(ctx(p)->q.linked && !ctx(p)->realtime);
	return ctx(p)->array == lab_arrays_active(&rq->arrays);
}

static task_t *history(s32 a, s32 b, s32 c, s32 d)
{
	task_t *t = ctx(script_fork(NULL, 0, M1));

	t->hist[0] = a;
	t->hist[1] = b;
	t->hist[2] = c;
	t->hist[3] = d;
	return t;
}

/* The priority that the history gives at `now` ticks. */
static s32 prio_at(task_t *t, s32 nice, u64 now)
{
	t->q.nice = nice;
	t->prio = 50;
	t->updated = 0;
	o1_update_prio(t, now);
	return t->prio;
}

static void t1_no_sleep(void)
{
	task_t *t;

	script_start(1);
	t = history(0, 0, 0, 0);
	EQUAL(o1_sleep(t, 450), 0);
	EQUAL(o1_penalty(t, 450), 21);
	EQUAL(prio_at(t, 0, 450), 63);
	EQUAL(prio_at(t, -20, 450), 45);
	EQUAL(prio_at(t, 19, 450), 63);
}

static void t2_half_asleep(void)
{
	task_t *t;

	script_start(1);
	t = history(50, 50, 50, 25);
	EQUAL(o1_sleep(t, 450), 50);
	EQUAL(o1_penalty(t, 450), 10);
	EQUAL(prio_at(t, 0, 450), 54);
}

static void t3_always_asleep(void)
{
	task_t *t;

	script_start(1);
	t = history(100, 100, 100, 50);
	EQUAL(o1_sleep(t, 450), 100);
	EQUAL(o1_penalty(t, 450), 0);
	EQUAL(prio_at(t, 0, 450), 50);
}

static void t4_one_second(void)
{
	task_t *t;

	script_start(1);
	t = history(0, 100, 0, 0);
	EQUAL(o1_sleep(t, 400), 33);
	EQUAL(o1_penalty(t, 400), 14);
	EQUAL(prio_at(t, 0, 400), 58);
}

static void t5_stale_slot(void)
{
	task_t *t;

	script_start(1);
	t = history(0, 0, 0, 0);
	t->sleep_ts = 150;
	o1_activate(t, 370);
	EQUAL(t->hist[0], 50);
	EQUAL(t->hist[1], 0);
	EQUAL(t->hist[2], 70);
	EQUAL(t->hist[3], 0);
	EQUAL(t->idx, 2);
	EQUAL(o1_sleep(t, 370), 32);
	EQUAL(t->run_ts, 370);
}

static void t6_active_before_expired(void)
{
	struct task_struct *x, *y;

	script_start(1);
	x = waiting(0, 0, 63);
	y = waiting(0, -20, 24);
	o1_requeue(queue(0), ctx(y), lab_arrays_expired(&queue(0)->arrays), 24);
	CHECK(script_schedule(0) == x);
	CHECK(!in_active(y));
	script_block(0);
	CHECK(script_schedule(0) == y);
	CHECK(in_active(y));
}

static void t7_slices(void)
{
	EQUAL(o1_slice(-20), 15);
	EQUAL(o1_slice(-10), 12);
	EQUAL(o1_slice(0), 9);
	EQUAL(o1_slice(10), 6);
	EQUAL(o1_slice(19), 3);
}

/* However often the timer interrupts, a CPU balances at most 100 times a second. */
static void t8_balance_rate(void)
{
	u32 i, calls = 0;
	u64 last = 0;

	script_start(2);
	running_on(0, 0, 50);
	for (i = 0; i < 1000; i++) {
		script.now_ns += 1000000;
		script_tick(0);
		calls += queue(0)->balanced_ns != last;
		last = queue(0)->balanced_ns;
	}
	EQUAL(calls, 100);
}

/* At 100 Hz every tick balances, also the one after a tick that was handled late. */
static void balance_after_a_late_tick(void)
{
	u32 i, calls = 0;
	u64 start, last = 0;

	script_start(2);
	running_on(0, 0, 50);
	start = script.now_ns;
	for (i = 1; i <= 100; i++) {
		script.now_ns = start + i * 10000000ull + (i % 3 ? 0 : 400000);
		script_tick(0);
		calls += queue(0)->balanced_ns != last;
		last = queue(0)->balanced_ns;
	}
	EQUAL(calls, 100);
	/* Not a tick of 1000 Hz too early. */
	script.now_ns += 9000000;
	script_tick(0);
	EQUAL(queue(0)->balanced_ns, last);
}

/* Running through seconds clears their slots. */
static void history_of_running(void)
{
	task_t *t;

	script_start(1);
	t = history(100, 90, 80, 70);
	t->run_ts = 150;
	o1_deactivate(t, 190);
	EQUAL(t->idx, 0);
	EQUAL(t->hist[0], 100);
	t->run_ts = 150;
	o1_deactivate(t, 310);
	EQUAL(t->idx, 2);
	EQUAL(t->hist[1] + t->hist[2], 0);
	EQUAL(t->hist[0], 100);
	EQUAL(t->hist[3], 70);
	t->run_ts = 150;
	o1_deactivate(t, 550);
	EQUAL(t->idx, 0);
	EQUAL(t->hist[0] + t->hist[1] + t->hist[2] + t->hist[3], 0);
	EQUAL(t->sleep_ts, 550);
	/* Within one second of sleep, and more than the ring. */
	o1_activate(t, 580);
	EQUAL(t->hist[0], 30);
	t->sleep_ts = 580;
	o1_activate(t, 1234);
	EQUAL(t->hist[0], 34);
	EQUAL(t->hist[1] + t->hist[2] + t->hist[3], 300);
}

/* The running task's slice ends: it waits until all others had theirs. */
static void expiry(void)
{
	struct task_struct *a, *b;
	u32 i;

	script_start(1);
	a = running_on(0, 0, 40);
	b = waiting(0, 0, 60);
	for (i = 0; i < 8; i++) {
		script.now_ns += 10000000;
		ctx(a)->updated = o1_ticks(script.now_ns);
		script_tick(0);
		CHECK(in_active(a) && a->scx.slice);
	}
	script.now_ns += 10000000;
	script_tick(0);
	CHECK(!in_active(a) && !a->scx.slice);
	EQUAL(ctx(a)->left, 9);
	EQUAL(script_schedule(0), b);
	/* A woken task with time left is ahead of expired ones, whatever its priority. */
	script_wake(task(0, 0, 63), 0, 0);
	script_block(0);
	CHECK(script_schedule(0) != a);
	script_block(0);
	CHECK(script_schedule(0) == a);
}

/* Its sleep and its run are in its priority at each tick, and it goes behind its new equals. */
static void refreshed_by_tick(void)
{
	struct task_struct *a;

	script_start(1);
	a = running_on(0, 0, 44);
	script.now_ns += 10000000;
	script_tick(0);
	EQUAL(ctx(a)->prio, 63);
	EQUAL(ctx(a)->level, 63);
	CHECK(in_active(a) && a->scx.slice);
}

static void wakeup_preempts(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 0, 50);
	script_wake(task(0, 0, 50), 0, 0);
	EQUAL(script.nr_kicks[0], 0);
	p = task(0, 0, 49);
	script_wake(p, 1, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[1], 0);
	CHECK(interrupted(0) == p);
	/* It wakes where it ran last, idle or not. */
	script_wake(task(1, 0, 63), 0, 0);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
}

static void fork_splits_slice(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	parent = running_on(0, 0, 50);
	waiting(0, 0, 50);
	ctx(parent)->left = 7;
	ctx(parent)->hist[1] = 33;
	ctx(parent)->hist[0] = 5;
	child = script_fork(parent, 0, M1);
	EQUAL(ctx(child)->left, 4);
	EQUAL(ctx(parent)->left, 3);
	EQUAL(ctx(child)->hist[1], 33);
	EQUAL(ctx(child)->hist[0], 0);
	ctx(child)->updated = 0;
	script_wake(child, 0, SCX_WAKE_FORK);
	/* The child runs first: it is just before its parent, which is marked. */
	EQUAL(ctx(child)->prio, 50);
	CHECK(ctx(child)->lab.node.next == &ctx(parent)->lab.node);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	CHECK(interrupted(0) == child);

	/* The last tick goes to the child; the parent expires. */
	script_calm();
	ctx(child)->left = 1;
	child = script_fork(child, 0, M1);
	EQUAL(ctx(child)->left, 1);
	parent = script.curr[0];
	EQUAL(ctx(parent)->left, 9);
	CHECK(!in_active(parent));
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

/* One priority worse, behind the others there. */
static void yield_steps_down(void)
{
	struct task_struct *p, *q;

	script_start(1);
	p = running_on(0, 0, 50);
	script_yield(0);
	EQUAL(ctx(p)->prio, 51);
	CHECK(script_schedule(0) == p);
	q = waiting(0, 0, 52);
	script_yield(0);
	EQUAL(ctx(p)->prio, 52);
	CHECK(script_schedule(0) == q);
	ctx(q)->prio = 63;
	script_yield(0);
	EQUAL(ctx(q)->prio, 63);
	CHECK(in_active(q));
	CHECK(script_schedule(0) == p);
}

/* Of the longest queue the expired ones first: they could not run there for longest. */
static void balance_takes_expired(void)
{
	struct task_struct *a, *b, *c;
	rq_t *rq;

	script_start(2);
	a = running_on(0, 0, 50);
	b = waiting(0, 0, 60);
	c = waiting(0, 0, 60);
	rq = queue(0);
	o1_requeue(rq, ctx(c), lab_arrays_expired(&rq->arrays), 60);
	/* Both were wanted; that one came first. */
	CHECK(script_schedule(1) == c);
	EQUAL(ctx(b)->q.home, 1);
	EQUAL(queue(0)->q.nr, 1);
	EQUAL(queue(1)->q.nr, 2);
	CHECK(ctx(a)->q.home == 0);
	CHECK(in_active(c) && in_active(b));
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 1);
}

/* How many are wanted. */
static void balance_threshold(void)
{
	EQUAL(o1_wanted(0, 1), 0);
	EQUAL(o1_wanted(0, 2), 2);
	EQUAL(o1_wanted(1, 3), 2);
	EQUAL(o1_wanted(5, 7), 2);
	EQUAL(o1_wanted(10, 12), 0);
	EQUAL(o1_wanted(16, 19), 0);
	EQUAL(o1_wanted(3, 2), 0);
}

/* Masks forbid; where the longest queue gives nothing the next longest is tried. */
static void balance_next_longest(void)
{
	struct task_struct *p, *only[3];
	u32 i;

	script_start(3);
	for (i = 0; i < 3; i++) {
		only[i] = task(0, 0, 40);
		script_of(only[i])->mask.bits[0] = 1;
		script_wake(only[i], 0, 0);
	}
	running_on(1, 0, 50);
	p = waiting(1, 0, 60);
	CHECK(script_schedule(2) == p);
	EQUAL(queue(0)->q.nr, 3);
	EQUAL(queue(1)->q.nr, 1);
	/* The lock of a lower CPU that another CPU holds is waited for, in order. */
	script_block(2);
	script_wake(task(1, 0, 60), 1, 0);
	script.fail_trylocks = true;
	CHECK(script_schedule(2));
	EQUAL(queue(0)->q.nr, 3);
	EQUAL(queue(1)->q.nr, 1);
}

/* Running tasks stay. */
static void balance_not_running(void)
{
	script_start(2);
	running_on(0, 0, 50);
	CHECK(!script_schedule(1));
	EQUAL(queue(0)->q.nr, 1);
}

/* In place of the idle CPUs' ticks. */
static void idle_tick(void)
{
	script_start(4);
	running_on(0, 0, 50);
	script_timer_expires(0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2] + script.nr_kicks[3], 0);
	waiting(0, 0, 60);
	waiting(0, 0, 60);
	EQUAL(script.timer_ns, 10000000);
	script_timer_expires(0);
	/* Two wait: two CPUs are woken, and not always the same. */
	EQUAL(script.nr_kicks[0], 0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2] + script.nr_kicks[3], 2);
	script_timer_expires(0);
	script_timer_expires(0);
	CHECK(script.nr_kicks[1] && script.nr_kicks[2] && script.nr_kicks[3]);
}

/* The number of steps of a choice does not depend on the number of tasks. */
static u32 touches;

static void count_touches(struct lab_host *h, const volatile void *addr, u32 len, bool write)
{
	touches++;
}

static void constant_cost(void)
{
	u32 i, first_touches = 0, first_locks = 0;

	script_start(1);
	running_on(0, 0, 63);
	for (i = 0; i < 900; i++) {
		waiting(0, (s32)(i % 40) - 20, i % 63);
		script.probes[LAB_EXAMINED] = 0;
		script.nr_locks = 0;
		touches = 0;
		script.host.touch = count_touches;
		queue(0)->q.marked = true;
		script_preempt(0);
		CHECK(script_schedule(0));
		script.host.touch = script_touch;
		EQUAL(script.probes[LAB_EXAMINED], 1);
		if (!i) {
			first_touches = touches;
			first_locks = script.nr_locks;
		}
		EQUAL(script.nr_locks, first_locks);
		/* The first time two tasks trade places; later the best one goes on, too. */
		CHECK(touches <= first_touches);
	}
}

/* CPU hogs get what their slices say, to within a slice. */
static void fair_slices(void)
{
	static const s32 nice[] = { 0, 0, 0, -20, 10, 19 };
	u64 ran[6] = { };
	struct task_struct *p[6];
	u32 i, round;

	script_start(1);
	for (i = 0; i < 6; i++)
		p[i] = waiting(0, nice[i], 44 + nice[i]);
	CHECK(script_schedule(0));
	/* 20 rounds of all slices: 9 * 3 + 15 + 6 + 3 ticks each. */
	for (round = 0; round < 20 * 51; round++) {
		for (i = 0; i < 6; i++)
			ran[i] += script.curr[0] == p[i];
		script.now_ns += 10000000;
		script_tick(0);
		script_schedule(0);
		script_timer_expires(0);
		script.now_ns -= 10000000;
	}
	for (i = 0; i < 6; i++)
		EQUAL(ran[i], 20 * o1_slice(nice[i]));
}

/* A change of nice moves the priority; a waiting task goes behind its new equals. */
static void nice_change(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = waiting(0, 0, 50);
	b = waiting(0, 0, 55);
	script_change_begin(a);
	EQUAL(queue(0)->q.nr, 1);
	script.cpu = 0;
	a->static_prio = 130;
	script_enqueue(a, 0);
	EQUAL(ctx(a)->prio, 60);
	EQUAL(queue(0)->q.nr, 2);
	CHECK(script_schedule(0) == b);
}

/* No task gains a turn by it: one that has had its slice waits on with those that had theirs. */
static void nice_change_keeps_the_array(void)
{
	struct task_struct *a;

	script_start(1);
	running_on(0, 0, 30);
	a = waiting(0, 0, 50);
	o1_expire(queue(0), ctx(a));
	script_change_begin(a);
	a->static_prio = 119;
	script.cpu = 0;
	script_enqueue(a, 0);
	EQUAL(ctx(a)->prio, 49);
	CHECK(!in_active(a));

	/* Of another policy it begins anew. */
	script_change_begin(a);
	a->policy = 3;
	script_enqueue(a, 0);
	CHECK(in_active(a));
}

/* The real-time tasks that run are the best ones, in whichever order the CPUs are interrupted. */
static void realtime_placement(void)
{
	static const u32 orders[6][3] = {
		{ 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
	};
	u32 prio, i, cpu, sum, order;

	script_start(3);
	running_on(0, 0, 50);
	running_on(1, 0, 50);
	running_on(2, 0, 50);
	for (prio = 10; prio < 70; prio++) {
		order = prio % 6;
		/* Every second time one that is worse than all that run. */
		realtime(prio % 3, LAB_SCHED_FIFO, prio % 2 ? prio : 1);
		for (i = 0; i < 3; i++)
			CHECK(script.nr_kicks[i]);
		for (i = 0; i < 3; i++)
			interrupted(orders[order][i]);
		script_calm();
		if (prio < 16)
			continue;
		sum = 0;
		for (cpu = 0; cpu < 3; cpu++)
			sum += script.curr[cpu]->rt_priority;
		/* The three last odd numbers. */
		i = prio % 2 ? prio : prio - 1;
		EQUAL(sum, 3 * i - 6);
	}
	/* As they block the next best take over, wherever they waited. */
	for (cpu = 0; cpu < 3; cpu++) {
		script_block(cpu);
		script_schedule(cpu);
	}
	EQUAL(script.curr[0]->rt_priority + script.curr[1]->rt_priority +
	      script.curr[2]->rt_priority, 3 * 63 - 6);
}

/* All locks are taken while a real-time task is runnable, one otherwise. */
static void realtime_locks(void)
{
	script_start(4);
	running_on(0, 0, 50);
	script.nr_locks = 0;
	queue(0)->q.marked = true;
	script_preempt(0);
	script_schedule(0);
	EQUAL(script.nr_locks, 1);
	realtime(0, LAB_SCHED_FIFO, 5);
	script.nr_locks = 0;
	CHECK(interrupted(0)->rt_priority == 5);
	/* Its own, then all four and the real-time array's. */
	EQUAL(script.nr_locks, 6);
}

/* A mask is honoured: the best task that may run here. */
static void realtime_mask(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = make_rt(task(1, 0, 44), LAB_SCHED_FIFO, 50);
	script_of(p)->mask.bits[0] = 2;
	script_wake(p, 0, 0);
	q = realtime(0, LAB_SCHED_FIFO, 10);
	CHECK(interrupted(0) == q);
	CHECK(interrupted(1) == p);
}

static void round_robin(void)
{
	struct task_struct *a, *b;
	u32 i;

	script_start(1);
	a = realtime(0, LAB_SCHED_RR, 5);
	b = realtime(0, LAB_SCHED_RR, 5);
	CHECK(interrupted(0) == a);
	for (i = 0; i < 9; i++) {
		CHECK(script.curr[0]->scx.slice);
		script.now_ns += 10000000;
		script_tick(0);
	}
	EQUAL(ctx(a)->left, 9);
	CHECK(script_schedule(0) == b);
	/* First in, first out: no slice ends. */
	script_block(0);
	script_schedule(0);
	ctx(a)->q.policy = a->policy = LAB_SCHED_FIFO;
	for (i = 0; i < 30; i++) {
		script.now_ns += 10000000;
		script_tick(0);
		CHECK(a->scx.slice);
	}
	script_wake(b, 0, 0);
	CHECK(interrupted(0) == a);
	script_yield(0);
	CHECK(script_schedule(0) == b);
}

static void late_interrupt(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 0, 50);
	script.nr_locks = 0;
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.nr_locks, 0);
	CHECK(p->scx.slice);
}

static void failed_lookup(void)
{
	struct task_struct *p;

	script_start(1);
	p = waiting(0, 0, 50);
	script.fail_lookups = true;
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_FAILED_LOOKUPS], 1);
	CHECK(ctx(p)->q.linked);
}

#include "percpu.h"

static void lost_its_cpu(void)
{
	script_start(1);
	loses_its_cpu(running_on(0, 0, 30));
}

TESTS(TEST(t1_no_sleep), TEST(t2_half_asleep), TEST(t3_always_asleep), TEST(t4_one_second),
      TEST(t5_stale_slot), TEST(t6_active_before_expired), TEST(t7_slices),
      TEST(t8_balance_rate), TEST(balance_after_a_late_tick), TEST(history_of_running),
      TEST(expiry), TEST(refreshed_by_tick), TEST(wakeup_preempts), TEST(fork_splits_slice),
      TEST(yield_steps_down),
      TEST(balance_takes_expired), TEST(balance_threshold), TEST(balance_next_longest),
      TEST(balance_not_running), TEST(idle_tick), TEST(constant_cost), TEST(fair_slices),
      TEST(nice_change), TEST(nice_change_keeps_the_array), TEST(realtime_placement), TEST(realtime_locks), TEST(realtime_mask),
      TEST(round_robin), TEST(late_interrupt), TEST(failed_lookup), TEST(random_operations),
      TEST(lost_its_cpu))
