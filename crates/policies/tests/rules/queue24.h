/* SPDX-License-Identifier: GPL-2.0-only */
/* Situations for the policies of <lab/linux24_queue.h>, whose hooks are HOOKS. Behind script.h. */
#ifndef RULES_QUEUE24_H
#define RULES_QUEUE24_H

enum { M0, M1, M2, M3, M4, M5, M6 };	/* address spaces; 0 = kernel thread */

static task_t *ctx(struct task_struct *p)
{
	task_t *t = task_of(p);

	CHECK(t);
	return t;
}

/* A task with these fields, neither runnable nor in the queue. */
static struct task_struct *task(s32 counter, s32 nice, s32 last, u64 mm)
{
	struct task_struct *p = script_fork(NULL, nice, mm);

	ctx(p)->old.counter = counter;
	ctx(p)->lab.cpu = last;
	p->__lab_cpu = last;
	return p;
}

static struct task_struct *make_rt(struct task_struct *p, u32 policy, u32 prio)
{
	p->policy = ctx(p)->old.policy = policy;
	p->rt_priority = ctx(p)->old.rt_priority = prio;
	return p;
}

/* It waits from now on, ahead of its equals. */
static struct task_struct *put(struct task_struct *p)
{
	HOOKS.add(&ctx(p)->old);
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	ctx(p)->old.takeable = true;
	script_of(p)->in_custody = true;
	return p;
}

static struct task_struct *waiting(s32 counter, s32 nice, s32 last, u64 mm)
{
	return put(task(counter, nice, last, mm));
}

/* It leaves the queue. */
static void take(struct task_struct *p)
{
	queue24_unlink(&HOOKS, &ctx(p)->old);
}

/* It runs from now on. */
static struct task_struct *run(struct task_struct *p, s32 cpu)
{
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
	ctx(p)->lab.cpu = cpu;
	p->__lab_cpu = cpu;
	cpus[cpu].curr = &ctx(p)->old;
	cpus[cpu].mm = ctx(p)->lab.mm;
	ctx(p)->old.on_cpu = true;
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	if (HOOKS.keeps_running)
		HOOKS.add(&ctx(p)->old);
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	return p;
}

static struct task_struct *running_on(s32 cpu, s32 counter, s32 nice, u64 mm)
{
	return run(task(counter, nice, cpu, mm), cpu);
}

/* The CPU must choose again. */
static void need_resched(s32 cpu)
{
	cpus[cpu].marked = true;
	script_preempt(cpu);
}

#endif /* RULES_QUEUE24_H */
