/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Heaps of static goodness, which ELSC's authors propose: the choice of Linux 2.4 without its search.
 *
 * Idea: what a waiting task's goodness consists of, ticks left and priority,
 * does not change while it waits, and the bonuses are the same for all tasks
 * that last ran on one CPU and share an address space. So there is a heap for
 * each CPU and address space that has waiting tasks, and nobody but the first
 * of each heap can be the best. The choice is exactly Linux 2.4's.
 *
 * Good for: servers with thousands of threads in a few processes.
 *
 * Bad for: processes of one thread: then there are as many heaps as tasks. More
 * than about four CPUs, as the one lock stays.
 *
 * Source: S. Molloy and P. Honeyman, Scalable Linux Scheduling, 2001, where it
 * is proposed in a few lines; the heaps' form and the rest are ours.
 * docs/schedulers/elsc-heap.md has the rules.
 *
 * Simplifications: the same as dss, and
 * - Among waiting equals the one that was queued last is first, as at the head
 *   of Linux 2.4's list; but a displaced task is queued anew and keeps no place.
 * - A task that may not run here is set aside while the others of its heap are
 *   looked at, which costs two changes of the heap.
 * - Recalculation drops the lock, as in Linux 2.4, and takes it again to build all
 *   heaps anew. Until then another CPU sees heaps in the order of the old counters.
 */
#include <lab/lab.bpf.h>
#include <lab/linux24_queue.h>
#include <lab/heap.h>

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* Goodness by which a woken task must exceed the running one (0 to 1073741824): 1 up to 2.4.7, 0 in 2.4.13. */
const volatile u32 threshold = 1;

/* The unit that uses up a tick of the counter: 10 ms of running time, or a timer tick. */
const volatile enum linux24_charge charge = CHARGE_RUNTIME;

/* The arithmetic is 2.4's. */
static const enum linux24_base base = BASE_LINUX_2_4;

/* Chains in which heaps are found by CPU and address space. */
#define HEAP_CHAINS_LOG2	12
#define HEAP_CHAINS		(1 << HEAP_CHAINS_LOG2)

/* The lower bits of a key give when the task was queued; static goodness is above. */
#define HEAP_AGE_BITS		48

/* The waiting tasks that last ran on a CPU and have an address space. */
struct cpu_heap {
	struct lab_node link;		/* in rq.heaps or rq.spare */
	struct lab_heap heap;
	struct cpu_heap __arena *next;	/* in its chain */
	u64 mm;
	s64 cpu;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct cpu_heap __arena heap_t;

#define HEAPS_PER_CHUNK		(LAB_CHUNK_BYTES / sizeof(struct cpu_heap))

struct heap_task {
	union {
		struct lab_task lab;
		struct linux24_task old;
	};
	struct lab_heap_node node;
	heap_t *heap;			/* the one it is in */
};

LAB_TASKS(struct heap_task);

struct heap_queue {
	struct lab_lock runqueue_lock;
	struct lab_list heaps;		/* those with tasks */
	struct lab_list aside;		/* tasks taken out of their heaps during a choice */
	s64 nr;				/* tasks in heaps */
	u64 queued;			/* tasks ever queued */
	u64 room;			/* heaps there are, at least one for each context */
	struct lab_list spare;
	heap_t *chains[HEAP_CHAINS];
} __attribute__((aligned(LAB_CACHELINE)));

struct heap_queue __arena_global rq;
struct linux24_cpu __arena_global cpus[LAB_MAX_CPUS];

/*
 * Heaps by CPU and address space.
 */

static __always_inline heap_t *heap_entry(lab_node_t *link)
{
	return lab_entry(link, struct cpu_heap, link);
}

static __always_inline task_t *heap_task(lab_heap_node_t *node)
{
	return lab_entry(node, struct heap_task, node);
}

static __always_inline u32 heap_chain(u64 mm, s64 cpu)
{
	return ((mm ^ ((u64)cpu << 48)) * 0x9e3779b97f4a7c15ull) >> (64 - HEAP_CHAINS_LOG2);
}

/* The heap of a CPU and address space; it gets one if it has none. */
static __always_inline heap_t *heap_get(u64 mm, s64 cpu)
{
	u32 chain = heap_chain(mm, cpu);
	lab_node_t *link;
	heap_t *h;

	lab_touch(&rq.chains[chain], false);
	for (h = rq.chains[chain]; h && can_loop; h = h->next) {
		lab_touch(h, false);
		if (h->mm == mm && h->cpu == cpu)
			return h;
	}
	link = rq.spare.head.next;
	if (h || link == &rq.spare.head)
		return NULL;
	lab_list_del(&rq.spare, link);
	h = heap_entry(link);
	lab_heap_init(&h->heap);
	h->mm = mm;
	h->cpu = cpu;
	h->next = rq.chains[chain];
	rq.chains[chain] = h;
	lab_list_add_head(&rq.heaps, link);
	return h;
}

/* A heap without tasks is given back. False: the loop budget ran out, it is where it was. */
static __always_inline bool heap_put(heap_t *h)
{
	u32 chain = heap_chain(h->mm, h->cpu);
	heap_t *before = NULL, *at;

	lab_touch(&rq.chains[chain], true);
	for (at = rq.chains[chain]; at && at != h && can_loop; at = at->next) {
		lab_touch(at, false);
		before = at;
	}
	if (at != h)
		return false;
	if (before)
		before->next = h->next;
	else
		rq.chains[chain] = h->next;
	lab_list_del(&rq.heaps, &h->link);
	lab_list_add_head(&rq.spare, &h->link);
	return true;
}

/* Static goodness and age of a task: a newer one is ahead of its equals. */
static __always_inline u64 heap_key(task_t *t, u64 queued)
{
	return (u64)linux24_na_goodness(&t->old) << HEAP_AGE_BITS | queued;
}

static __always_inline u64 heap_age(task_t *t)
{
	return lab_glance(t->node.key) & ((1ull << HEAP_AGE_BITS) - 1);
}

/* Into the heap of its CPU and address space. False: something ran out. */
LAB_PART bool heap_file(u32 task)
{
	task_t *t;
	heap_t *h;

	lab_use_arena();
	t = task_at(task);
	h = heap_get(lab_glance(t->lab.mm), lab_glance(t->lab.cpu));
	t->heap = h;
	if (!h)
		return false;
	lab_touch(h, true);
	rq.nr++;
	rq.queued++;
	return lab_heap_add(&h->heap, &t->node, heap_key(t, rq.queued));
}

LAB_PART bool heap_unfile(u32 task)
{
	task_t *t;
	heap_t *h;

	lab_use_arena();
	t = task_at(task);
	h = t->heap;
	lab_touch(h, true);
	rq.nr--;
	if (!lab_heap_del(&h->heap, &t->node))
		return false;
	return lab_heap_first(&h->heap) || heap_put(h);
}

/* Out of its heap for a while, which stays where it is. */
LAB_PART bool heap_set_aside(u32 task)
{
	task_t *t;

	lab_use_arena();
	t = task_at(task);
	lab_list_add_head(&rq.aside, &t->lab.node);
	return lab_heap_del(&t->heap->heap, &t->node);
}

/* Those that were set aside go back. */
LAB_PART bool heap_take_back(void)
{
	lab_node_t *pos;
	task_t *t;

	lab_use_arena();
	for (pos = rq.aside.head.next; pos != &rq.aside.head && can_loop;
	     pos = rq.aside.head.next) {
		lab_list_del(&rq.aside, pos);
		t = lab_entry(pos, struct heap_task, lab.node);
		if (!lab_heap_add(&t->heap->heap, &t->node, t->node.key))
			return false;
	}
	return !rq.aside.nr;
}

/* A task whose goodness has changed, into a heap that was emptied. */
LAB_PART bool heap_file_again(u32 task)
{
	task_t *t;

	lab_use_arena();
	t = task_at(task);
	if (!lab_unaudited(lab_glance(t->old.linked)))
		return true;
	/* It may have come while the lock was free. */
	consult(t);
	return lab_heap_add(&t->heap->heap, &t->node, heap_key(t, heap_age(t)));
}

/* A heap for a new task, where pages can be allocated: there are never more in use than tasks. */
static __always_inline int heap_make_room(void)
{
	char __arena *chunk;
	unsigned long flags;
	u64 room;
	heap_t *h;
	u32 i;

	room = lab_read(rq.room);
	if (room >= lab_read(lab_tasks.nr))
		return 0;
	chunk = bpf_arena_alloc_pages(&arena, NULL, LAB_CHUNK_PAGES, NUMA_NO_NODE, 0);
	if (!chunk) {
		scx_bpf_error("out of heaps after %llu", rq.room);
		return -ENOMEM;
	}
	if (!lab_lock_irqsave(&rq.runqueue_lock, flags))
		return -EBUSY;
	bpf_for(i, 0, HEAPS_PER_CHUNK) {
		h = (heap_t *)(chunk + i * sizeof(struct cpu_heap));
		lab_list_add_tail(&rq.spare, &h->link);
	}
	rq.room += HEAPS_PER_CHUNK;
	lab_unlock_irqrestore(&rq.runqueue_lock, flags);
	return 0;
}

/*
 * The queue. Its lock is held.
 */

static __always_inline void heap_add(linux24_task_t *t)
{
	if (!heap_file(t->lab.index))
		scx_bpf_error("task %d: no heap, or the loop budget ran out", t->lab.pid);
	t->linked = true;
}

static __always_inline void heap_del(linux24_task_t *t)
{
	if (!heap_unfile(t->lab.index))
		scx_bpf_error("task %d: the loop budget ran out in its heap", t->lab.pid);
	t->linked = false;
}

static __always_inline bool heap_misfiled(linux24_task_t *old)
{
	task_t *t = (task_t *)old;
	heap_t *h = lab_glance(t->heap);

	return heap_key(t, heap_age(t)) != lab_glance(t->node.key) ||
	       lab_glance(h->mm) != lab_glance(t->lab.mm) ||
	       lab_glance(h->cpu) != lab_glance(t->lab.cpu);
}

/* The previous task is looked at first, outside of all heaps. */
static __always_inline void heap_previous(linux24_task_t *prev, bool refilled)
{
	if (prev->linked)
		heap_del(prev);
}

/* The best of the first ones of all heaps. False: a loop budget ran out. */
static __always_inline bool heap_search(s32 cpu, u64 mm, linux24_task_t **best,
					s32 *best_value)
{
	lab_heap_node_t *first;
	u64 best_age = ~0ull;
	lab_node_t *pos;
	s32 value;
	task_t *t;
	heap_t *h;

	lab_touch(&rq.heaps, false);
	for (pos = rq.heaps.head.next; pos != &rq.heaps.head && can_loop;) {
		h = heap_entry(pos);
		lab_touch(h, false);
		first = lab_heap_first(&h->heap);
		if (!first) {
			pos = pos->next;
			continue;
		}
		t = heap_task(first);
		examine(t);
		if (!lab_glance(t->old.takeable) || !lab_allowed(&t->lab, cpu)) {
			/* Then the next one of the same heap. */
			if (!heap_set_aside(t->lab.index))
				return false;
			continue;
		}
		value = linux24_goodness(&t->old, cpu, mm, base);
		if (value > *best_value || (value == *best_value && heap_age(t) > best_age)) {
			*best = &t->old;
			*best_value = value;
			best_age = heap_age(t);
		}
		pos = pos->next;
	}
	return lab_list_ended(pos, &rq.heaps);
}

static __always_inline bool heap_choose(linux24_task_t *prev, s32 cpu, u64 mm, bool recalculated,
					linux24_task_t **best, s32 *value)
{
	if (prev) {
		examine(prev);
		*best = prev;
		*value = linux24_goodness(prev, cpu, mm, base);
	}
	if (!heap_search(cpu, mm, best, value))
		return false;
	return !rq.aside.nr || heap_take_back();
}

/* The counters of all tasks of the system without the lock, then all heaps anew. */
static __always_inline bool heap_recalculate(void)
{
	lab_node_t *pos;
	u32 i, nr;

	lab_unlock(&rq.runqueue_lock);
	if (!linux24_recalculate(sizeof(task_t), base) || !lab_lock(&rq.runqueue_lock))
		return false;
	lab_list_for_each(pos, &rq.heaps)
		lab_heap_init(&heap_entry(pos)->heap);
	if (!lab_list_ended(pos, &rq.heaps)) {
		lab_unlock(&rq.runqueue_lock);
		scx_bpf_error("recalculation: the loop budget ran out at a heap");
		return false;
	}
	nr = lab_read(lab_tasks.nr);
	bpf_for(i, 0, nr) {
		if (heap_file_again(i))
			continue;
		lab_unlock(&rq.runqueue_lock);
		scx_bpf_error("recalculation: the loop budget ran out in the heap of task %u", i);
		return false;
	}
	return true;
}

static const struct queue24_hooks heap_hooks = {
	.keeps_running	= false,
	.add		= heap_add,
	.del		= heap_del,
	.misfiled	= heap_misfiled,
	.previous	= heap_previous,
	.choose		= heap_choose,
	.recalculate	= heap_recalculate,
};

/*
 * CPUs that a higher class has taken.
 */

static __always_inline u64 elsc_heap_nr_stranded(s32 cpu)
{
	return queue24_stranded(cpu) && lab_read(rq.nr);
}

static __always_inline bool elsc_heap_rescue(u32 from, u32 to)
{
	return queue24_rescue(&rq.runqueue_lock, from, to);
}

LAB_RESCUE(elsc_heap_nr_stranded, queue24_idle, elsc_heap_rescue);

/*
 * Ops, in the order of a task's life.
 */

/* fork(): parent and child share the parent's remaining ticks. */
s32 BPF_STRUCT_OPS_SLEEPABLE(elsc_heap_init_task, struct task_struct *p,
			     struct scx_init_task_args *args)
{
	struct task_struct *forker = bpf_get_current_task_btf();
	task_t *t = task_new(p);
	linux24_task_t *parent;
	int error;

	if (!t)
		return -ENOMEM;
	error = heap_make_room();
	if (error)
		return error;
	lab_note_higher(p);
	parent = linux24_fork(&t->old, p, args, forker, base);
	if (parent)
		queue24_refile(&rq.runqueue_lock, &heap_hooks, parent, false);
	return 0;
}

/* Only the previous CPU: where a task goes is settled under the lock, in enqueue. */
s32 BPF_STRUCT_OPS(elsc_heap_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	task_t *t = task_of(p);

	if (t)
		linux24_woken(&t->old, wake_flags);
	return prev_cpu;
}

void BPF_STRUCT_OPS(elsc_heap_enqueue, struct task_struct *p, u64 enq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_enqueue(&rq.runqueue_lock, &heap_hooks, &t->old, p, enq_flags, threshold, base);
	else
		lab_no_context(p);
}

void BPF_STRUCT_OPS(elsc_heap_dequeue, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_dequeue(&rq.runqueue_lock, &heap_hooks, &t->old, deq_flags);
}

void BPF_STRUCT_OPS(elsc_heap_dispatch, s32 cpu, struct task_struct *prev)
{
	queue24_schedule(&rq.runqueue_lock, &heap_hooks, cpu, prev, charge, base);
}

void BPF_STRUCT_OPS(elsc_heap_running, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_running(&t->old, p);
	queue24_take_out(&rq.runqueue_lock, &heap_hooks, &t->old);
}

void BPF_STRUCT_OPS(elsc_heap_tick, struct task_struct *p)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_tick(&t->old, p, charge);
	queue24_refile(&rq.runqueue_lock, &heap_hooks, &t->old, false);
}

/* sched_yield(): only if a task waits. No lock is taken. */
bool BPF_STRUCT_OPS(elsc_heap_yield, struct task_struct *from, struct task_struct *to)
{
	task_t *t = task_of(from);

	if (!t || to || !linux24_others_wait(lab_read(rq.nr)))
		return false;
	linux24_yield(&t->old, from);
	return true;
}

void BPF_STRUCT_OPS(elsc_heap_set_weight, struct task_struct *p, u32 weight)
{
	task_t *t = task_of(p);

	if (!t)
		return;
	linux24_set_nice(&t->old, p);
	queue24_refile(&rq.runqueue_lock, &heap_hooks, &t->old, false);
}

void BPF_STRUCT_OPS(elsc_heap_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	task_t *t = task_of(p);

	if (t)
		lab_task_refresh(&t->lab, p);
}

void BPF_STRUCT_OPS(elsc_heap_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	lab_cpu_release();
}

void BPF_STRUCT_OPS(elsc_heap_stopping, struct task_struct *p, bool runnable)
{
	task_t *t = task_of(p);

	if (t)
		linux24_charge_runtime(&t->old, scx_bpf_now(), charge);
}

void BPF_STRUCT_OPS(elsc_heap_quiescent, struct task_struct *p, u64 deq_flags)
{
	task_t *t = task_of(p);

	if (t)
		queue24_quiescent(&rq.runqueue_lock, &heap_hooks, &t->old, deq_flags);
}

/* It leaves for a scheduling class that is not ours. */
void BPF_STRUCT_OPS(elsc_heap_disable, struct task_struct *p)
{
	task_t *t = task_of(p);

	lab_note_higher(p);
	if (t)
		queue24_forget(&rq.runqueue_lock, &heap_hooks, &t->old);
}

/* exit(): what is left of the ticks goes back to the task that forked it. */
void BPF_STRUCT_OPS(elsc_heap_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	task_t *t = task_of(p), *parent;

	if (!t)
		return;
	queue24_forget(&rq.runqueue_lock, &heap_hooks, &t->old);
	parent = task_parent(&t->old.parent);
	/* Its place is corrected where it got them. */
	if (linux24_collect(&t->old, (linux24_task_t *)parent))
		lab_unaudited(queue24_refile(&rq.runqueue_lock, &heap_hooks, &parent->old, true));
	lab_task_free(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(elsc_heap_init)
{
	int error = queue24_init(&rq.runqueue_lock, threshold);

	if (error)
		return error;
	lab_list_init(&rq.heaps);
	lab_list_init(&rq.aside);
	lab_list_init(&rq.spare);
	return 0;
}

void BPF_STRUCT_OPS(elsc_heap_exit, struct scx_exit_info *ei)
{
	UEI_RECORD(uei, ei);
}

SCX_OPS_DEFINE(elsc_heap_ops,
	       .init_task		= (void *)elsc_heap_init_task,
	       .select_cpu		= (void *)elsc_heap_select_cpu,
	       .enqueue			= (void *)elsc_heap_enqueue,
	       .dequeue			= (void *)elsc_heap_dequeue,
	       .dispatch		= (void *)elsc_heap_dispatch,
	       .running			= (void *)elsc_heap_running,
	       .tick			= (void *)elsc_heap_tick,
	       .yield			= (void *)elsc_heap_yield,
	       .set_weight		= (void *)elsc_heap_set_weight,
	       .set_cpumask		= (void *)elsc_heap_set_cpumask,
	       .cpu_release		= (void *)elsc_heap_cpu_release,
	       .stopping		= (void *)elsc_heap_stopping,
	       .quiescent		= (void *)elsc_heap_quiescent,
	       .disable			= (void *)elsc_heap_disable,
	       .exit_task		= (void *)elsc_heap_exit_task,
	       .init			= (void *)elsc_heap_init,
	       .exit			= (void *)elsc_heap_exit,
	       .name			= "elsc_heap");
