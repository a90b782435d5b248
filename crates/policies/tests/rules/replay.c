/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scripted kernel does what a simulated one has done on one CPU, and prints its choices: crates/sim/tests/scripted.rs
 * compares them. Compiled with POLICY, the source file, and OPS, its table. Steps come from standard input, one a line, each
 * at a time in ns:
 *
 *	fork NS NICE		a task is there before the policy is loaded
 *	new NS TASK		it runs for the first time
 *	wake NS TASK		it wakes
 *	tick NS 0		the timer interrupt
 *	yield NS 0		the current task calls sched_yield()
 *	block NS 0		the current task sleeps; schedule() follows
 *	exit NS 0		the current task ends; schedule() follows
 *	schedule NS 0		schedule(): prints the task, or -1, and the number of candidates examined
 */
#include "script.h"

int scanf(const char *format, ...);

/* What the policy has asked for takes effect: a kick that preempts, or an insertion that does. */
static void take_kicks(void)
{
	if (script.kicks[0] & SCX_KICK_PREEMPT)
		script_preempt(0);
	script_calm();
}

static void enter(struct task_struct *p)
{
	if (script.inserted == p && script.inserted_flags & SCX_ENQ_PREEMPT)
		script_preempt(0);
	take_kicks();
}

int main(void)
{
	struct task_struct *p, *gone = NULL;
	bool loaded = false;
	unsigned long long ns;
	char verb[16];
	u64 examined;
	int number;

	script_prepare(1);
	EQUAL(OPS.init(), 0);
	while (scanf("%15s %llu %d", verb, &ns, &number) == 3) {
		script.now_ns = ns;
		script.cpu = 0;
		if (!strcmp(verb, "fork")) {
			p = script_fork(NULL, number, 1);
			if (OPS.enable)
				OPS.enable(p);
			continue;
		}
		loaded = true;
		if (!strcmp(verb, "new")) {
			p = &script.tasks[number]->p;
			script_of(p)->runnable = true;
			p->scx.flags |= SCX_TASK_QUEUED;
			if (OPS.runnable)
				OPS.runnable(p, 0);
			script_enqueue(p, 0);
			enter(p);
		} else if (!strcmp(verb, "wake")) {
			p = &script.tasks[number]->p;
			script_wake(p, 0, 0);
			enter(p);
		} else if (!strcmp(verb, "tick")) {
			if (script.curr[0] && OPS.tick)
				script_tick(0);
			take_kicks();
		} else if (!strcmp(verb, "yield")) {
			if (OPS.yield)
				script_yield(0);
			else
				script.curr[0]->scx.slice = 0;
		} else if (!strcmp(verb, "block") || !strcmp(verb, "exit")) {
			if (!strcmp(verb, "exit"))
				gone = script.curr[0];
			script_block(0);
		} else if (!strcmp(verb, "schedule")) {
			examined = script.probes[LAB_EXAMINED];
			take_kicks();
			p = script_schedule(0);
			printf("%d %llu\n", p ? p->pid - 1 : -1, script.probes[LAB_EXAMINED] - examined);
			if (gone)
				script_exit_task(gone);
			gone = NULL;
		} else {
			return 2;
		}
		CHECK(!script.error);
	}
	return loaded ? 0 : 2;
}
