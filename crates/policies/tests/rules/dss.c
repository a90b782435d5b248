/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/dss.md, one test a rule. `dss NAME` runs one. */
#define POLICY "../../../../policies/dss.bpf.c"
#define OPS dss_ops
#include "script.h"

enum { M0, M1, M2, M3, M4, M5, M6 };	/* address spaces; 0 = kernel thread */

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

/* A task with these fields, neither runnable nor linked. */
static struct task_struct *task(s32 counter, s32 nice, s32 last, u64 mm)
{
	struct task_struct *p = script_fork(NULL, nice, mm);

	ctx(p)->old.counter = counter;
	ctx(p)->lab.cpu = last;
	p->__lab_cpu = last;
	return p;
}

static void link_tail(struct task_struct *p)
{
	lab_list_add_tail(&rq.list, &ctx(p)->lab.node);
	ctx(p)->old.linked = true;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

/* A task that waits, behind all others. */
static struct task_struct *waiting(s32 counter, s32 nice, s32 last, u64 mm)
{
	struct task_struct *p = task(counter, nice, last, mm);

	link_tail(p);
	ctx(p)->old.takeable = true;
	script_of(p)->in_custody = true;
	return p;
}

/* A task that runs on `cpu`, in the list behind all others. */
static struct task_struct *running_on(s32 cpu, s32 counter, s32 nice, u64 mm)
{
	struct task_struct *p = task(counter, nice, cpu, mm);

	link_tail(p);
	cpus[cpu].curr = &ctx(p)->old;
	cpus[cpu].mm = mm;
	ctx(p)->old.on_cpu = true;
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	return p;
}

static struct task_struct *make_rt(struct task_struct *p, u32 policy, u32 prio)
{
	p->policy = ctx(p)->old.policy = policy;
	p->rt_priority = ctx(p)->old.rt_priority = prio;
	return p;
}

/* The CPU must choose again. */
static void need_resched(s32 cpu)
{
	cpus[cpu].marked = true;
	script_preempt(cpu);
}

#include "pinned.h"

static s32 goodness(s32 counter, s32 nice, bool same_cpu, bool same_mm)
{
	struct task_struct *p = task(counter, nice, same_cpu ? 0 : 1, same_mm ? M1 : M2);

	return dss_goodness(&ctx(p)->old, 0, M1);
}

static void t1_goodness(void)
{
	struct task_struct *p;

	script_start(2);
	EQUAL(goodness(6, 0, false, false), 26);
	EQUAL(goodness(6, 0, true, false), 41);
	EQUAL(goodness(6, 0, true, true), 42);
	EQUAL(goodness(11, 0, false, false), 31);
	EQUAL(goodness(0, -20, true, true), 0);
	EQUAL(goodness(1, 19, false, false), 2);
	EQUAL(goodness(21, -20, true, true), 77);
	EQUAL(dss_goodness(&ctx(task(5, 0, 1, M0))->old, 0, M1), 26);
	EQUAL(dss_goodness(&ctx(make_rt(task(5, 0, 0, M1), LAB_SCHED_FIFO, 1))->old, 0, M1), 1001);
	EQUAL(dss_goodness(&ctx(make_rt(task(0, 0, 1, M1), LAB_SCHED_RR, 99))->old, 0, M1), 1099);
	p = task(6, 0, 0, M1);
	ctx(p)->old.yielded = true;
	EQUAL(dss_goodness(&ctx(p)->old, 0, M1), -1);
}

static void t2_choice(void)
{
	struct task_struct *b, *d;

	script_start(2);
	running_on(0, 6, 0, M1);
	waiting(6, 0, 1, M2);
	b = waiting(4, 0, 0, M2);
	waiting(10, 0, 1, M1);
	d = make_rt(running_on(1, 6, 0, M3), LAB_SCHED_FIFO, 5);
	script_block(0);
	CHECK(script_schedule(0) == b);
	/* The three that wait and D, which runs elsewhere, but not the one that blocked. */
	EQUAL(script.probes[LAB_EXAMINED], 4);
	EQUAL(rq.list.nr, 4);
	CHECK(script.curr[1] == d);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 0);
}

static void t3_tie(void)
{
	struct task_struct *a, *p;

	script_start(2);
	a = waiting(8, -10, 1, M2);
	p = running_on(0, 2, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(dss_goodness(&ctx(p)->old, 0, M1), dss_goodness(&ctx(a)->old, 0, M1));
}

static void t3_tie_by_list(void)
{
	struct task_struct *a, *p;

	script_start(2);
	ties = TIES_LIST;
	a = waiting(8, -10, 1, M2);
	p = running_on(0, 2, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == a);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 1);
	/* And the other way round: now P is ahead of B. */
	script_block(0);
	CHECK(script_schedule(0) == p);
	waiting(8, -10, 1, M3);
	need_resched(0);
	CHECK(script_schedule(0) == p);
}

static void t4_recalculation(void)
{
	struct task_struct *x, *y, *z, *w, *v, *u;

	script_start(1);
	x = waiting(0, 0, 0, M1);
	y = waiting(0, 0, 0, M2);
	z = task(5, 0, 0, M3);
	w = task(11, 0, 0, M4);
	v = task(3, 10, 0, M5);
	u = task(21, -20, 0, M6);
	CHECK(script_schedule(0) == x);
	EQUAL(ctx(x)->old.counter, 6);
	EQUAL(ctx(y)->old.counter, 6);
	EQUAL(ctx(z)->old.counter, 8);
	EQUAL(ctx(w)->old.counter, 11);
	EQUAL(ctx(v)->old.counter, 4);
	EQUAL(ctx(u)->old.counter, 21);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(script.altered, 6);
	EQUAL(script.probes[LAB_EXAMINED], 4);
}

static void sequence(s32 nice, const s32 *expected, u32 n)
{
	s32 counter = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		counter = linux24_recalculated(counter, nice, base);
		EQUAL(counter, expected[i]);
	}
}

static void t5_sequences(void)
{
	static const s32 nice0[] = { 6, 9, 10, 11, 11 };
	static const s32 nice_20[] = { 11, 16, 19, 20, 21, 21 };
	static const s32 nice10[] = { 3, 4, 5, 5 };
	static const s32 nice19[] = { 1, 1 };
	static const s32 old[] = { 20, 30, 35, 37, 38, 39, 39 };

	script_start(1);
	sequence(0, nice0, 5);
	sequence(-20, nice_20, 6);
	sequence(10, nice10, 4);
	sequence(19, nice19, 2);
	base = BASE_2_3_99;
	sequence(0, old, 7);
}

static void t6_yield(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(0, 0, 0, M2);
	script_yield(0);
	CHECK(ctx(p)->old.yielded && cpus[0].marked && !p->scx.slice);
	CHECK(script_schedule(0) == x);
	EQUAL(ctx(p)->old.counter, 8);
	EQUAL(ctx(x)->old.counter, 6);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	/* The bit goes with the CPU, and no task is disturbed. */
	CHECK(!ctx(p)->old.yielded && ctx(p)->old.takeable);
	EQUAL(script.nr_kicks[0], 0);
	/* One lock for the choice, one taken again after the recalculation. */
	EQUAL(script.nr_locks, 2);
}

static void t6_yield_alone(void)
{
	struct task_struct *p;

	script_start(2);
	p = running_on(0, 4, 0, M1);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded && !cpus[0].marked && p->scx.slice);
	CHECK(script_schedule(0) == p);
	/* A task that runs on another CPU does not wait. */
	running_on(1, 4, 0, M2);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded && p->scx.slice);
	EQUAL(script.nr_locks, 0);
}

static void t6_only_yielders(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(6, 0, 0, M2);
	script_yield(0);
	/* X vanishes before the choice. */
	queue24_unlink(&dss_list, &ctx(x)->old);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	EQUAL(ctx(p)->old.counter, 4);
	CHECK(!ctx(p)->old.yielded && p->scx.slice);
}

/* A real-time task that yields keeps its value: it is only moved, by 2.4.16. */
static void yield_realtime(void)
{
	struct task_struct *p, *peer;

	script_start(1);
	p = make_rt(running_on(0, 4, 0, M1), LAB_SCHED_FIFO, 5);
	peer = make_rt(waiting(4, 0, 0, M2), LAB_SCHED_FIFO, 5);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded);
	CHECK(script_schedule(0) == p);
	ties = TIES_LIST;
	script_yield(0);
	CHECK(!ctx(p)->old.yielded);
	CHECK(script_schedule(0) == peer);
}

static void t7_fork(void)
{
	struct task_struct *parent, *child;

	script_start(2);
	parent = running_on(1, 7, 0, M1);
	child = script_fork(parent, 0, M2);
	EQUAL(ctx(child)->old.counter, 4);
	EQUAL(ctx(parent)->old.counter, 3);
	EQUAL(ctx(child)->lab.cpu, 1);
	CHECK(!cpus[1].marked);

	ctx(parent)->old.counter = 1;
	child = script_fork(parent, 0, M2);
	EQUAL(ctx(child)->old.counter, 1);
	EQUAL(ctx(parent)->old.counter, 0);
	CHECK(cpus[1].marked);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);

	cpus[1].marked = false;
	child = script_fork(parent, 0, M2);
	EQUAL(ctx(child)->old.counter, 0);
	EQUAL(ctx(parent)->old.counter, 0);
	CHECK(cpus[1].marked);
}

static void t8_exit(void)
{
	struct task_struct *parent, *child;

	script_start(1);
	EQUAL(linux24_collected(9, 4), 13);
	EQUAL(linux24_collected(18, 5), 20);
	EQUAL(linux24_collected(21, 0), 20);
	parent = running_on(0, 8, 0, M1);
	child = script_fork(parent, 0, M2);
	ctx(parent)->old.counter = 9;
	script_exit_task(child);
	EQUAL(ctx(parent)->old.counter, 13);
	/* The parent's context is another task's by now: no task gets the ticks. */
	child = script_fork(parent, 0, M2);
	script.curr[0] = NULL;
	script_exit_task(parent);
	parent = task(5, 0, 0, M3);
	EQUAL(ctx(parent)->lab.index, 0);
	script_exit_task(child);
	EQUAL(ctx(parent)->old.counter, 5);
}

static void t9_tick(void)
{
	struct task_struct *p;

	script_start(1);
	charge = CHARGE_TICKS;
	p = running_on(0, 2, 0, M1);
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 1);
	CHECK(!cpus[0].marked && p->scx.slice);
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(cpus[0].marked && !p->scx.slice);
	cpus[0].marked = false;
	p->scx.slice = 1;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(cpus[0].marked && !p->scx.slice);
	/* A real-time task of the kind that never ends its quantum is charged, too. */
	make_rt(p, LAB_SCHED_FIFO, 3);
	ctx(p)->old.counter = 1;
	cpus[0].marked = false;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(cpus[0].marked);
}

/* By default 10 ms of running time are a tick, however often the timer interrupts. */
static void t9_running_time(void)
{
	struct task_struct *p;
	u32 i;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	for (i = 0; i < 7; i++) {
		script.now_ns += 4000000;
		script_tick(0);
		EQUAL(ctx(p)->old.counter, 3 - (i + 1) * 4 / 10);
		CHECK(!cpus[0].marked);
	}
	script.now_ns += 4000000;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(cpus[0].marked && !p->scx.slice);
	/* Its wait is not charged; its earlier run counts. */
	EQUAL(ctx(p)->old.ran_ns, 2000000);
	script_block(0);
	script_schedule(0);
	script.now_ns += 1000000000;
	ctx(p)->old.counter = 2;
	script_wake(p, 0, 0);
	script_schedule(0);
	script.now_ns += 8000000;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 1);
}

static void t10_placement_idle(void)
{
	struct task_struct *p;

	script_start(4);
	running_on(0, 6, 0, M1);
	running_on(1, 6, 0, M2);
	p = task(6, 0, 2, M3);
	cpus[2].last_schedule_ns = 100;
	cpus[3].last_schedule_ns = 50;
	script_wake(p, 0, 0);
	EQUAL(script.kicks[2], SCX_KICK_IDLE);
	EQUAL(script.nr_kicks[3], 0);
	CHECK(cpus[2].marked && !cpus[3].marked);

	/* A second one: the mark is set already, so no second interrupt. */
	script_wake(task(6, 0, 2, M4), 0, 0);
	EQUAL(script.nr_kicks[2], 1);
}

static void t10_placement_oldest(void)
{
	struct task_struct *p;

	script_start(4);
	running_on(1, 1, 19, M1);
	running_on(2, 6, 0, M2);
	cpus[0].last_schedule_ns = 100;
	cpus[3].last_schedule_ns = 50;
	p = task(6, 0, 2, M3);
	script_wake(p, 1, 0);
	EQUAL(script.kicks[3], SCX_KICK_IDLE);
	EQUAL(script.nr_kicks[0], 0);
	/* Once an idle CPU was seen, busy ones are no longer considered. */
	EQUAL(script.nr_kicks[1], 0);
	EQUAL(script.nr_kicks[2], 0);
	cpus[0].last_schedule_ns = 30;
	script_wake(task(6, 0, 2, M4), 1, 0);
	EQUAL(script.kicks[0], SCX_KICK_IDLE);
	EQUAL(script.nr_kicks[1], 0);
}

static void t11_cpus(u32 nr)
{
	script_start(nr);
	running_on(0, 3, 0, M1);
	running_on(1, 1, 10, M2);
	running_on(2, 6, 0, M3);
	if (nr > 3)
		running_on(3, 0, 0, M4);
}

static void t11_placement_busy(void)
{
	t11_cpus(4);
	script_wake(task(10, 0, 2, M5), 0, 0);
	EQUAL(script.kicks[3], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1] + script.nr_kicks[2], 0);
}

static void t11_placement_first_of_equals(void)
{
	t11_cpus(3);
	script_wake(task(10, 0, 2, M5), 0, 0);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[2], 0);
}

static void t11_threshold(void)
{
	script_start(2);
	running_on(0, 6, 0, M1);	/* 42 */
	running_on(1, 6, 0, M2);	/* 42 */
	script_wake(task(8, 0, 1, M3), 0, 0);	/* 43 on CPU 1 */
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	threshold = 0;
	script_wake(task(8, 0, 1, M4), 0, 0);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
}

static void t12_realtime_placement(void)
{
	script_start(1);
	make_rt(running_on(0, 6, 0, M1), LAB_SCHED_FIFO, 10);
	script_wake(task(11, -20, 0, M1), 0, 0);
	EQUAL(script.nr_kicks[0], 0);
	script_wake(make_rt(task(6, 0, 0, M2), LAB_SCHED_FIFO, 11), 0, 0);
	EQUAL(script.nr_kicks[0], 0);
	script_wake(make_rt(task(6, 0, 0, M3), LAB_SCHED_FIFO, 12), 0, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

static void t13_2_3_99_lone_yielder(void)
{
	struct task_struct *p, *sleeper;

	script_start(1);
	base = BASE_2_3_99;
	p = running_on(0, 7, 0, M1);
	sleeper = task(39, 0, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->old.counter, 23);
	EQUAL(ctx(sleeper)->old.counter, 39);
	CHECK(!ctx(p)->old.yielded);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
}

/* A yielder with rivals counts as 0 once, and when it has left the CPU it disturbs no task. */
static void t13_2_3_99_yielder(void)
{
	struct task_struct *p, *x;

	script_start(1);
	base = BASE_2_3_99;
	p = running_on(0, 30, 0, M1);
	x = waiting(2, 0, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == x);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
	CHECK(!ctx(p)->old.yielded && ctx(p)->old.takeable);
	EQUAL(script.nr_kicks[0], 0);
	/* With rivals that have no ticks: 0 beside 0, all get new ones and it wins. */
	script_block(0);
	CHECK(script_schedule(0) == p);
	waiting(0, 0, 0, M3);
	script_yield(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(ctx(p)->old.counter, 35);
}

static void t14_round_robin(void)
{
	struct task_struct *prev, *peer;

	script_start(1);
	prev = make_rt(running_on(0, 0, 0, M1), LAB_SCHED_RR, 5);
	peer = make_rt(waiting(3, 0, 0, M2), LAB_SCHED_RR, 5);
	need_resched(0);
	CHECK(script_schedule(0) == prev);
	EQUAL(ctx(prev)->old.counter, 6);
	CHECK(rq.list.head.prev == &ctx(prev)->lab.node);

	ties = TIES_LIST;
	ctx(prev)->old.counter = 0;
	ctx(prev)->old.nice = 10;
	prev->static_prio = 130;
	need_resched(0);
	CHECK(script_schedule(0) == peer);
	EQUAL(ctx(prev)->old.counter, 3);
}

static void t15_quantum(void)
{
	static const struct { u32 hz; s32 low, mid, high; } rows[] = {
		{ 100, 11, 6, 1 }, { 250, 21, 11, 1 }, { 512, 41, 21, 2 },
		{ 1000, 81, 41, 3 }, { 1024, 81, 41, 3 }, { 2000, 161, 81, 5 },
	};
	static const s32 at_100[] = { 11, 10, 10, 10, 10, 9, 9, 9, 9, 8, 8, 8, 8, 7, 7, 7, 7,
		6, 6, 6, 6, 5, 5, 5, 5, 4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1 };
	s32 nice;
	u32 i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		EQUAL(linux24_quantum(-20, rows[i].hz), rows[i].low);
		EQUAL(linux24_quantum(0, rows[i].hz), rows[i].mid);
		EQUAL(linux24_quantum(19, rows[i].hz), rows[i].high);
	}
	for (nice = -20; nice < 20; nice++)
		EQUAL(linux24_quantum(nice, 100), at_100[nice + 20]);
}

/* Wakeups go to the head; a synchronous one is only linked. */
static void wakeup(void)
{
	struct task_struct *a, *b;

	script_start(2);
	running_on(0, 6, 0, M1);
	a = task(6, 0, 1, M2);
	script_wake(a, 0, SCX_WAKE_SYNC);
	CHECK(rq.list.head.next == &ctx(a)->lab.node);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	/* The hint holds for one wakeup. */
	b = task(6, 0, 1, M3);
	script_wake(b, 0, 0);
	CHECK(rq.list.head.next == &ctx(b)->lab.node);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	EQUAL(script.nr_locks, 2);
	/* A waker that could not run the task itself has it placed. */
	script_calm();
	cpus[1].marked = false;
	a = task(6, 0, 1, M4);
	script_of(a)->mask.bits[0] = 2;
	a->nr_cpus_allowed = 2;
	script_wake(a, 0, SCX_WAKE_SYNC);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
}

/* A task that was displaced is placed again at once. */
static void displaced(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	running_on(1, 1, 19, M2);
	q = waiting(11, 0, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	CHECK(ctx(p)->old.takeable && !ctx(p)->old.on_cpu);
	/* 23 against 1 + 1 + 15 + 1 */
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0], 0);
	EQUAL(script.nr_locks, 2);
	EQUAL(rq.list.nr, 3);
}

/* The hint of a synchronous wakeup ends with it. */
static void displaced_after_sync_wakeup(void)
{
	struct task_struct *p, *q;

	script_start(2);
	running_on(1, 1, 19, M2);
	p = task(3, 0, 0, M1);
	script_wake(p, 1, SCX_WAKE_SYNC);
	CHECK(script_schedule(0) == p);
	q = waiting(20, 0, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
}

/* The bonus goes with the address space in use; a kernel thread borrows it. */
static void address_space(void)
{
	struct task_struct *thread, *a, *b;

	script_start(1);
	running_on(0, 3, 0, M1);
	thread = waiting(20, 0, 0, M0);
	script_block(0);
	CHECK(script_schedule(0) == thread);
	EQUAL(cpus[0].mm, M1);
	waiting(5, 0, 0, M2);
	a = waiting(5, 0, 0, M1);
	b = waiting(5, 0, 0, M1);
	script_block(0);
	CHECK(script_schedule(0) == a);
	EQUAL(cpus[0].mm, M1);
	/* Idle keeps it, too. */
	script_block(0);
	CHECK(script_schedule(0) == b);
	script_block(0);
	a = script_schedule(0);
	EQUAL(cpus[0].mm, M2);
	script_block(0);
	CHECK(!script_schedule(0));
	EQUAL(cpus[0].mm, M2);
}

/* A blocked task stays linked until its CPU chooses, under the same lock. */
static void blocking(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	EQUAL(rq.list.nr, 1);
	EQUAL(script.nr_locks, 0);
	script.now_ns = 7;
	CHECK(!script_schedule(0));
	EQUAL(rq.list.nr, 0);
	EQUAL(script.nr_locks, 1);
	CHECK(!cpus[0].curr && cpus[0].last_schedule_ns == 7);
	/* From idle to idle is no switch. */
	script.now_ns = 9;
	CHECK(!script_schedule(0));
	EQUAL(cpus[0].last_schedule_ns, 7);
	EQUAL(script.probes[LAB_EXAMINED], 0);
	script_wake(p, 0, 0);
	CHECK(script_schedule(0) == p);
}

/* Woken between its blocking and the choice of its CPU: linked once, at the head. */
static void woken_before_it_left(void)
{
	struct task_struct *p;

	script_start(2);
	waiting(1, 19, 0, M2);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	script_wake(p, 1, 0);
	EQUAL(rq.list.nr, 2);
	CHECK(rq.list.head.next == &ctx(p)->lab.node);
	CHECK(script_schedule(0) == p);
	EQUAL(rq.list.nr, 2);
}

/* An interrupt that arrives after its mark was honoured changes nothing. */
static void late_interrupt(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	waiting(20, -20, 0, M2);
	script_preempt(0);
	CHECK(script_schedule(0) == p);
	EQUAL(script.nr_locks, 0);
	CHECK(p->scx.slice);
}

/* A change of attributes leaves a waiting task at its place, but out of reach. */
static void attribute_change(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = waiting(9, 0, 0, M1);
	b = waiting(2, 0, 0, M2);
	script_change_begin(a);
	CHECK(script_schedule(0) == b);
	script.cpu = 0;
	a->static_prio = 130;
	script_enqueue(a, 0);
	EQUAL(ctx(a)->old.nice, 10);
	CHECK(rq.list.head.next == &ctx(a)->lab.node);
	EQUAL(rq.list.nr, 2);
}

/* A change of policy puts it at the head. */
static void policy_change(void)
{
	struct task_struct *a;

	script_start(1);
	running_on(0, 9, 0, M1);
	a = waiting(2, 0, 0, M2);
	script_change_begin(a);
	a->policy = LAB_SCHED_RR;
	a->rt_priority = 1;
	script_enqueue(a, 0);
	CHECK(rq.list.head.next == &ctx(a)->lab.node);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	need_resched(0);
	CHECK(script_schedule(0) == a);
}

/* On a machine of one CPU every task is a single-CPU task: the list is used. */
static void one_cpu(void)
{
	struct task_struct *p;

	script_start(1);
	p = task(6, 0, 0, M1);
	EQUAL(p->nr_cpus_allowed, 1);
	script_wake(p, 0, 0);
	CHECK(!script.inserted);
	EQUAL(rq.list.nr, 1);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
}

/* The mask in the context only filters: the real task's mask decides. */
static void late_mask(void)
{
	struct task_struct *a, *b;

	script_start(2);
	a = waiting(9, 0, 0, M1);
	b = waiting(2, 0, 0, M2);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
	CHECK(!lab_allowed(&ctx(a)->lab, 0));
	CHECK(script_schedule(1) == a);
}

static void failed_lookup(void)
{
	struct task_struct *p;

	script_start(1);
	p = waiting(9, 0, 0, M1);
	script.fail_lookups = true;
	CHECK(!script_schedule(0));
	EQUAL(script.probes[LAB_FAILED_LOOKUPS], 1);
	/* It is still there, and the watchdog will name it. */
	EQUAL(rq.list.nr, 1);
	CHECK(ctx(p)->old.linked);
}

/* Always-runnable yielders on one CPU take turns from the head of the list. */
static void yielders(void)
{
	struct task_struct *p[20], *next;
	u32 i, n = 20, turn;

	script_start(1);
	for (i = 0; i < n; i++)
		p[i] = waiting(6, 0, 0, M1);
	CHECK(script_schedule(0) == p[0]);
	script.probes[LAB_EXAMINED] = 0;
	for (turn = 1; turn < 100; turn++) {
		script_yield(0);
		next = script_schedule(0);
		/* The yielder apart all are equal: the first of the list, or the second. */
		CHECK(next == p[turn % 2]);
	}
	EQUAL(script.probes[LAB_EXAMINED], 99 * n);
	EQUAL(script.probes[LAB_RECALCULATIONS], 0);
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(threshold, LAB_THRESHOLD_MAX, script_start(2));
}

TESTS(TEST(t1_goodness), TEST(t2_choice), TEST(t3_tie), TEST(t3_tie_by_list),
      TEST(t4_recalculation), TEST(t5_sequences), TEST(t6_yield), TEST(t6_yield_alone),
      TEST(t6_only_yielders), TEST(yield_realtime), TEST(t7_fork), TEST(t8_exit),
      TEST(t9_tick), TEST(t9_running_time), TEST(t10_placement_idle),
      TEST(t10_placement_oldest), TEST(t11_placement_busy),
      TEST(t11_placement_first_of_equals), TEST(t11_threshold), TEST(t12_realtime_placement),
      TEST(t13_2_3_99_lone_yielder), TEST(t13_2_3_99_yielder), TEST(t14_round_robin), TEST(t15_quantum), TEST(wakeup),
      TEST(displaced), TEST(displaced_after_sync_wakeup), TEST(address_space), TEST(blocking),
      TEST(woken_before_it_left), TEST(late_interrupt), TEST(attribute_change),
      TEST(policy_change), TEST(pinned), TEST(pinned_preempts), TEST(one_cpu), TEST(late_mask), TEST(failed_lookup),
      TEST(yielders), TEST(option_ranges))
