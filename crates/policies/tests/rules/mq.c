/* SPDX-License-Identifier: GPL-2.0-only */
/* The rules of docs/schedulers/mq.md, one test a rule. `mq NAME` runs one. */
#define POLICY "../../../../policies/mq.bpf.c"
#define OPS mq_ops
#include "script.h"
#include "mq.h"
#include "pinned.h"

static struct task_struct *a, *b, *d, *e;

/* CPU 0 has lost its task; A (26, here 41) and B (23, here 38) wait in its queue. */
static void local_queue(u32 nr_cpus)
{
	script_start(nr_cpus);
	running_on(0, 6, 0, M1);
	a = waiting(6, 0, 0, M2);
	b = waiting(3, 0, 0, M3);
	script_block(0);
}

/* A task waits on another CPU beside one that runs, and is published. */
static struct task_struct *elsewhere(s32 cpu, s32 na)
{
	struct task_struct *p;

	running_on(cpu, 11, -20, M4);
	p = waiting(na - 20, 0, cpu, M5);
	publish(p);
	script.cpu = 0;
	return p;
}

static void t1_local(void)
{
	local_queue(2);
	d = elsewhere(1, 35);
	CHECK(script_schedule(0) == a);
	EQUAL(published(0), 23);
	CHECK(queues[0].published.task == ctx(b));
	EQUAL(published(1), 35);
	EQUAL(cpus[0].na, 26);
	EQUAL(script.nr_locks, 1);
	EQUAL(queues[0].list.nr, 2);
	EQUAL(queues[1].list.nr, 2);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 0);
}

/* The best comes last: what was best before it is the second. */
static void t1_order(void)
{
	script_start(1);
	running_on(0, 6, 0, M1);
	b = waiting(3, 0, 0, M3);
	a = waiting(6, 0, 0, M2);
	script_block(0);
	CHECK(script_schedule(0) == a);
	EQUAL(published(0), 23);
}

/* A task that comes replaces what is published only if it is better. */
static void add_publishes(void)
{
	script_start(1);
	running_on(0, 20, -20, M1);
	a = task(10, 0, 0, M2);
	b = task(2, 0, 0, M2);
	script_wake(b, 0, SCX_WAKE_SYNC);
	EQUAL(published(0), 22);
	script_wake(a, 0, SCX_WAKE_SYNC);
	EQUAL(published(0), 30);
	script_block(0);
	b = task(3, 0, 0, M2);
	script_wake(b, 0, SCX_WAKE_SYNC);
	EQUAL(published(0), 30);
	CHECK(queues[0].published.task == ctx(a));
}

static void stolen(void)
{
	local_queue(2);
	d = elsewhere(1, 45);
	e = waiting(8, 0, 1, M5);
	CHECK(script_schedule(0) == d);
	EQUAL(ctx(d)->lab.cpu, 0);
	EQUAL(ctx(d)->home, 0);
	CHECK(queues[0].list.head.next == &ctx(d)->lab.node);
	EQUAL(published(0), 26);
	CHECK(queues[0].published.task == ctx(a));
	EQUAL(queues[0].list.nr, 3);
	EQUAL(queues[1].list.nr, 2);
	EQUAL(script.probes[LAB_PICKED_ELSEWHERE], 1);
	EQUAL(script.nr_locks, 2);
}

static void t2_stolen(void)
{
	stolen();
	EQUAL(published(1), MQ_NOTHING);
}

static void t2_repaired(void)
{
	repair = REPAIR_FIRST;
	stolen();
	EQUAL(published(1), 28);
	CHECK(queues[1].published.task == ctx(e));
}

static void t3_lock_not_free(void)
{
	local_queue(2);
	d = elsewhere(1, 45);
	e = waiting(8, 0, 1, M5);
	busy(1);
	CHECK(script_schedule(0) == a);
	EQUAL(published(1), 45);
	EQUAL(published(0), 23);
}

static void t4_next_best(void)
{
	local_queue(3);
	d = elsewhere(1, 60);
	e = elsewhere(2, 50);
	busy(1);
	CHECK(script_schedule(0) == e);
	EQUAL(published(1), 60);
	EQUAL(published(2), MQ_NOTHING);
}

/* Without a busy lock the best of all queues, the first of equals. */
static void t4_best(void)
{
	local_queue(4);
	elsewhere(1, 50);
	d = elsewhere(2, 60);
	elsewhere(3, 60);
	CHECK(script_schedule(0) == d);
}

/* Equals are tried one after another, too. */
static void t4_equals(void)
{
	local_queue(4);
	elsewhere(1, 60);
	d = elsewhere(2, 60);
	elsewhere(3, 60);
	busy(1);
	CHECK(script_schedule(0) == d);
}

/* Each queue is tried once. */
static void t4_all_busy(void)
{
	local_queue(4);
	elsewhere(1, 60);
	elsewhere(2, 50);
	elsewhere(3, 60);
	all_busy = true;
	busy(-1);
	CHECK(script_schedule(0) == a);
	EQUAL(nr_tried, 3);
}

static void t5(s32 na, bool taken)
{
	local_queue(2);
	d = elsewhere(1, na);
	CHECK(script_schedule(0) == (taken ? d : a));
}

static void t5_strict(void) { t5(41, false); }
static void t5_one_more(void) { t5(42, true); }

static void t6_expired_elsewhere(void)
{
	script_start(2);
	running_on(1, 5, 0, M1);
	d = waiting(0, 0, 1, M2);
	publish(d);
	EQUAL(published(1), 0);
	CHECK(script_schedule(0) == d);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	EQUAL(sweeps.number, 1);
	EQUAL(ctx(d)->old.counter, 6);
	EQUAL(script.altered, 2);
	EQUAL(queues[1].list.nr, 1);
}

/* A published value is read as later recalculations have made it; the best of here has 44 then. */
static void t6(s32 before, s32 after, bool taken)
{
	local_queue(2);
	d = elsewhere(1, before);
	sweeps.number++;
	EQUAL(mq_published(&queues[1], sweeps.number), after);
	CHECK(script_schedule(0) == (taken ? d : a));
	EQUAL(ctx(a)->old.counter, 9);
}

static void t6_recalculated(void) { t6(60, 46, true); }
static void t6_recalculated_tie(void) { t6(56, 44, false); }

/* A task that has yielded keeps its -1. */
static void t6_recalculated_yielded(void)
{
	local_queue(2);
	d = elsewhere(1, 60);
	ctx(d)->old.yielded = true;
	publish(d);
	sweeps.number++;
	EQUAL(mq_published(&queues[1], sweeps.number), -1);
	CHECK(script_schedule(0) == a);
}

/* The task that was published is gone when the lock is there. */
static bool late_trylock(struct lab_host *h, void *word, u32 class, const void *code)
{
	if (word != &queue_at(1)->lock.word)
		return script_trylock(h, word, class, code);
	CHECK(script_trylock(h, word, class, code));
	mq_delete(ctx(d));
	return true;
}

static void recheck(void)
{
	local_queue(3);
	d = elsewhere(1, 60);
	e = elsewhere(2, 50);
	script.host.trylock = late_trylock;
	CHECK(script_schedule(0) == e);
}

static void t7_idle(bool last_idle)
{
	struct task_struct *p;

	script_start(3);
	if (!last_idle)
		running_on(0, 0, 19, M1);
	cpus[1].last_schedule_ns = 5;
	cpus[2].last_schedule_ns = 1;
	cpus[0].last_schedule_ns = 9;
	p = task(10, 0, 0, M2);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, last_idle ? 0 : 2);
	EQUAL(ctx(p)->lab.cpu, ctx(p)->home);
	EQUAL(queues[ctx(p)->home].list.nr, 1);
	EQUAL(published(ctx(p)->home), 30);
	EQUAL(script.kicks[ctx(p)->home], SCX_KICK_IDLE);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1] + script.nr_kicks[2], 1);
	EQUAL(script.nr_locks, last_idle ? 1 : 2);
	CHECK(script_schedule(ctx(p)->home) == p);
}

static void t7_idle_longest(void) { t7_idle(false); }
static void t7_last_cpu_first(void) { t7_idle(true); }

/* An idle CPU whose queue cannot be had is left out. */
static void t7_lock_not_free(void)
{
	struct task_struct *p;

	script_start(3);
	running_on(0, 0, 19, M1);
	cpus[1].last_schedule_ns = 5;
	cpus[2].last_schedule_ns = 1;
	busy(2);
	p = task(10, 0, 0, M2);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 1);
}

/* CPU 0 runs 28, CPU 1 runs 12; 30 wakes that ran on CPU 0. */
static struct task_struct *t8(void)
{
	script_start(2);
	running_on(0, 8, 0, M1);
	running_on(1, 2, 10, M2);
	EQUAL(cpus[0].na, 28);
	EQUAL(cpus[1].na, 12);
	return task(10, 0, 0, M3);
}

static void t8_busy(void)
{
	struct task_struct *p = t8();

	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 1);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0], 0);
	CHECK(cpus[1].marked && !cpus[0].marked);
	script_preempt(1);
	CHECK(script_schedule(1) == p);
}

/* If that CPU's queue cannot be had, the own CPU's task comes next: 30 - 28 is enough, its bonus for its own address space is not. */
static void t8_verified(void)
{
	struct task_struct *p = t8();

	busy(1);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
	p = task(11, 0, 0, M3);
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
}

/* The own CPU's 20 is less than the other's 10 with its bonus. */
static void t8_own_first(void)
{
	script_start(2);
	running_on(0, 3, 3, M1);
	running_on(1, 2, 12, M2);
	EQUAL(cpus[0].na, 20);
	EQUAL(cpus[1].na, 10);
	a = task(10, 0, 0, M3);
	script_wake(a, 0, 0);
	EQUAL(ctx(a)->home, 0);
	EQUAL(script.kicks[0], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[1], 0);
}

/* 14 and 15 are not worth the lock: 30 must be better by more than the threshold. */
static void t8_threshold(void)
{
	script_start(2);
	running_on(0, 20, 0, M1);
	running_on(1, 4, 10, M2);
	EQUAL(cpus[1].na, 14);
	a = task(10, 0, 0, M3);
	script_wake(a, 0, 0);
	EQUAL(ctx(a)->home, 0);
	EQUAL(script.nr_locks, 1);
	threshold = 0;
	b = task(10, 0, 0, M0);
	script_wake(b, 0, 0);
	EQUAL(ctx(b)->home, 1);
}

/* A published value of a running task may be out of date: the task itself decides. */
static void t8_out_of_date(void)
{
	struct task_struct *p = t8();

	ctx(script.curr[1])->old.counter = 20;
	script_wake(p, 0, 0);
	EQUAL(ctx(p)->home, 0);
}

static void t9_mask(void)
{
	local_queue(2);
	d = elsewhere(1, 45);
	lab_disallow(&ctx(d)->lab, 0);
	CHECK(script_schedule(0) == a);
	EQUAL(script.nr_locks, 1);
}

/* A CPU that found nothing because a lock was not free looks again, and then asks to be asked again. */
static void premature_idle(void)
{
	script_start(2);
	d = elsewhere(1, 45);
	busy(1);
	CHECK(!script_schedule(0));
	CHECK(!cpus[0].curr);
	EQUAL(nr_tried, MQ_REPEATS + 1);
	EQUAL(script.kicks[0], SCX_KICK_IDLE);
	CHECK(cpus[0].marked);
	busy(-1);
	CHECK(script_schedule(0) == d);
}

static void idle(void)
{
	script_start(2);
	script.now_ns = 7;
	running_on(0, 3, 0, M1);
	script_block(0);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(script.nr_locks, 0);
	CHECK(!script_schedule(0));
	EQUAL(queues[0].list.nr, 0);
	EQUAL(script.nr_locks, 1);
	CHECK(!cpus[0].curr && cpus[0].last_schedule_ns == 7);
	EQUAL(cpus[0].na, MQ_NOTHING);
	EQUAL(script.nr_kicks[0], 0);
}

/* Recalculations that a task has missed come all at once, with the same result. */
static void missed(void)
{
	s32 nice, from, times, stepwise;

	for (nice = -20; nice < 20; nice++) {
		for (from = 0; from < 60; from++) {
			stepwise = from;
			for (times = 0; times < 40; times++) {
				EQUAL(linux24_recalculated_times(from, nice, times, BASE_LINUX_2_4), stepwise);
				stepwise = linux24_recalculated(stepwise, nice, BASE_LINUX_2_4);
			}
		}
	}
	/* DSS-T4 */
	script_start(1);
	sweeps.number = 1;
	a = task(5, 0, 0, M1);
	ctx(a)->number = 0;
	mq_catch_up(ctx(a), 1);
	EQUAL(ctx(a)->old.counter, 8);
	mq_catch_up(ctx(a), 1);
	EQUAL(ctx(a)->old.counter, 8);
	/* A CPU that has not seen the last one does not bring it back. */
	mq_catch_up(ctx(a), 0);
	EQUAL(ctx(a)->old.counter, 8);
	EQUAL(ctx(a)->number, 1);
}

/* A sleeper keeps what it would have had; fork, exit and nice levels see it, too. */
static void missed_asleep(void)
{
	struct task_struct *child;

	script_start(2);
	a = task(5, 0, 0, M1);
	sweeps.number = 2;
	script_wake(a, 0, 0);
	EQUAL(ctx(a)->old.counter, 10);
	EQUAL(published(0), 30);
	b = task(4, 0, 1, M2);
	sweeps.number = 3;
	child = script_fork(b, 0, M2);
	EQUAL(ctx(b)->old.counter, 4);
	EQUAL(ctx(child)->old.counter, 4);
	sweeps.number = 4;
	ctx(child)->old.counter = 3;
	script_exit_task(child);
	/* 4 / 2 + 6 and 3 / 2 + 6 */
	EQUAL(ctx(b)->old.counter, 15);
	sweeps.number = 5;
	b->static_prio = 139;
	OPS.set_weight(b, 1);
	EQUAL(ctx(b)->old.counter, 13);
	EQUAL(ctx(b)->old.nice, 19);
}

/* Only one of two CPUs that find all expired recalculates. */
static void recalculated_once(void)
{
	script_start(1);
	CHECK(lab_lock(&queues[0].lock));
	CHECK(mq_recalculate(&queues[0], 0));
	CHECK(mq_recalculate(&queues[0], 0));
	EQUAL(sweeps.number, 1);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	lab_unlock(&queues[0].lock);
}

static void tie_goes_on(void)
{
	struct task_struct *p;

	script_start(2);
	waiting(3, 0, 0, M1);
	p = running_on(0, 3, 0, M1);
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(published(0), 23);
	EQUAL(script.probes[LAB_EXAMINED], 2);
}

/* A displaced task is published, and placed again at once. */
static void displaced(void)
{
	struct task_struct *p, *q;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	running_on(1, 1, 19, M2);
	q = waiting(11, 0, 0, M3);
	need_resched(0);
	CHECK(script_schedule(0) == q);
	EQUAL(ctx(p)->home, 1);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(published(0), MQ_NOTHING);
	EQUAL(published(1), 23);
}

static void sync_only_adds(void)
{
	script_start(2);
	running_on(0, 6, 0, M1);
	a = task(6, 0, 1, M2);
	script_wake(a, 0, SCX_WAKE_SYNC);
	CHECK(queues[1].list.head.next == &ctx(a)->lab.node);
	EQUAL(published(1), 26);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[1], 0);
}

/* Two tasks come to an idle CPU by synchronous wakeups; one is taken away: the CPU looks after the other. */
static void robbed_while_idle(void)
{
	script_start(2);
	running_on(0, 6, 0, M1);
	a = task(6, 0, 1, M2);
	b = task(7, 0, 1, M2);
	script_wake(a, 0, SCX_WAKE_SYNC);
	script_wake(b, 0, SCX_WAKE_SYNC);
	EQUAL(script.nr_kicks[1], 0);
	script.cpu = 0;
	script_block(0);
	CHECK(script_schedule(0) == b);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	CHECK(script_schedule(1) == a);
}

/* After a recalculation a CPU looks where a task waits and nothing is published: no other CPU sees it. */
static void recalculated_while_idle(void)
{
	script_start(3);
	running_on(0, 0, 0, M1);
	a = task(6, 0, 1, M2);
	script_wake(a, 0, SCX_WAKE_SYNC);
	CHECK(lab_lock(&queues[0].lock));
	CHECK(mq_recalculate(&queues[0], 0));
	EQUAL(script.nr_kicks[1], 0);
	mq_publish(&queues[1], NULL, 0, 1);
	CHECK(mq_recalculate(&queues[0], 1));
	lab_unlock(&queues[0].lock);
	EQUAL(script.kicks[1], SCX_KICK_IDLE);
	EQUAL(script.nr_kicks[0] + script.nr_kicks[2], 0);
	CHECK(script_schedule(1) == a);
	/* 6, 9, 10: half and the quantum. */
	EQUAL(ctx(a)->old.counter, 10);
}

/* So does one that is busy: otherwise its task may get ticks for ever. */
static void recalculated_while_busy(void)
{
	script_start(2);
	running_on(0, 0, 0, M1);
	running_on(1, 6, 0, M1);
	a = waiting(6, 0, 1, M2);
	mq_publish(&queues[1], NULL, 0, 0);
	script.cpu = 0;
	CHECK(lab_lock(&queues[0].lock));
	CHECK(mq_recalculate(&queues[0], 0));
	lab_unlock(&queues[0].lock);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	EQUAL(script.nr_kicks[0], 0);
}

static void woken_before_it_left(void)
{
	struct task_struct *p;

	script_start(2);
	running_on(1, 11, -20, M3);
	waiting(1, 19, 0, M2);
	p = running_on(0, 3, 0, M1);
	script_block(0);
	script_wake(p, 1, 0);
	EQUAL(queues[0].list.nr, 2);
	CHECK(queues[0].list.head.next == &ctx(p)->lab.node);
	CHECK(script_schedule(0) == p);
	EQUAL(queues[0].list.nr, 2);
}

static void yield_with_nobody_waiting(void)
{
	struct task_struct *p;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	running_on(1, 3, 0, M2);
	script_yield(0);
	CHECK(!ctx(p)->old.yielded && !cpus[0].marked);
}

/* A task that waits anywhere counts. */
static void yield_to_another_queue(void)
{
	struct task_struct *p;

	script_start(2);
	p = running_on(0, 3, 0, M1);
	d = elsewhere(1, 21);
	script_yield(0);
	CHECK(ctx(p)->old.yielded && cpus[0].marked);
	CHECK(script_schedule(0) == d);
	CHECK(!ctx(p)->old.yielded && ctx(p)->old.takeable);
}

/* DSS-T6: the yielder's -1 loses against the other's 0, which recalculates; then the other is chosen. */
static void yield_beside_expired(void)
{
	struct task_struct *p, *x;

	script_start(1);
	p = running_on(0, 4, 0, M1);
	x = waiting(0, 0, 0, M2);
	script_yield(0);
	CHECK(script_schedule(0) == x);
	EQUAL(script.probes[LAB_RECALCULATIONS], 1);
	mq_catch_up(ctx(p), 1);
	EQUAL(ctx(p)->old.counter, 8);
	EQUAL(ctx(x)->old.counter, 6);
}

static void tick(void)
{
	struct task_struct *p;

	script_start(1);
	p = running_on(0, 1, 0, M1);
	sweeps.number = 1;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 6);
	EQUAL(cpus[0].na, 26);
	script.now_ns += 60000000;
	script_tick(0);
	EQUAL(ctx(p)->old.counter, 0);
	EQUAL(cpus[0].na, 0);
	CHECK(cpus[0].marked && !p->scx.slice);
}

/* Real-time tasks wait in one list; the first CPU that chooses has the best of them. */
static void realtime(void)
{
	struct task_struct *r, *s;

	local_queue(2);
	r = make_wait(make_rt(task(0, 0, 1, M1), LAB_SCHED_FIFO, 5));
	s = make_wait(make_rt(task(0, 0, 1, M1), LAB_SCHED_RR, 7));
	elsewhere(1, 60);
	CHECK(script_schedule(0) == s);
	EQUAL(ctx(s)->lab.cpu, 0);
	EQUAL(pools[0].realtime.nr, 2);
	EQUAL(cpus[0].na, 1007);
	/* The own queue's best waits: published, because nothing was. */
	EQUAL(published(0), 26);
	script_block(0);
	CHECK(script_schedule(0) == r);
	EQUAL(pools[0].realtime.nr, 1);
	/* The published value holds: the queue is not searched again. */
	EQUAL(script.probes[LAB_EXAMINED], 5);
}

static void realtime_placement(void)
{
	struct task_struct *r;

	script_start(2);
	running_on(0, 11, 0, M1);
	running_on(1, 5, 0, M1);
	r = make_rt(task(0, 0, 0, M1), LAB_SCHED_FIFO, 5);
	script_wake(r, 0, 0);
	EQUAL(ctx(r)->home, -1);
	EQUAL(script.kicks[1], SCX_KICK_PREEMPT);
	CHECK(!script.nr_kicks[0]);
	script_preempt(1);
	CHECK(script_schedule(1) == r);
}

/* DSS-T14 */
static void round_robin(void)
{
	struct task_struct *p;

	script_start(1);
	p = make_run(make_rt(task(0, 0, 0, M1), LAB_SCHED_RR, 5), 0);
	make_wait(make_rt(task(3, 0, 0, M1), LAB_SCHED_RR, 5));
	need_resched(0);
	CHECK(script_schedule(0) == p);
	EQUAL(ctx(p)->old.counter, 6);
	CHECK(pools[0].realtime.head.prev == &ctx(p)->lab.node);
}

static void policy_change(void)
{
	struct task_struct *p;

	script_start(1);
	running_on(0, 9, 0, M1);
	p = waiting(2, 0, 0, M2);
	publish(p);
	script_change_begin(p);
	p->policy = LAB_SCHED_FIFO;
	p->rt_priority = 1;
	script_enqueue(p, 0);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(pools[0].realtime.nr, 1);
	EQUAL(published(0), MQ_NOTHING);
	need_resched(0);
	CHECK(script_schedule(0) == p);
}

/* A task that may no more run where it waited goes to the first CPU it may run on. */
static void affinity_change(void)
{
	struct task_struct *p;

	script_start(3);
	running_on(0, 11, -20, M1);
	running_on(1, 11, -20, M2);
	running_on(2, 11, -20, M3);
	p = waiting(2, 0, 0, M2);
	script_change_begin(p);
	script_of(p)->mask.bits[0] = 6;
	p->nr_cpus_allowed = 2;
	script_enqueue(p, 0);
	EQUAL(ctx(p)->home, 1);
	EQUAL(queues[0].list.nr, 1);
	EQUAL(queues[1].list.nr, 2);
}

static void attribute_change(void)
{
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
	script_start(2);
	a = waiting(9, 0, 0, M1);
	b = waiting(2, 0, 0, M2);
	script_of(a)->mask.bits[0] = 2;
	CHECK(script_schedule(0) == b);
	EQUAL(published(0), MQ_NOTHING);
}

/* The fields that other CPUs read are on lines of their own. */
static void cache_lines(void)
{
	EQUAL(sizeof(struct mq_queue) % LAB_CACHELINE, 0);
	EQUAL(offsetof(struct mq_queue, lock) % LAB_CACHELINE, 0);
	EQUAL(offsetof(struct mq_queue, list) % LAB_CACHELINE, 0);
	EQUAL(offsetof(struct mq_queue, published) % LAB_CACHELINE, 0);
	CHECK(offsetof(struct mq_queue, published) >= offsetof(struct mq_queue, list) + LAB_CACHELINE);
	EQUAL(sizeof(struct linux24_cpu), LAB_CACHELINE);
}

/* A value that would wrap is refused. */
static void option_ranges(void)
{
	AT_MOST(threshold, LAB_THRESHOLD_MAX, script_start(2));
}

TESTS(TEST(t1_local), TEST(t1_order), TEST(add_publishes), TEST(t2_stolen), TEST(t2_repaired),
      TEST(t3_lock_not_free), TEST(t4_next_best), TEST(t4_best), TEST(t4_equals),
      TEST(t4_all_busy), TEST(t5_strict), TEST(t5_one_more), TEST(t6_expired_elsewhere),
      TEST(t6_recalculated), TEST(t6_recalculated_tie), TEST(t6_recalculated_yielded), TEST(recheck), TEST(t7_idle_longest), TEST(t7_last_cpu_first),
      TEST(t7_lock_not_free), TEST(t8_busy), TEST(t8_verified), TEST(t8_own_first),
      TEST(t8_threshold), TEST(t8_out_of_date), TEST(t9_mask), TEST(premature_idle),
      TEST(idle), TEST(missed), TEST(missed_asleep), TEST(recalculated_once),
      TEST(tie_goes_on), TEST(displaced), TEST(sync_only_adds), TEST(robbed_while_idle),
      TEST(recalculated_while_idle), TEST(recalculated_while_busy), TEST(woken_before_it_left),
      TEST(yield_with_nobody_waiting), TEST(yield_to_another_queue),
      TEST(yield_beside_expired), TEST(tick), TEST(realtime), TEST(realtime_placement),
      TEST(round_robin), TEST(policy_change), TEST(affinity_change), TEST(attribute_change),
      TEST(late_mask), TEST(pinned), TEST(pinned_preempts), TEST(cache_lines), TEST(option_ranges))
