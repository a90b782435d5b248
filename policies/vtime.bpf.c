/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weighted fair sharing by virtual time, one queue for all CPUs.
 *
 * Idea: every task has a virtual time that grows while it runs, the slower the
 * greater its weight; the queue is ordered by it, so the task that has had the
 * least of its share runs next. A clock for the whole system follows the task
 * that started last. A task that slept longer than one slice resumes one slice
 * behind that clock: sleeping earns a head start, but no more than that.
 *
 * Good for: fair shares by nice level on one socket; a simple and predictable
 * baseline for fair schedulers.
 *
 * Bad for: machines with several last-level caches, since a task resumes
 * anywhere; many CPUs, which all take the lock of the one queue; latency of a
 * task that computes without pause beside many short ones; shares above half
 * of a CPU: a task whose slice ends is queued only after the next was taken, so
 * it never runs two slices in a row while another waits, and of two on one CPU
 * each gets half whatever their nice levels.
 *
 * Source: J. Nagle, On Packet Switches with Infinite Storage, 1985, and
 * I. Stoica et al., A Proportional Share Resource Allocation Algorithm for
 * Real-Time, Time-Shared Systems, 1996 (virtual time, without its deadlines).
 *
 * Simplifications: the system's clock is read and moved without a lock; two
 * CPUs that move it at once may lose one step, which the next start repairs. Running
 * beyond the slice while no task waits for the CPU is not held against a task: the
 * clock stands meanwhile.
 */
#include <scx/common.bpf.h>
#include <lab/option.h>
#include <lab/higher.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* How long a task may run before the queue is asked again, in µs (0 to 3600000000). */
const volatile u64 slice_us = 20000;

/* An hour: in ns it fits, and so does the virtual time of many. */
#define VTIME_SLICE_US_MAX	3600000000ull

/* The one queue. Ids below 2^63 are free for policies. */
#define VTIME_QUEUE	0

/* A slice ends at a tick, of 100 Hz at the least. Beyond that the kernel has let the task go on. */
#define VTIME_TICK_NS	10000000ull

/* Weight of nice level 0. */
#define VTIME_WEIGHT_DFL	100

/* Virtual time of the task that started last; only ever moves forward. ns */
static u64 vtime_clock;

/* The fields of a task besides its virtual time, which sched_ext keeps. */
struct vtime_task {
	u64 began_ns;	/* when it began to run */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct vtime_task);
} vtime_tasks SEC(".maps");

static __always_inline u64 vtime_slice_ns(void)
{
	return slice_us * 1000;
}

s32 BPF_STRUCT_OPS(vtime_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	if (!bpf_task_storage_get(&vtime_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return -ENOMEM;
	return 0;
}

/* A task begins where the others are, neither ahead of them nor in debt. */
void BPF_STRUCT_OPS(vtime_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, READ_ONCE(vtime_clock));
}

/* Decides where a woken task runs; an idle CPU gets it without any queue. */
s32 BPF_STRUCT_OPS(vtime_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, vtime_slice_ns(), 0);
	return cpu;
}

void BPF_STRUCT_OPS(vtime_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 earliest = READ_ONCE(vtime_clock) - vtime_slice_ns();
	u64 vtime = p->scx.dsq_vtime;

	/* A long sleeper must not starve the others until it has caught up. */
	if (time_before(vtime, earliest))
		vtime = earliest;
	scx_bpf_dsq_insert_vtime(p, VTIME_QUEUE, vtime_slice_ns(), vtime, enq_flags);
	if (enq_flags & SCX_ENQ_REENQ)
		lab_kick_idle(p);
}

void BPF_STRUCT_OPS(vtime_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(VTIME_QUEUE, 0);
}

void BPF_STRUCT_OPS(vtime_running, struct task_struct *p)
{
	struct vtime_task *t = bpf_task_storage_get(&vtime_tasks, p, NULL, 0);
	u64 vtime = p->scx.dsq_vtime;

	if (t)
		t->began_ns = scx_bpf_now();
	if (time_before(READ_ONCE(vtime_clock), vtime))
		WRITE_ONCE(vtime_clock, vtime);
}

void BPF_STRUCT_OPS(vtime_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release_of(VTIME_QUEUE);
}

/*
 * Charges the task's running time. The slice that is left would not show it: yielding
 * and being preempted set it to 0.
 */
void BPF_STRUCT_OPS(vtime_stopping, struct task_struct *p, bool runnable)
{
	struct vtime_task *t = bpf_task_storage_get(&vtime_tasks, p, NULL, 0);
	u64 ran_ns, vtime, latest;

	if (!t)
		return;
	ran_ns = time_delta(scx_bpf_now(), t->began_ns);
	vtime = p->scx.dsq_vtime + ran_ns * VTIME_WEIGHT_DFL / p->scx.weight;
	/* A task that ran alone must not wait as long until the others have caught up. */
	if (ran_ns > vtime_slice_ns() + VTIME_TICK_NS) {
		latest = READ_ONCE(vtime_clock) +
			 vtime_slice_ns() * VTIME_WEIGHT_DFL / p->scx.weight;
		if (time_after(vtime, latest))
			vtime = latest;
	}
	scx_bpf_task_set_dsq_vtime(p, vtime);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(vtime_init)
{
	if (!lab_at_most(slice_us, VTIME_SLICE_US_MAX))
		return -EINVAL;
	return scx_bpf_create_dsq(VTIME_QUEUE, NUMA_NO_NODE);
}

void BPF_STRUCT_OPS(vtime_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(vtime_ops,
	       .init_task	= (void *)vtime_init_task,
	       .enable		= (void *)vtime_enable,
	       .select_cpu	= (void *)vtime_select_cpu,
	       .enqueue		= (void *)vtime_enqueue,
	       .dispatch	= (void *)vtime_dispatch,
	       .running		= (void *)vtime_running,
	       .cpu_release	= (void *)vtime_cpu_release,
	       .stopping	= (void *)vtime_stopping,
	       .init		= (void *)vtime_init,
	       .exit		= (void *)vtime_exit,
	       .name		= "vtime");
