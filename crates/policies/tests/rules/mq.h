/* SPDX-License-Identifier: GPL-2.0-only */
/* Code that the tests of mq, mq-local and mq-pool share; behind script.h. */
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
	ctx(p)->lab.cpu = ctx(p)->home = last;
	p->__lab_cpu = last;
	return p;
}

static struct task_struct *make_rt(struct task_struct *p, u32 policy, u32 prio)
{
	p->policy = ctx(p)->old.policy = policy;
	p->rt_priority = ctx(p)->old.rt_priority = prio;
	return p;
}

static void link_tail(struct task_struct *p)
{
	task_t *t = ctx(p);

	if (lab_realtime(t->old.policy)) {
		t->home = -1 - (s32)pool_of_cpu(t->lab.cpu);
		lab_list_add_tail(&pool_at(-1 - t->home)->realtime, &t->lab.node);
	} else {
		lab_list_add_tail(&queue_at(t->home)->list, &t->lab.node);
	}
	t->old.linked = true;
	script_of(p)->runnable = true;
	p->scx.flags |= SCX_TASK_QUEUED;
}

static struct task_struct *make_wait(struct task_struct *p)
{
	link_tail(p);
	ctx(p)->old.takeable = true;
	script_of(p)->in_custody = true;
	return p;
}

/* A task that waits in the queue of its last CPU, behind all others. */
static struct task_struct *waiting(s32 counter, s32 nice, s32 last, u64 mm)
{
	return make_wait(task(counter, nice, last, mm));
}

static void publish(struct task_struct *p)
{
	task_t *t = ctx(p);

	mq_publish(queue_at(t->home), t, mq_na(t), sweeps.number);
}

/* Published by the queue of a CPU. */
static s32 published(s32 cpu)
{
	return mq_published(queue_at(cpu), sweeps.number);
}

static struct task_struct *make_run(struct task_struct *p, s32 cpu)
{
	link_tail(p);
	cpus[cpu].curr = &ctx(p)->old;
	cpus[cpu].mm = (u64)p->mm;
	cpus[cpu].na = mq_na(ctx(p));
	ctx(p)->old.on_cpu = true;
	script.curr[cpu] = p;
	script.cpu = cpu;
	p->scx.slice = 1;
	OPS.running(p);
	EQUAL(script.probes[LAB_PINNED_LOCAL], 0);
	return p;
}

/* A task that runs on `cpu`, in its queue behind all others. */
static struct task_struct *running_on(s32 cpu, s32 counter, s32 nice, u64 mm)
{
	return make_run(task(counter, nice, cpu, mm), cpu);
}

/* The CPU must choose again. */
static void need_resched(s32 cpu)
{
	cpus[cpu].marked = true;
	script_preempt(cpu);
}

/* Another CPU holds the lock of one queue. */
static s32 busy_queue = -1;
static u32 nr_tried;
static bool all_busy;

static bool busy_trylock(struct lab_host *h, void *word, u32 class, const void *code)
{
	nr_tried++;
	if (all_busy)
		return false;
	if (busy_queue >= 0 && word == &queue_at(busy_queue)->lock.word)
		return false;
	return script_trylock(h, word, class, code);
}

static void busy(s32 cpu)
{
	busy_queue = cpu;
	script.host.trylock = busy_trylock;
}
