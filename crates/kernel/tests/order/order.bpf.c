/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes down each context switch from and to the yielders of tests/order.rs, with what the policy
 * could know at that moment.
 *
 * Into an array and not into a ring buffer, because a ring buffer wakes its reader, and the reader would
 * take the CPU from the yielders.
 */
#include <scx/common.bpf.h>
#include <lab/probe.h>

char _license[] SEC("license") = "GPL";

/* The kernel's number of the policy SCHED_EXT (include/uapi/linux/sched.h). */
#define SCHED_EXT	7

#define MAX_RECORDS	65536

/* Mirrored by `RawSwitch` in guest.rs. */
struct record {
	u64 at_ns;		/* the clock that the policy reads in this very switch */
	u64 prev_vtime;		/* virtual time of the previous task, 0 if it is no yielder ... */
	u64 next_vtime;		/* ... and of the next one */
	u64 examined;		/* LAB_EXAMINED so far; 0 where the policy does not count */
	u32 prev, next;		/* pids of yielders; 0: somebody else */
	u32 blocked;		/* whether the previous task waits for something now */
	u32 yielding;		/* whether it is inside sched_yield() */
	u32 yields;		/* how often it was called since the record before */
	u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_RECORDS);
	__type(key, u32);
	__type(value, struct record);
} records SEC(".maps");

/* One CPU only: nothing of this is shared. */
struct progress {
	u32 program;		/* whose threads the yielders are; set before the start */
	u32 nr;			/* records, lost ones included */
	u32 yielding;		/* the pid that is inside sched_yield() and has not been switched out there */
	u32 yields;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct progress);
} states SEC(".maps");

static struct progress *progress(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&states, &zero);
}

static bool yielder(struct progress *s, struct task_struct *p)
{
	return p->policy == SCHED_EXT && p->tgid == s->program;
}

SEC("fentry/do_sched_yield")
int BPF_PROG(before_yield)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct progress *s = progress();

	if (!s || !yielder(s, p))
		return 0;
	s->yielding = p->pid;
	s->yields++;
	return 0;
}

SEC("fexit/do_sched_yield")
int BPF_PROG(after_yield)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct progress *s = progress();

	if (s && yielder(s, p))
		s->yielding = 0;
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 examined = LAB_EXAMINED, index;
	struct progress *s = progress();
	struct record *r;
	bool from, to;
	u64 *count;

	if (!s)
		return 0;
	from = yielder(s, prev);
	to = yielder(s, next);
	if (!from && !to)
		return 0;
	index = s->nr++;
	r = bpf_map_lookup_elem(&records, &index);
	if (!r)
		return 0;
	r->at_ns = scx_bpf_now();
	count = bpf_map_lookup_elem(&lab_probes, &examined);
	r->examined = count ? *count : 0;
	r->yields = s->yields;
	s->yields = 0;
	if (from) {
		r->prev = prev->pid;
		r->prev_vtime = prev->scx.dsq_vtime;
		r->blocked = !preempt && prev_state;
		r->yielding = s->yielding == prev->pid;
	}
	if (to) {
		r->next = next->pid;
		r->next_vtime = next->scx.dsq_vtime;
	}
	s->yielding = 0;
	return 0;
}
