/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Random operations on a policy with queues per CPU: wakeups, blocking, ticks,
 * yields, forks, exits, changes of attributes and choices in any order. After
 * each every runnable task is linked once, in its home; no other is; the queues'
 * counts are right; nobody runs twice or where he may not. The test's file
 * defines queue() and task(), and RANDOM_START where a plain script_start() will
 * not do, and RANDOM_LISTED.
 */
#ifndef RULES_PERCPU_H
#define RULES_PERCPU_H

#ifndef RANDOM_START
#define RANDOM_START	script_start
#endif

/* Whether a linked task is in a list, as a running one may not be. */
#ifndef RANDOM_LISTED
#define RANDOM_LISTED(t)	true
#define RANDOM_LISTED_RUNNING	true
#endif

/* Whether waiting tasks may be in a structure that does not link them by lab.node. */
#ifndef RANDOM_ELSEWHERE
#define RANDOM_ELSEWHERE	false
#endif

#define RANDOM_CPUS	4
#define RANDOM_TASKS	16

static u64 random_seed = 88172645463325252ull;

static u32 draw(u32 below)
{
	random_seed ^= random_seed << 13;
	random_seed ^= random_seed >> 7;
	random_seed ^= random_seed << 17;
	return random_seed % below;
}

/* The task that loses its CPU. */
static struct task_struct *loser;

static void loser_lock(struct lab_host *h, void *word, u32 class, const void *code)
{
	CHECK(!task_of(loser)->q.takeable);
	script_lock(h, word, class, code);
}

/*
 * A task of a higher class takes the CPU, without a choice of ours: other CPUs may
 * take the displaced task once it is where a choice finds it.
 */
static void loses_its_cpu(struct task_struct *p)
{
	loser = p;
	script.host.lock = loser_lock;
	script.cpu = p->__lab_cpu;
	OPS.stopping(p, true);
	script_enqueue(p, 0);
	CHECK(task_of(p)->q.takeable && RANDOM_LISTED(task_of(p)));
}

static void random_check(struct task_struct **tasks, u32 nr)
{
	u64 linked[RANDOM_CPUS] = { };
	u32 i, cpu, on;

	for (i = 0; i < nr; i++) {
		task_t *t = task_of(tasks[i]);
		bool runnable = script_of(tasks[i])->runnable;

		for (on = 0, cpu = 0; cpu < RANDOM_CPUS; cpu++)
			on += script.curr[cpu] == tasks[i];
		CHECK(on <= 1);
		EQUAL(t->q.takeable, runnable && !on);
		if (!t->q.linked) {
			CHECK(!runnable);
			continue;
		}
		/* One that has just blocked may still be there, to leave with the next choice. */
		CHECK(runnable || t->q.leaving);
		linked[t->q.home]++;
		if (on)
			EQUAL(RANDOM_LISTED(t), RANDOM_LISTED_RUNNING);
		if (RANDOM_LISTED(t)) {
			CHECK(t->lab.node.next->prev == &t->lab.node);
			CHECK(t->lab.node.prev->next == &t->lab.node);
		} else {
			CHECK(!t->lab.node.next && !t->lab.node.prev);
			CHECK(!t->q.takeable || RANDOM_ELSEWHERE);
		}
		if (on)
			EQUAL(t->q.home, t->lab.cpu);
		else if (runnable)
			CHECK(script_of(tasks[i])->mask.bits[0] >> t->q.home & 1);
	}
	for (cpu = 0; cpu < RANDOM_CPUS; cpu++)
		EQUAL(queue(cpu)->q.nr, linked[cpu]);
}

/* A change of a running task: it is put back, changed, and goes on, or goes to another CPU. */
static void random_change_running(s32 cpu, bool moves)
{
	struct task_struct *p = script.curr[cpu];

	OPS.stopping(p, true);
	OPS.quiescent(p, 0);
	if (moves) {
		p->__lab_cpu = (cpu + 1) % RANDOM_CPUS;
		script_of(p)->mask.bits[0] = 1 << p->__lab_cpu;
		OPS.set_cpumask(p, p->cpus_ptr);
		script.curr[cpu] = NULL;
		script_enqueue(p, 0);
		script_schedule(cpu);
		return;
	}
	p->static_prio = 100 + draw(40);
	script_enqueue(p, 0);
	OPS.dequeue(p, SCX_DEQ_CORE_SCHED_EXEC);
	script_of(p)->in_custody = false;
	OPS.running(p);
}

static void random_operations(void)
{
	struct task_struct *tasks[RANDOM_TASKS], *p;
	u32 round, i, cpu, idle = 0, served = 0;

	RANDOM_START(RANDOM_CPUS);
	for (i = 0; i < RANDOM_TASKS; i++)
		tasks[i] = task(draw(RANDOM_CPUS), (s32)draw(40) - 20, 50);
	for (round = 0; round < 30000; round++) {
		i = draw(RANDOM_TASKS);
		p = tasks[i];
		cpu = draw(RANDOM_CPUS);
		script.cpu = cpu;
		script.now_ns += draw(4000000);
		switch (draw(10)) {
		case 0:
			if (!script_of(p)->runnable)
				script_wake(p, cpu, draw(4) ? 0 : SCX_WAKE_SYNC);
			break;
		case 1:
		case 2:
			if (script.curr[cpu]) {
				script_block(cpu);
				script_schedule(cpu);
			}
			break;
		case 3:
			if (script.curr[cpu])
				script_tick(cpu);
			script_schedule(cpu);
			break;
		case 4:
			if (script.curr[cpu])
				script_yield(cpu);
			script_schedule(cpu);
			break;
		case 5:
			/* nice */
			if (!script_of(p)->in_custody)
				break;
			script_change_begin(p);
			p->static_prio = 100 + draw(40);
			script_enqueue(p, 0);
			break;
		case 6:
			/* affinity */
			if (!script_of(p)->in_custody)
				break;
			script_change_begin(p);
			script_of(p)->mask.bits[0] = 1 + draw((1 << RANDOM_CPUS) - 1);
			while (!(script_of(p)->mask.bits[0] >> p->__lab_cpu & 1))
				p->__lab_cpu = draw(RANDOM_CPUS);
			OPS.set_cpumask(p, p->cpus_ptr);
			script_enqueue(p, 0);
			break;
		case 7:
			if (script.curr[cpu])
				random_change_running(cpu, draw(2));
			break;
		default:
			script_preempt(cpu);
			script.kicks[cpu] = 0;
			script_schedule(cpu);
		}
		idle += !script.curr[cpu];
		served += script.curr[cpu] != NULL;
		random_check(tasks, RANDOM_TASKS);
	}
	/* Both were often the case. */
	CHECK(idle > 1000 && served > 1000);
}

#endif /* RULES_PERCPU_H */
