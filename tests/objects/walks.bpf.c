/* SPDX-License-Identifier: GPL-2.0-only */
/* Pointers of a task: to a queue of the CPU, and to nothing. */
#include "kernel.h"

struct scx_dispatch_q {
	u32 nr;
	u64 id;
} __core;

struct sched_ext_entity___queue {
	struct scx_dispatch_q *dsq;
} __core;

struct scx_rq {
	u32 nr_running;
} __core;

struct rq {
	unsigned int nr_running;
	struct scx_rq scx;
} __core;

struct task_struct___queue {
	s32 pid;
	unsigned int in_iowait: 1;
	struct sched_ext_entity___queue scx;
} __core;

extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
extern struct rq *scx_bpf_cpu_rq(s32 cpu) __ksym;

/* Follows what a function returned, without a test. */
const volatile u32 careless = 0;

/* A loader would set it. */
const volatile u32 nr_cpus = 0;

s32 waiting;

/* The CPU takes all that wait at once: they are in its own queue. */
SEC("struct_ops/dispatch") s32 w_dispatch(u64 *ctx)
{
	for (int i = 0; i < 3; i++)
		scx_bpf_dsq_move_to_local(QUEUE);
	return 0;
}

SEC("struct_ops/enqueue") s32 w_enqueue(u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];

	waiting = p->pid;
	scx_bpf_dsq_insert(p, QUEUE, 20000000, ctx[1]);
	return 0;
}

SEC("struct_ops/running") s32 w_running(u64 *ctx)
{
	struct task_struct___queue *p = (void *)ctx[0], *other;
	/* On the stack. */
	struct scx_dispatch_q *volatile kept;
	struct rq *rq;

	if (careless)
		return ((struct task_struct___queue *)bpf_task_from_pid(1 << 20))->pid; /* here */
	if (!waiting || waiting == p->pid)
		return 0;
	other = (void *)bpf_task_from_pid(waiting);
	rq = scx_bpf_cpu_rq(0);
	if (!other || !rq || !other->scx.dsq)
		return 0;
	kept = p->scx.dsq;
	finish("other %llu of %llu own %llu of %llu kept %llu running %llu of %llu waits %llu cpus %llu", other->scx.dsq->id, other->scx.dsq->nr,
	       p->scx.dsq->id, p->scx.dsq->nr, kept->id, rq->scx.nr_running, rq->nr_running, p->in_iowait, nr_cpus);
	return 0;
}

SEC(".struct_ops.link")
struct sched_ext_ops scheduler = {
	.enqueue = (void *)w_enqueue,
	.dispatch = (void *)w_dispatch,
	.running = (void *)w_running,
	.init = (void *)queue_init,
	.name = "walks",
};
