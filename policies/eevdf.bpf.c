/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Earliest eligible virtual deadline first, the fair scheduler of Linux 6.6 on.
 *
 * Idea: every task asks for a slice of CPU time again and again. By its weight it
 * is due that time until a virtual deadline. Of the tasks that have had no more
 * than their share (that are eligible), the one with the earliest deadline runs,
 * and goes on until its request is fulfilled. Its lag, what it lacks or has had
 * too much, a task keeps while it sleeps.
 *
 * Good for: fair shares with a bound: no task is ever ahead or behind by much
 * more than one request; latency by a short request rather than by a nice level.
 *
 * Bad for: sleepers, which get no credit: a task that wakes waits for its turn
 * behind the request that is being fulfilled.
 *
 * Source: I. Stoica and H. Abdel-Wahab, Earliest Eligible Virtual Deadline First,
 * 1995; Linux 6.6 (kernel/sched/fair.c), without group scheduling and NUMA
 * balancing; docs/schedulers/eevdf.md restates the rules.
 *
 * Simplifications:
 * - sched_ext does not tell a policy what slice a task asked for by
 *   sched_setattr(): all have the usual one.
 * - A task that goes to sleep leaves the queue at once (no delayed dequeue).
 * - A nice level that changes keeps the virtual time, not the lag.
 * - Placement, load, balancing and the moments around a context switch as in cfs.
 */
#include <lab/lab.bpf.h>
#include <lab/fair.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Length of a request, in µs (0 to 1000000); on one CPU, see `scale`. 700 in later kernels. */
const volatile u64 base_slice_us = 750;

/* Whether it grows with the number of CPUs: 2 from 2, 3 from 4, 4 from 8 on. */
const volatile bool scale = true;

/* Whether a running task is not replaced before its request is fulfilled, as long as it is eligible. */
const volatile bool run_to_parity = true;

/* Whether a woken task with a shorter request may replace it nevertheless. */
const volatile bool preempt_short = true;

/* Timer tick that bounds the lag of sleepers, in µs (0 to 1000000). */
const volatile u64 tick_us = 4000;

/*
 * A CPU that becomes idle looks for a task however short it is idle, as -s kernel does:
 * since Linux 5.16 it compares that with the measured cost of looking, some microseconds.
 */
#define EEVDF_NEWIDLE_NS	0

/* The usual request on this machine, in ns. */
static u64 eevdf_slice;

/*
 * The rules. Pure functions of numbers, so that they can be tested one by one.
 */

static __always_inline s64 eevdf_divide(s64 sum, u64 by)
{
	/* Downwards. BPF has no signed division everywhere. */
	return sum < 0 ? -(s64)(((u64)-sum + by - 1) / by) : (s64)((u64)sum / by);
}

static __always_inline u64 eevdf_request(task_t *t)
{
	return t->request_ns ? t->request_ns : eevdf_slice;
}

/* The lag that is remembered of a task: two requests or a tick in virtual time at most. */
static __always_inline s64 eevdf_clamp(s64 lag, u64 request_ns, u64 weight)
{
	u64 tick_ns = tick_us * 1000;
	s64 limit = fair_virtual(2 * request_ns > tick_ns ? 2 * request_ns : tick_ns, weight);

	return lag > limit ? limit : lag < -limit ? -limit : lag;
}

/* Where a task of @weight joins tasks of @load at average @avg, so that its lag is @lag afterwards. */
static __always_inline s64 eevdf_join(s64 avg, s64 lag, u64 load, u64 weight)
{
	if (!load)
		return avg;
	return avg - eevdf_divide(lag * (s64)(load + weight), load);
}

static __always_inline s64 eevdf_deadline(s64 v, u64 request_ns, u64 weight)
{
	return v + fair_virtual(request_ns, weight);
}

/*
 * The queue.
 */

/* Average virtual time of the runnable tasks, by weight. */
static __always_inline s64 eevdf_average(rq_t *rq, u64 now)
{
	u64 load = rq->load;
	s64 sum = rq->sum;

	if (rq->curr) {
		sum += (s64)((u64)fair_curr_v(rq, now) - (u64)rq->min_v) *
		       (s64)lab_glance(rq->curr->weight);
		load += lab_glance(rq->curr->weight);
	}
	return load ? rq->min_v + eevdf_divide(sum, load) : rq->min_v;
}

/* The running task's request is fulfilled: the next one. */
static __always_inline bool eevdf_renew(task_t *t)
{
	if (lab_rb_less(t->vruntime, t->deadline))
		return false;
	t->deadline = eevdf_deadline(t->vruntime, eevdf_request(t), t->weight);
	return true;
}

/*
 * Returns the next task: the eligible one with the earliest deadline, @prev
 * among them if it is not NULL; it is the current task, at @prev_v.
 */
static __always_inline task_t *eevdf_earliest(rq_t *rq, task_t *prev, s64 prev_v, u64 now)
{
	s64 avg = eevdf_average(rq, now);
	bool eligible = false;
	lab_rb_node_t *node;
	task_t *t = NULL;

	if (prev) {
		examine(prev);
		eligible = !lab_rb_less(avg, prev_v);
		if (eligible && run_to_parity && prev->protected == prev->deadline &&
		    lab_rb_less(prev_v, prev->deadline))
			return prev;
	}
	node = lab_rb_first_within(&rq->tree, avg);
	if (!node && !eligible)
		node = rq->tree.first;
	if (node) {
		t = lab_entry(node, struct fair_task, tree);
		examine(t);
		if (rq->tree.steps > 1)
			lab_count(LAB_EXAMINED, rq->tree.steps - 1);
	}
	if (prev && (!t || (eligible && lab_rb_less(prev->deadline, t->deadline))))
		return prev;
	return t;
}

/*
 * The hooks of <lab/fair.h>. The queue's lock is held.
 */

static __always_inline s64 eevdf_key(task_t *t)
{
	return t->deadline;
}

static __always_inline void eevdf_place(rq_t *rq, task_t *t, u64 now)
{
	u64 request = eevdf_request(t), length = request, others;

	if (t->fresh)
		t->lag = 0;
	if (!t->asleep && t->home == rq->cpu) {
		/* Displaced, or an attribute of it has changed. */
		eevdf_renew(t);
		return;
	}
	/* First: CPUs wait for their turns at this read, and the average must not be older. */
	others = fair_load(rq);
	t->vruntime = eevdf_join(eevdf_average(rq, now), t->lag, others, t->weight);
	/* A new task begins in the middle, where on average the others are. */
	if (t->fresh)
		length /= 2;
	t->deadline = eevdf_deadline(t->vruntime, length, t->weight);
	t->home = rq->cpu;
}

static __always_inline void eevdf_leave(rq_t *rq, task_t *t, u64 now)
{
	s64 lag = (u64)eevdf_average(rq, now) - (u64)t->vruntime;

	t->lag = eevdf_clamp(lag, eevdf_request(t), t->weight);
}

static __always_inline void eevdf_clock_moved(rq_t *rq, s64 by)
{
	rq->sum -= by * (s64)rq->load;
}

static __always_inline void eevdf_counted(rq_t *rq, task_t *t, s64 sign)
{
	rq->sum += sign * (s64)((u64)t->vruntime - (u64)rq->min_v) * (s64)t->weight;
}

static __always_inline bool eevdf_preempts(rq_t *rq, task_t *t, bool fresh, u64 now)
{
	task_t *curr = rq->curr;
	s64 curr_v = fair_curr_v(rq, now);

	consult(curr);
	if (lab_glance(curr->policy) == LAB_SCHED_IDLE && t->policy != LAB_SCHED_IDLE)
		return true;
	if (t->policy == LAB_SCHED_BATCH || t->policy == LAB_SCHED_IDLE)
		return false;
	if (preempt_short && eevdf_request(t) < eevdf_request(curr) &&
	    !lab_rb_less(eevdf_average(rq, now), t->vruntime) &&
	    lab_rb_less(t->deadline, curr->deadline)) {
		curr->protected = curr->deadline + 1;
		return true;
	}
	return eevdf_earliest(rq, curr, curr_v, now) == t;
}

static __always_inline task_t *eevdf_pick(rq_t *rq, task_t *prev)
{
	task_t *t;
	u64 now = 0;
	s64 v = 0;

	if (prev) {
		eevdf_renew(prev);
		now = prev->started_ns;
		v = prev->vruntime;
	}
	t = eevdf_earliest(rq, prev, v, now);
	if (t && t == prev)
		t->protected = t->deadline;
	return t;
}

static __always_inline void eevdf_begin(rq_t *rq, task_t *t)
{
	t->protected = t->deadline;
}

static __always_inline bool eevdf_turn_ends(rq_t *rq, task_t *t)
{
	return eevdf_renew(t) && rq->nr;
}

static const struct fair_hooks fair_hooks = {
	.key		= eevdf_key,
	.place		= eevdf_place,
	.leave		= eevdf_leave,
	.clock_moved	= eevdf_clock_moved,
	.counted	= eevdf_counted,
	.preempts	= eevdf_preempts,
	.pick		= eevdf_pick,
	.begin		= eevdf_begin,
	.turn_ends	= eevdf_turn_ends,
};

/*
 * Ops, in the order of a task's life.
 */

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);

	if (!t)
		return -ENOMEM;
	lab_note_higher(p);
	fair_fork(t, p, args, forker);
	return 0;
}

s32 BPF_STRUCT_OPS(eevdf_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	return t ? fair_select_cpu(p, t, prev_cpu, wake_flags) : prev_cpu;
}

void BPF_STRUCT_OPS(eevdf_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_enqueue(t, p, now);
	else
		lab_no_context(p);
}

/*
 * A waiting task is taken away, or an attribute of it changes; then it is enqueued
 * again. Tasks that dispatch has chosen come here too; they are no longer in the queue.
 */
void BPF_STRUCT_OPS(eevdf_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		fair_remove(t);
}

void BPF_STRUCT_OPS(eevdf_dispatch, s32 cpu, struct task_struct *prev)
{
	fair_dispatch(cpu, prev, EEVDF_NEWIDLE_NS);
}

void BPF_STRUCT_OPS(eevdf_running, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_running(t, now);
}

void BPF_STRUCT_OPS(eevdf_tick, struct task_struct *p)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_tick(t, p, now);
}

/* sched_yield(): the deadline is one request later. */
bool BPF_STRUCT_OPS(eevdf_yield, struct task_struct *from, struct task_struct *to)
{
	rq_t *rq = rq_at(bpf_get_smp_processor_id());
	task_t *t = task_of(from);
	unsigned long flags;
	bool waits;

	if (!t || to || !lab_lock_irqsave(&rq->lock, flags))
		return false;
	waits = rq->nr;
	if (waits) {
		fair_charge(t, scx_bpf_now());
		t->deadline += fair_virtual(eevdf_request(t), t->weight);
	}
	lab_unlock_irqrestore(&rq->lock, flags);
	if (waits)
		scx_bpf_task_set_slice(from, 0);
	return waits;
}

void BPF_STRUCT_OPS(eevdf_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (t)
		fair_set_weight(t, p);
}

void BPF_STRUCT_OPS(eevdf_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(eevdf_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(eevdf_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		fair_charge(t, scx_bpf_now());
}

void BPF_STRUCT_OPS(eevdf_quiescent, struct task_struct *p, u64 deq_flags)
{
	u64 now = scx_bpf_now();
	task_t *t = task_of(p);

	if (t)
		fair_quiescent(t, deq_flags, now);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(eevdf_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		fair_forget(t);
}

void BPF_STRUCT_OPS(eevdf_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	fair_forget(t);
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(eevdf_init)
{
	int error;

	if (!lab_at_most(base_slice_us, FAIR_OPTION_US_MAX) ||
	    !lab_at_most(tick_us, FAIR_OPTION_US_MAX))
		return -EINVAL;
	error = fair_init();
	if (!error)
		eevdf_slice = base_slice_us * 1000 * (scale ? fair_factor(lab_nr_online) : 1);
	return error;
}

void BPF_STRUCT_OPS(eevdf_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(eevdf_ops,
	       .init_task		= (void *)eevdf_init_task,
	       .select_cpu		= (void *)eevdf_select_cpu,
	       .enqueue			= (void *)eevdf_enqueue,
	       .dequeue			= (void *)eevdf_dequeue,
	       .dispatch		= (void *)eevdf_dispatch,
	       .running			= (void *)eevdf_running,
	       .tick			= (void *)eevdf_tick,
	       .yield			= (void *)eevdf_yield,
	       .set_weight		= (void *)eevdf_set_weight,
	       .set_cpumask		= (void *)eevdf_set_cpumask,
	       .cpu_release		= (void *)eevdf_cpu_release,
	       .stopping		= (void *)eevdf_stopping,
	       .quiescent		= (void *)eevdf_quiescent,
	       .disable			= (void *)eevdf_disable,
	       .exit_task		= (void *)eevdf_exit_task,
	       .init			= (void *)eevdf_init,
	       .exit			= (void *)eevdf_exit,
	       .flags			= SCX_OPS_ENQ_LAST,
	       .name			= "eevdf");
