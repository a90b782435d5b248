/* SPDX-License-Identifier: GPL-2.0-only */
/* Situations for tests of the policies made of <lab/fair.h>. */
#ifndef RULES_FAIR_SCRIPT_H
#define RULES_FAIR_SCRIPT_H

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

/* A task that sleeps, of this nice level and virtual time. */
static struct task_struct *sleeping(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = script_fork(NULL, nice, 1);

	p->__lab_cpu = cpu;
	ctx(p)->home = ctx(p)->lab.cpu = cpu;
	ctx(p)->vruntime = v;
	ctx(p)->fresh = false;
	return p;
}

static void join(struct task_struct *p)
{
	ctx(p)->asleep = false;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

/* A task that waits in the queue of `cpu`. */
static struct task_struct *waiting(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = sleeping(cpu, nice, v);

	join(p);
	fair_link(&rqs[cpu], ctx(p));
	script_of(p)->in_custody = true;
	return p;
}

/* A task that runs on `cpu`; the queue's clock is at least where it is. */
static struct task_struct *running_on(s32 cpu, s32 nice, s64 v)
{
	struct task_struct *p = sleeping(cpu, nice, v);

	join(p);
	rqs[cpu].curr = ctx(p);
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	fair_advance(&rqs[cpu], script.now_ns);
	return p;
}

/* It wakes where it was. */
static void wake(struct task_struct *p, s32 cpu)
{
	CHECK(!script_of(p)->runnable);
	script_calm();
	p->__lab_cpu = cpu;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	script_enqueue(p, SCX_ENQ_WAKEUP);
}

static void need_resched(s32 cpu)
{
	script_preempt(cpu);
}

/* No waiting task may run on `cpu`. */
static void forbid(s32 cpu)
{
	u32 i;

	for (i = 0; i < script.nr_tasks; i++) {
		if (script.tasks[i]->in_custody) {
			script.tasks[i]->mask.bits[0] &= ~(1ul << cpu);
			lab_task_refresh(&ctx(&script.tasks[i]->p)->lab, &script.tasks[i]->p);
		}
	}
}

#endif /* RULES_FAIR_SCRIPT_H */
