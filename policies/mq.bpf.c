/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler of IBM for Linux 2.4.
 *
 * Idea: the goodness of Linux 2.4, but a run queue and a lock for each CPU.
 * Each queue publishes the goodness, without bonuses, of the best of its tasks
 * that waits. schedule() searches its own queue, then takes a look at what the
 * other queues have published; if one has something better it tries that
 * queue's lock, looks again and takes that task. A lock that is not free is
 * not waited for: the next best queue is tried.
 *
 * Good for: the decisions of dss, nearly, on more CPUs than four; no choice
 * waits for another CPU's.
 *
 * Bad for: hundreds of CPUs (each choice looks at what all others have
 * published) and, as dss, many runnable tasks.
 *
 * Source: M. Kravetz, H. Franke, S. Nagar and R. Ravindran, Enhancing Linux
 * Scheduler Scalability, 2001, and the authors' patches for Linux 2.4.7,
 * 2.4.14 and 2.5.0; docs/schedulers/mq.md restates the rules.
 *
 * Simplifications: besides what dss says about sched_ext, ticks and exits
 * - A recalculation moves a global number on, and a task applies what it has
 *   missed when it is looked at next; in the simulator it takes the time that
 *   the loop over all tasks took. What queues have published before is read as
 *   the recalculations since then have made it.
 * - A queue does not keep a copy of the allowed CPUs of the task it publishes:
 *   others read the task's own, as a filter.
 * - The CPU that recalculates because the best it found elsewhere had no ticks
 *   keeps the task that it has taken from there.
 * - After a recalculation a CPU in whose queue somebody waits, and which publishes
 *   nothing, chooses again, lest nobody look there.
 * - The first patch's quirk of adding the affinity bonus twice is left out.
 * - After 16 repetitions because of locks that were not free, a CPU goes idle
 *   and interrupts itself.
 */
#include <lab/lab.bpf.h>
#include <lab/mq.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

enum mq_repairing { REPAIR_NONE, REPAIR_FIRST };

/* The value that a queue publishes after it was robbed: nothing, or the first task with ticks (later patches). */
const volatile enum mq_repairing repair = REPAIR_NONE;

/* All CPUs are one pool. */
static __always_inline u32 mq_one_pool(s32 cpu)
{
	return 0;
}

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(mq_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	u32 number = mq_number();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	mq_fork(t, p, args, forker, number);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under a lock, in enqueue. */
s32 BPF_STRUCT_OPS(mq_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(mq_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_queue(t, p, enq_flags, threshold);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(mq_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_take_away(t, deq_flags);
}

void BPF_STRUCT_OPS(mq_dispatch, s32 cpu, struct task_struct *prev)
{
	mq_schedule(cpu, prev, charge, repair == REPAIR_FIRST);
}

void BPF_STRUCT_OPS(mq_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_run(t, p);
}

void BPF_STRUCT_OPS(mq_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_use_tick(t, p, charge);
}

/* sched_yield(): only if a task waits in the pool. */
bool BPF_STRUCT_OPS(mq_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to || !mq_others_wait())
		return false;
	linux24_yield(&t->old, from);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(mq_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_set_nice(&t->old, p);
}

void BPF_STRUCT_OPS(mq_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(mq_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(mq_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(mq_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_block(t, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(mq_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		mq_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(mq_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_forget(t);
	mq_collect(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mq_init)
{
	return mq_init_queues(threshold, mq_one_pool);
}

void BPF_STRUCT_OPS(mq_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(mq_ops,
	       .init_task		= (void *)mq_init_task,
	       .select_cpu		= (void *)mq_select_cpu,
	       .enqueue			= (void *)mq_enqueue,
	       .dequeue			= (void *)mq_dequeue,
	       .dispatch		= (void *)mq_dispatch,
	       .running			= (void *)mq_running,
	       .tick			= (void *)mq_tick,
	       .yield			= (void *)mq_yield,
	       .set_weight		= (void *)mq_set_weight,
	       .set_cpumask		= (void *)mq_set_cpumask,
	       .cpu_release		= (void *)mq_cpu_release,
	       .stopping		= (void *)mq_stopping,
	       .quiescent		= (void *)mq_quiescent,
	       .disable			= (void *)mq_disable,
	       .exit_task		= (void *)mq_exit_task,
	       .init			= (void *)mq_init,
	       .exit			= (void *)mq_exit,
	       .name			= "mq");
