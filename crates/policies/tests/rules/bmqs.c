/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/bmqs.md, one test a rule. `bmqs NAME` runs one. */
#define POLICY "../../../../policies/bmqs.bpf.c"
#define OPS bmqs_ops
#define RECALCULATES_LOCKED
#include "script.h"

enum { M0, M1, M2, M3, M4, M5, M6 };	/* address spaces; 0 = kernel thread */

#define TICK	LINUX24_TICK_NS

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

/* A task that belongs to `home`, neither runnable nor linked. */
static struct task_struct *task(s32 counter, s32 nice, s32 home, u64 mm)
{
	struct task_struct *p = script_fork(NULL, nice, mm);

	if (ctx(p)->home != home)
		bmqs_settle(ctx(p), home);
	ctx(p)->old.counter = counter;
	p->__lab_cpu = home;
	script.nr_locks = 0;
	return p;
}

static void link_tail(struct task_struct *p)
{
	lab_list_add_tail(&queue_at(ctx(p)->home)->list, &ctx(p)->lab.node);
	ctx(p)->old.linked = true;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

static struct task_struct *waiting(s32 counter, s32 nice, s32 home, u64 mm)
{
	struct task_struct *p = task(counter, nice, home, mm);

	link_tail(p);
	ctx(p)->old.takeable = true;
	script_of(p)->in_custody = true;
	return p;
}

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

static void need_resched(s32 cpu)
{
	cpus[cpu].marked = true;
	script_preempt(cpu);
}

#include "pinned.h"

/* Having run r ticks is worth r, and one less with each tick. */
static void history(void)
{
	s64 horizon = bmqs_horizon(0, 100, 107);

	EQUAL(horizon, 114);
	EQUAL(bmqs_weight(horizon, 107), 7);
	EQUAL(bmqs_weight(horizon, 110), 4);
	EQUAL(bmqs_weight(horizon, 114), 0);
	EQUAL(bmqs_weight(horizon, 200), 0);
	/* Half of what is left when it comes back counts again. */
	EQUAL(bmqs_horizon(114, 108, 110), 110 + 2 + 3);
	EQUAL(bmqs_horizon(114, 120, 122), 122 + 2);
}

/* The same through the ops: the clock, not the ticks that were charged, counts. */
static void history_of_a_run(void)
{
	struct task_struct *p, *q;

	script_start(1);
	script.now_ns = 50 * TICK;
	p = running_on(0, 20, 0, M1);
	script.now_ns += 4 * TICK + TICK / 2;
	script_block(0);
	EQUAL(ctx(p)->horizon, 58);
	CHECK(!script_schedule(0));
	/* Back after a tick: 3 / 2 = 1 is left, and nothing is added for half a tick. */
	script.now_ns = 55 * TICK;
	script_wake(p, 0, 0);
	CHECK(script_schedule(0) == p);
	script.now_ns += TICK / 4;
	script_block(0);
	EQUAL(ctx(p)->horizon, 56);
	q = NULL;
	CHECK(!script_schedule(0) && !q);
}

static void goodness(void)
{
	struct task_struct *p;

	script_start(2);
	p = task(6, 0, 0, M1);
	EQUAL(bmqs_goodness(ctx(p), M2, 10), 26);
	EQUAL(bmqs_goodness(ctx(p), M1, 10), 27);
	ctx(p)->horizon = 19;
	EQUAL(bmqs_goodness(ctx(p), M2, 10), 35);
	EQUAL(bmqs_goodness(ctx(p), M2, 25), 26);
	ctx(p)->old.counter = 0;
	EQUAL(bmqs_goodness(ctx(p), M1, 10), 0);
	ctx(p)->old.counter = 6;
	ctx(p)->old.yielded = true;
	EQUAL(bmqs_goodness(ctx(p), M1, 10), -1);
	p = make_rt(task(0, 0, 0, M1), LAB_SCHED_FIFO, 9);
	ctx(p)->horizon = 19;
	EQUAL(bmqs_goodness(ctx(p), M1, 10), 1009);
}

/* History decides where dss would have its 15. */
static void history_decides(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = waiting(6, 0, 0, M2);
	b = waiting(4, 0, 0, M3);
	ctx(b)->horizon = 2;
	CHECK(script_schedule(0) == a);
	script_block(0);
	a = waiting(6, 0, 0, M2);
	ctx(b)->horizon = 3;
	CHECK(script_schedule(0) == b);
}

/* A child goes to the CPU with the fewest runnable tasks, ... */
static void fork_to_the_shortest(void)
{
	struct task_struct *p, *child;

	script_start(3);
	p = running_on(0, 7, 0, M1);
	running_on(1, 7, 0, M1);
	child = script_fork(p, 0, M1);
	EQUAL(ctx(child)->home, 2);
	EQUAL(ctx(child)->lab.cpu, 2);
	EQUAL(ctx(child)->old.counter, 4);
	EQUAL(ctx(p)->old.counter, 3);
	EQUAL(queues[2].members.nr, 1);
	child->__lab_cpu = 0;
	script_wake(child, 0, 0);
	EQUAL(queues[2].list.nr, 1);
	EQUAL(script.kicks[2], SCX_KICK_IDLE);
	CHECK(script_schedule(2) == child);
}

/* ... of equals to that with the fewest tasks, ... */
static void fork_fewest_tasks(void)
{
	struct task_struct *p;

	script_start(3);
	task(6, 0, 1, M1);
	task(6, 0, 1, M1);
	task(6, 0, 2, M1);
	p = running_on(0, 7, 0, M1);
	EQUAL(ctx(script_fork(p, 0, M1))->home, 2);
}

/* ... of tasks equal to its parent, ... */
static void fork_here(void)
{
	struct task_struct *p;

	script_start(3);
	running_on(0, 7, 0, M1);
	running_on(1, 7, 0, M1);
	p = running_on(2, 7, 0, M1);
	EQUAL(ctx(script_fork(p, 0, M1))->home, 2);
	EQUAL(ctx(script_fork(p, 0, M1))->home, 0);
}

/* A task that wakes goes to its CPU; no other is looked at. */
static void wakeup(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 3, 0, M1);
	p = task(3, 0, 0, M2);
	script_wake(p, 1, 0);
	CHECK(queues[0].list.head.next == &ctx(p)->lab.node);
	/* 23 against 24 */
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	/* 24 against 24, 25 against 24 */
	p = task(4, 0, 0, M2);
	script_wake(p, 1, 0);
	EQUAL(script.nr_kicks[0], 0);
	p = task(5, 0, 0, M2);
	script_wake(p, 1, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[1], 0);
	p = task(1, 19, 1, M2);
	script_wake(p, 0, 0);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	EQUAL(queues[1].list.nr, 1);
}

static void sync_only_adds(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(0, 3, 0, M1);
	p = task(20, 0, 0, M2);
	script_wake(p, 0, SCX_WAKE_SYNC);
	EQUAL(queues[0].list.nr, 2);
	EQUAL(script.nr_kicks[0], 0);
	/* On an idle CPU no other CPU would see it. */
	p = task(20, 0, 1, M2);
	script_wake(p, 0, SCX_WAKE_SYNC);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
}

/* Nor is a displaced task pushed elsewhere. */
static void displaced(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	q = waiting(11, 0, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	CHECK(ctx(p)->old.takeable);
}

/* A choice looks at the own queue only. */
static void own_queue(void)
{
	struct task_struct *p;

	script_start(2);
	waiting(20, -20, 1, M1);
	p = waiting(1, 19, 0, M2);
	CHECK(script_schedule(0) == p);
	EQUAL(script.probes[LAB_EXAMINED], 1);
}

static void tie_goes_on(void)
{
	struct task_struct *p;

	script_start(1);
	waiting(3, 0, 0, M1);
	p = running_on(0, 3, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == p);
}

/* Expired: the tasks of this CPU are recalculated, sleepers too, and no others. */
static void recalculation(void)
{
	struct task_struct *a, *sleeper, *other;

	script_start(2);
	a = waiting(0, 0, 0, M1);
	waiting(0, 0, 0, M1);
	sleeper = task(5, 0, 0, M1);
	other = waiting(0, 0, 1, M1);
	task(5, 0, 1, M1);
	CHECK(script_schedule(0) == a);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(script.altered, 3);
	EQUAL(ctx(a)->old.counter, 6);
	EQUAL(ctx(sleeper)->old.counter, 8);
	EQUAL(ctx(other)->old.counter, 0);
}

static void yield_alone(void)
{
	struct task_struct *p;

	script_start(2);
	waiting(5, 0, 1, M1);
	p = running_on(0, 3, 0, M1);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded && !cpus[0].marked);
}

static void yield_to_another(void)
{
	struct task_struct *p, *q;

	script_start(1);
	q = waiting(1, 19, 0, M1);
	p = running_on(0, 3, 0, M1);
	script_yield(0);
	CHECK(ctx(p)->old.yielded && cpus[0].marked);
	CHECK(script_schedule(0) == q);
	CHECK(!ctx(p)->old.yielded);
	/* It does not preempt at once whom it made way for. */
	EQUAL(script.nr_kicks[0], 0);
}

/* A CPU that becomes idle asks the longest queue for its first task. */
static void balance_asks(void)
{
	struct task_struct *a, *b;

	script_start(4);
	running_on(1, 5, 0, M1);
	waiting(5, 0, 1, M1);
	running_on(2, 5, 0, M1);
	a = waiting(5, 0, 2, M1);
	b = waiting(5, 0, 2, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, 0);
	EQUAL(ctx(b)->wanted, BMQS_NOBODY);
	EQUAL(ctx(a)->home, 2);
	EQUAL(queues[2].list.nr, 3);
	/* If another CPU asks, it is the next task that no CPU wants. */
	CHECK(!script_schedule(3));
	EQUAL(ctx(b)->wanted, 3);
}

/* One more is not enough. */
static void balance_not_for_one(void)
{
	struct task_struct *a;

	script_start(2);
	a = waiting(5, 0, 1, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, BMQS_NOBODY);
	waiting(5, 0, 1, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, 0);
}

/* Not one that runs, or that may not come. */
static void balance_whom(void)
{
	struct task_struct *a, *b;

	script_start(2);
	running_on(1, 5, 0, M1);
	a = waiting(5, 0, 1, M1);
	lab_disallow(&ctx(a)->lab, 0);
	b = waiting(5, 0, 1, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, BMQS_NOBODY);
	EQUAL(ctx(b)->wanted, 0);
	EQUAL(ctx(script.curr[1])->wanted, BMQS_NOBODY);
}

/* The source hands it over when it would run it, and runs the next. */
static void handed_over(void)
{
	struct task_struct *a, *b;

	script_start(2);
	a = waiting(9, 0, 1, M1);
	b = waiting(5, 0, 1, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, 0);
	CHECK(script_schedule(1) == b);
	EQUAL(ctx(a)->home, 0);
	EQUAL(ctx(a)->wanted, BMQS_NOBODY);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(queues[0].members.nr, 1);
	EQUAL(queues[1].list.nr, 1);
	EQUAL(queues[1].members.nr, 1);
	EQUAL(script.kicks[0], SCX_KICK_IDLE);
	CHECK(script_schedule(0) == a);
}

/* Until then it stays. */
static void not_handed_over_before(void)
{
	struct task_struct *a, *b;

	script_start(2);
	a = waiting(5, 0, 1, M1);
	b = waiting(9, 0, 1, M1);
	CHECK(!script_schedule(0));
	EQUAL(ctx(a)->wanted, 0);
	CHECK(script_schedule(1) == b);
	EQUAL(ctx(a)->home, 1);
	EQUAL(ctx(a)->wanted, 0);
}

static void nothing_else_to_run(void)
{
	struct task_struct *a;

	script_start(2);
	a = waiting(9, 0, 1, M1);
	ctx(a)->wanted = 0;
	CHECK(!script_schedule(1));
	EQUAL(ctx(a)->home, 0);
}

static void hand_over_lock_not_free(void)
{
	struct task_struct *a;

	script_start(2);
	a = waiting(9, 0, 1, M1);
	ctx(a)->wanted = 0;
	script.fail_trylocks = true;
	CHECK(script_schedule(1) == a);
	EQUAL(ctx(a)->home, 1);
	EQUAL(ctx(a)->wanted, BMQS_NOBODY);
}

/* In place of the loop of idle CPUs. */
static void idle_cpus_balance(void)
{
	struct task_struct *a, *b;

	script_start(3);
	running_on(0, 9, 0, M1);
	script_timer_expires(0);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1] + script.nr_kicks[2], 0);

	/* One waits: one CPU is woken, not always the same, and asks for it. */
	a = waiting(9, 0, 0, M1);
	EQUAL(script.timer_ns, LINUX24_TICK_NS);
	script_timer_expires(0);
	EQUAL(script.nr_kicks[1] + script.nr_kicks[2], 1);
	script_timer_expires(0);
	EQUAL(script.nr_kicks[0], 0);
	EQUAL(script.nr_kicks[1], 1);
	EQUAL(script.nr_kicks[2], 1);
	CHECK(!script_schedule(1));
	EQUAL(ctx(a)->wanted, 1);

	/* As long as it has not got that one it asks for no other. */
	b = waiting(9, 0, 0, M1);
	CHECK(!script_schedule(1));
	EQUAL(ctx(b)->wanted, BMQS_NOBODY);
	CHECK(!script_schedule(2));
	EQUAL(ctx(b)->wanted, 2);

	/* Idle anew it does. */
	b = waiting(9, 0, 0, M1);
	running_on(1, 9, 0, M1);
	script_block(1);
	CHECK(!script_schedule(1));
	EQUAL(ctx(b)->wanted, 1);
}

static void tick(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 1, 0, M1);
	script.now_ns += TICK;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	CHECK(cpus[0].marked && !p->scx.slice);
}

/* DSS-T8; and the child leaves its CPU's list of tasks. */
static void exit_of_a_child(void)
{
	struct task_struct *p, *child;

	script_start(1);
	p = running_on(0, 18, 0, M1);
	child = script_fork(p, 0, M1);
	EQUAL(queues[0].members.nr, 2);
	ctx(child)->old.counter = 15;
	script_exit_task(child);
	EQUAL(ctx(p)->old.counter, 20);
	EQUAL(queues[0].members.nr, 1);
}

static void round_robin(void)
{
	struct task_struct *p;

	script_start(1);
	p = make_rt(running_on(0, 0, 0, M1), LAB_SCHED_RR, 5);
	make_rt(waiting(3, 0, 0, M1), LAB_SCHED_RR, 5);
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->old.counter, 6);
	CHECK(queues[0].list.head.prev == &ctx(p)->lab.node);
}

static void blocking(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(script.nr_locks, 0);
	CHECK(!script_schedule(0));
	EQUAL(queues[0].list.nr, 0);
	EQUAL(queues[0].members.nr, 1);
	EQUAL(script.nr_locks, 1);
	script_wake(p, 0, 0);
	CHECK(script_schedule(0) == p);
}

static void woken_before_it_left(void)
{
	struct task_struct *p;

	script_start(1);
	waiting(1, 19, 0, M2);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	script_wake(p, 0, 0);
	EQUAL(queues[0].list.nr, 2);
	CHECK(queues[0].list.head.next == &ctx(p)->lab.node);
	CHECK(script_schedule(0) == p);
}

static void affinity_change(void)
{
	struct task_struct *p;

	script_start(3);
	running_on(1, 11, -20, M2);
	p = waiting(2, 0, 0, M2);
	script_change_begin(p);
	script_of(p)->mask.bits[0] = 6;
	p->nr_cpus_allowed = 2;
	script_enqueue(p, 0);
	EQUAL(ctx(p)->home, 2);
	EQUAL(queues[0].list.nr, 0);
	EQUAL(queues[0].members.nr, 0);
	EQUAL(queues[2].list.nr, 1);
	EQUAL(queues[2].members.nr, 1);
}

static void attribute_change(void)
{
	struct task_struct *a, *b;

	script_start(1);
	a = waiting(9, 0, 0, M1);
	b = waiting(2, 0, 0, M2);
	script_change_begin(a);
	CHECK(script_schedule(0) == b);
	script.cpu = 0;
	script_enqueue(a, 0);
	CHECK(queues[0].list.head.next == &ctx(a)->lab.node);
	EQUAL(queues[0].list.nr, 2);
}

static void late_mask(void)
{
	struct task_struct *a, *b;

	script_start(2);
	a = waiting(9, 0, 0, M1);
	b = waiting(2, 0, 0, M2);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(threshold, LAB_THRESHOLD_MAX, script_start(2));
}

TESTS(TEST(history), TEST(history_of_a_run), TEST(goodness), TEST(history_decides),
      TEST(fork_to_the_shortest), TEST(fork_fewest_tasks), TEST(fork_here), TEST(wakeup),
      TEST(sync_only_adds), TEST(displaced), TEST(own_queue), TEST(tie_goes_on),
      TEST(recalculation), TEST(yield_alone), TEST(yield_to_another), TEST(balance_asks),
      TEST(balance_not_for_one), TEST(balance_whom), TEST(idle_cpus_balance), TEST(handed_over),
      TEST(not_handed_over_before), TEST(nothing_else_to_run), TEST(hand_over_lock_not_free),
      TEST(tick), TEST(exit_of_a_child), TEST(round_robin), TEST(blocking),
      TEST(woken_before_it_left), TEST(affinity_change), TEST(attribute_change),
      TEST(late_mask), TEST(pinned), TEST(pinned_preempts), TEST(option_ranges))
