/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The multi-queue scheduler without its global phase: each CPU for itself.
 *
 * Idea: the goodness of Linux 2.4, a run queue and a lock for each CPU, and a
 * choice that looks at the own queue only. A task stays where it was forked.
 *
 * Good for: showing what the global phase of mq is worth; many independent
 * tasks that somebody else has spread over the CPUs.
 *
 * Bad for: everything that needs balance. A CPU idles beside a long queue, and
 * runs the unimportant beside one in which the important waits.
 *
 * Source: the multi-queue prototype of HP's plug-in scheduler, as M. Kravetz,
 * H. Franke, S. Nagar and R. Ravindran describe it in Enhancing Linux
 * Scheduler Scalability, 2001; docs/schedulers/mq-local.md restates the rules.
 *
 * Simplifications: besides what mq says
 * - Only that a choice is local is published. Placement, forks, real-time
 *   tasks and recalculation are our proposal: mq with pools of one CPU.
 */
#include <lab/lab.bpf.h>
#include <lab/mq.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824). */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

/* Each CPU is a pool. */
static __always_inline u32 mq_local_pool(s32 cpu)
{
	return cpu;
}

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(mq_local_init_task, struct task_struct *p,
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
s32 BPF_STRUCT_OPS(mq_local_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(mq_local_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_queue(t, p, enq_flags, threshold);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(mq_local_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_take_away(t, deq_flags);
}

void BPF_STRUCT_OPS(mq_local_dispatch, s32 cpu, struct task_struct *prev)
{
	mq_schedule(cpu, prev, charge, false);
}

void BPF_STRUCT_OPS(mq_local_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_run(t, p);
}

void BPF_STRUCT_OPS(mq_local_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (t)
		mq_use_tick(t, p, charge);
}

/* sched_yield(): only if a task waits in the pool. */
bool BPF_STRUCT_OPS(mq_local_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to || !mq_others_wait())
		return false;
	linux24_yield(&t->old, from);
	return true;
}

/* Nice levels change without any queueing. */
void BPF_STRUCT_OPS(mq_local_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_set_nice(&t->old, p);
}

void BPF_STRUCT_OPS(mq_local_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(mq_local_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(mq_local_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_catch_up(t, mq_number());
	linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(mq_local_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		mq_block(t, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(mq_local_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		mq_forget(t);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(mq_local_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	mq_forget(t);
	mq_collect(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(mq_local_init)
{
	return mq_init_queues(threshold, mq_local_pool);
}

void BPF_STRUCT_OPS(mq_local_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(mq_local_ops,
	       .init_task		= (void *)mq_local_init_task,
	       .select_cpu		= (void *)mq_local_select_cpu,
	       .enqueue			= (void *)mq_local_enqueue,
	       .dequeue			= (void *)mq_local_dequeue,
	       .dispatch		= (void *)mq_local_dispatch,
	       .running			= (void *)mq_local_running,
	       .tick			= (void *)mq_local_tick,
	       .yield			= (void *)mq_local_yield,
	       .set_weight		= (void *)mq_local_set_weight,
	       .set_cpumask		= (void *)mq_local_set_cpumask,
	       .cpu_release		= (void *)mq_local_cpu_release,
	       .stopping		= (void *)mq_local_stopping,
	       .quiescent		= (void *)mq_local_quiescent,
	       .disable			= (void *)mq_local_disable,
	       .exit_task		= (void *)mq_local_exit_task,
	       .init			= (void *)mq_local_init,
	       .exit			= (void *)mq_local_exit,
	       .name			= "mq_local");
