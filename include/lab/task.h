/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Task contexts: what a policy knows of a task, in the arena, so that other
 * CPUs can look at it without the task.
 *
 * They come from a free list that grows by chunks and never shrinks, so a
 * context's memory stays readable whatever happens to its task. Running out of
 * contexts is an error, never a task without one.
 *
 * A policy embeds struct lab_task as the first member, `lab`, of its own
 * struct and says LAB_TASKS(struct its_task) once; that defines task_new(),
 * task_of(), task_at() and task_parent() for it.
 */
#ifndef LAB_TASK_H
#define LAB_TASK_H

#define LAB_MASK_WORDS		(LAB_MAX_CPUS / 64)
#define LAB_CHUNK_PAGES		16
#define LAB_CHUNK_BYTES		(LAB_CHUNK_PAGES * 4096)
/* Chunks of 64 KB: with 256-byte contexts 256 each, 1,048,576 in all. */
#define LAB_MAX_CHUNKS		4096

/*
 * Slice in the kernel's sense. Turns end by the policy's rules; the kernel must
 * only never end one by itself. Finite, because SCX_SLICE_INF would stop the
 * tick of nohz_full CPUs.
 */
#define LAB_LONG_SLICE_NS	(3600ull * 1000000000ull)

/* The scheduling policies of Linux that are distinguished. ISO is Kolivas's own. */
#define LAB_SCHED_FIFO		1
#define LAB_SCHED_RR		2
#define LAB_SCHED_BATCH		3
#define LAB_SCHED_ISO		4
#define LAB_SCHED_IDLE		5

static __always_inline bool lab_realtime(u32 policy)
{
	return policy == LAB_SCHED_FIFO || policy == LAB_SCHED_RR;
}

struct lab_task {
	struct lab_node node;	/* link in a run queue; on the free list: next */
	u64 mm;			/* identity of the address space, 0 = kernel thread */
	s32 pid;		/* 0 while the context is free */
	s32 cpu;		/* CPU it last ran on */
	u32 index;		/* number of this context, from 0; never changes */
	u32 life;		/* tasks that had this context before */
	u32 task;		/* number of the task in the virtual kernel; natively only */
	u32 pad;
	/*
	 * Allowed CPUs as of the last enqueue or change. Only a filter: the dispatching
	 * CPU looks at the real mask, on the real task.
	 */
	u64 allowed[LAB_MASK_WORDS];
};

typedef struct lab_task __arena lab_task_t;

struct lab_task_ref {
	lab_task_t *task;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct lab_task_ref);
} lab_task_refs SEC(".maps");

struct lab_tasks {
	struct lab_lock lock;			/* free list, nr, chunks; taken with no other */
	lab_task_t *free;
	u32 nr;					/* contexts that exist, free ones included */
	char __arena *chunks[LAB_MAX_CHUNKS];
};

struct lab_tasks __arena_global lab_tasks;

/* One more than the highest number of a CPU: bounds of arrays and loops over CPUs. */
static u32 lab_nr_cpus;

/*
 * The CPUs that are online, which is what a scheduler's rules count; known once
 * ops.init() has asked for each. They stay so: a policy without ops.cpu_online()
 * ends when one comes or goes.
 */
static u32 lab_nr_online;
static u64 lab_online[LAB_MASK_WORDS];

static __always_inline bool lab_cpu_online(u32 cpu)
{
	return lab_online[(cpu / 64) & (LAB_MASK_WORDS - 1)] >> (cpu % 64) & 1;
}

/* ops.init, once for each CPU, with the mask of those that are online: whether it is, which is noted. */
static __always_inline bool lab_note_online(u32 cpu, const struct cpumask *online)
{
	if (!bpf_cpumask_test_cpu(cpu, online))
		return false;
	lab_online[(cpu / 64) & (LAB_MASK_WORDS - 1)] |= 1ull << (cpu % 64);
	lab_nr_online++;
	return true;
}

/*
 * lab_init - called first in ops.init(); 0 or a negative errno after an error.
 */
static __always_inline int lab_init(void)
{
	lab_use_arena();
	lab_nr_cpus = scx_bpf_nr_cpu_ids();
	if (lab_nr_cpus > LAB_MAX_CPUS) {
		scx_bpf_error("%u CPUs: this policy serves at most %d", lab_nr_cpus,
			      LAB_MAX_CPUS);
		return -EINVAL;
	}
	lab_nr_online = 0;
	lab_lock_init(&lab_tasks.lock, LAB_LOCK_CLASS_OTHER);
	return 0;
}

/*
 * The free list's lock has no counterpart in a scheduler's design, so it is
 * taken in the kernel only. Natively an op is never interrupted between two
 * synchronisation points, and none occurs while the lock would be held. A
 * test that plays another CPU defines its own.
 */
#ifdef __bpf__
#define lab_tasks_lock(flags)	lab_lock_irqsave(&lab_tasks.lock, flags)
#define lab_tasks_unlock(flags)	lab_unlock_irqrestore(&lab_tasks.lock, flags)
#elif !defined(lab_tasks_lock)
#define lab_tasks_lock(flags)	((void)(flags), lab_host_guard(&lab_tasks.lock, true), true)
#define lab_tasks_unlock(flags)	((void)(flags), lab_host_guard(&lab_tasks.lock, false))
#endif

static __always_inline lab_task_t *lab_task_at(u32 index, u32 bytes)
{
	u32 per_chunk = LAB_CHUNK_BYTES / bytes;
	u32 chunk = index / per_chunk;

	return (lab_task_t *)(lab_tasks.chunks[chunk & (LAB_MAX_CHUNKS - 1)] +
			      (index - chunk * per_chunk) * bytes);
}

/* Takes a context off the free list, or carves the next one; NULL: none left. */
static __always_inline lab_task_t *lab_task_take(u32 bytes)
{
	u32 per_chunk = LAB_CHUNK_BYTES / bytes;
	char __arena *fresh;
	lab_task_t *t = NULL;
	unsigned long flags;
	u32 pass, chunk;

	/*
	 * Pages can only be allocated with no lock held: if the next context
	 * would need a chunk, have one ready. Meanwhile other CPUs may take what
	 * was left, so the second pass always has one. A chunk that is not
	 * needed, as another CPU has brought one, is freed.
	 */
	for (pass = 0; pass < 2 && !t; pass++) {
		fresh = NULL;
		if (pass ||
		    (!lab_read(lab_tasks.free) && !(lab_read(lab_tasks.nr) % per_chunk))) {
			fresh = bpf_arena_alloc_pages(&arena, NULL, LAB_CHUNK_PAGES,
						      NUMA_NO_NODE, 0);
			if (!fresh)
				return NULL;
		}
		if (!lab_tasks_lock(flags))
			return NULL;
		t = lab_tasks.free;
		if (t) {
			lab_tasks.free = (lab_task_t *)t->node.next;
			t->node.next = NULL;
		} else {
			chunk = lab_tasks.nr / per_chunk;
			if (fresh && chunk < LAB_MAX_CHUNKS && !lab_tasks.chunks[chunk]) {
				lab_tasks.chunks[chunk] = fresh;
				fresh = NULL;
			}
			if (chunk < LAB_MAX_CHUNKS && lab_tasks.chunks[chunk]) {
				t = lab_task_at(lab_tasks.nr, bytes);
				t->index = lab_tasks.nr;
				lab_tasks.nr++;
			}
		}
		lab_tasks_unlock(flags);
		if (fresh)
			bpf_arena_free_pages(&arena, fresh, LAB_CHUNK_PAGES);
	}
	return t;
}

static __always_inline void lab_task_give(lab_task_t *t)
{
	unsigned long flags;

	t->pid = 0;
	t->life++;
#ifndef __bpf__
	lab_host_context_ends(t);
#endif
	if (!lab_tasks_lock(flags))
		return;
	t->node.next = (lab_node_t *)lab_tasks.free;
	lab_tasks.free = t;
	lab_tasks_unlock(flags);
}

/* Reads what the filter and the bonus need from the real task. */
static __always_inline void lab_task_refresh(lab_task_t *t, struct task_struct *p)
{
	u32 i, words = (lab_nr_cpus + 63) / 64;

	/* A thread that is not the first takes the number of the process when it calls execve(). */
	t->pid = p->pid;
	t->mm = (u64)(unsigned long)p->mm;
#ifdef __bpf__
	/* At each enqueue, so without a call where there is one word; those beyond stay 0. */
	lab_post(t->allowed[0], p->cpus_ptr->bits[0]);
	if (words > 1) {
		u64 bits[LAB_MASK_WORDS] = {};

		if (words > LAB_MASK_WORDS)
			words = LAB_MASK_WORDS;
		bpf_probe_read_kernel(bits, words * sizeof(u64), p->cpus_ptr);
		bpf_for(i, 1, words)
			lab_post(t->allowed[i & (LAB_MASK_WORDS - 1)],
				 bits[i & (LAB_MASK_WORDS - 1)]);
	}
#else
	for (i = 0; i < words; i++)
		lab_post(t->allowed[i], p->cpus_ptr->bits[i]);
#endif
}

/* Whether the cached mask lets the task on @cpu. */
static __always_inline bool lab_allowed(lab_task_t *t, u32 cpu)
{
	return lab_glance(t->allowed[(cpu / 64) & (LAB_MASK_WORDS - 1)]) >> (cpu % 64) & 1;
}

/* Drops @cpu from the cached mask until the next refresh. */
static __always_inline void lab_disallow(lab_task_t *t, u32 cpu)
{
	u64 __arena *word = &t->allowed[(cpu / 64) & (LAB_MASK_WORDS - 1)];

	/* A concurrent change of the mask is lost until the next refresh; a dispatch checks the kernel's own mask. */
	lab_post(*word, lab_glance(*word) & ~(1ull << (cpu % 64)));
}

/*
 * lab_charge_recalculation - the time that a sweep over the counters of all
 * tasks takes in the virtual kernel, for a policy whose original makes one and
 * which need not. @bytes: the size of a context.
 */
#ifdef __bpf__
#define lab_charge_recalculation(bytes)	((void)(bytes))
#else
static __always_inline void lab_charge_recalculation(u32 bytes)
{
	u32 i, nr = lab_read(lab_tasks.nr);
	lab_task_t *t;

	for (i = 0; i < nr && can_loop; i++) {
		t = lab_task_at(i, bytes);
		/* The original goes through the tasks that there are. */
		if (lab_unaudited(lab_glance(t->pid)))
			lab_host_recalculate(t, lab_unaudited(lab_glance(t->task)));
	}
}
#endif

/*
 * The task that forked another, for as long as it is there: its context may be
 * another task's when that one looks.
 */
struct lab_parent {
	u32 context;		/* 1 + its number, 0 = none */
	u32 life;		/* which task of that context it is */
};

static __always_inline void lab_parent_set(struct lab_parent __arena *parent, lab_task_t *t)
{
	parent->context = 1 + t->index;
	parent->life = t->life;
}

/* Whether it is the task of this context; the original compares pointers. */
static __always_inline bool lab_parent_is(struct lab_parent __arena *parent, lab_task_t *t)
{
	return parent->context == 1 + lab_unaudited(t->index) &&
	       parent->life == lab_unaudited(lab_glance(t->life));
}

/* Returns its context, of @bytes; NULL if it has none any more. */
static __always_inline lab_task_t *lab_parent_of(struct lab_parent __arena *parent, u32 bytes)
{
	lab_task_t *t;

	if (!parent->context)
		return NULL;
	t = lab_task_at(parent->context - 1, bytes);
	/* The original follows a pointer, as a task is there as long as its children. */
	return lab_unaudited(lab_glance(t->pid) && lab_glance(t->life) == parent->life) ? t : NULL;
}

/*
 * lab_task_claim - the real task of a context that a choice on @cpu has come
 * upon, for scx_bpf_dsq_insert() to the local queue; the caller releases it.
 * The masks in the arena only filter: the real task decides. NULL: it is gone
 * or may not run there, which is counted; until the next refresh its cached
 * mask does not let it on @cpu, so that the caller can choose again.
 *
 * Whether migration is disabled is not asked. The kernel keeps such a task to
 * itself (SCX_OPS_ENQ_MIGRATION_DISABLED is not set), and the count cannot be
 * read from another CPU: a BPF program raises it for the task it interrupts,
 * so a task that its old CPU is still putting away, in ops.enqueue() here,
 * looks as if it had to stay.
 */
static __always_inline struct task_struct *lab_task_claim(lab_task_t *t, s32 cpu)
{
	struct task_struct *p = bpf_task_from_pid(lab_glance(t->pid));

	if (!p) {
		lab_count(LAB_FAILED_LOOKUPS, 1);
		lab_disallow(t, cpu);
		return NULL;
	}
	if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return p;
	lab_count(LAB_LATE_MASKS, 1);
	lab_disallow(t, cpu);
	bpf_task_release(p);
	return NULL;
}

/* The context of @p, or NULL, which is counted. */
static __always_inline lab_task_t *lab_task_of(struct task_struct *p)
{
	struct lab_task_ref *ref;

	lab_use_arena();
	ref = bpf_task_storage_get(&lab_task_refs, p, NULL, 0);
	if (!ref || !ref->task) {
		lab_count(LAB_FAILED_LOOKUPS, 1);
		return NULL;
	}
	return ref->task;
}

/* ops.enqueue, for a task without a context, which no policy can queue: the policy ends. */
static __always_inline void lab_no_context(struct task_struct *p)
{
	scx_bpf_error("%s[%d] has no context", p->comm, p->pid);
}

/*
 * lab_task_new - gives @p a context, zero but for what lab_task holds; called
 * in a sleepable ops.init_task(). NULL after an error.
 */
static __always_inline lab_task_t *lab_task_new(struct task_struct *p, u32 bytes)
{
	struct lab_task_ref *ref;
	lab_task_t *t;
	u32 i;

	lab_use_arena();
	ref = bpf_task_storage_get(&lab_task_refs, p, NULL,
				   BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!ref) {
		scx_bpf_error("no task storage for %s[%d]", p->comm, p->pid);
		return NULL;
	}
	t = lab_task_take(bytes);
	if (!t) {
		scx_bpf_error("out of task contexts after %u", lab_tasks.nr);
		return NULL;
	}
	/* The fields after lab_task are the policy's and start at zero. */
	for (i = sizeof(struct lab_task) / sizeof(u64);
	     i < bytes / sizeof(u64) && can_loop; i++)
		lab_post(((u64 __arena *)t)[i], 0);
	t->node.next = NULL;
	t->node.prev = NULL;
#ifndef __bpf__
	t->task = p->__lab_index;
	lab_host_context(t, bytes, t->task);
#endif
	t->cpu = scx_bpf_task_cpu(p);
	lab_task_refresh(t, p);
	ref->task = t;
	return t;
}

/* Gives the context of @p back; called in ops.exit_task(). */
static __always_inline void lab_task_free(struct task_struct *p)
{
	lab_task_t *t = lab_task_of(p);

	if (!t)
		return;
	bpf_task_storage_delete(&lab_task_refs, p);
	lab_task_give(t);
}

#define LAB_TASKS(type)							\
	typedef type __arena task_t;					\
	_Static_assert(offsetof(type, lab) == 0, "lab is the first member"); \
	_Static_assert(sizeof(type) % sizeof(u64) == 0, "contexts are cleared by words"); \
									\
	static __always_inline task_t *task_new(struct task_struct *p)	\
	{								\
		return (task_t *)lab_task_new(p, sizeof(type));		\
	}								\
	static __always_inline task_t *task_of(struct task_struct *p)	\
	{								\
		return (task_t *)lab_task_of(p);			\
	}								\
	static __always_inline __maybe_unused task_t *task_at(u32 index)	\
	{								\
		return (task_t *)lab_task_at(index, sizeof(type));	\
	}								\
	static __always_inline __maybe_unused task_t *			\
	task_parent(struct lab_parent __arena *parent)			\
	{								\
		return (task_t *)lab_parent_of(parent, sizeof(type));	\
	}

#endif /* LAB_TASK_H */
