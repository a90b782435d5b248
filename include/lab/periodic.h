/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer that calls one function again and again. sched_ext has no tick on
 * idle CPUs; what a scheduler does there is done by this, or by those CPUs once
 * they are woken by lab_wake_idle().
 *
 * LAB_PERIODIC(name, function, period_ns) defines name_start(), called in
 * ops.init(): 0 or a negative errno after an error. `function` is void(void).
 */
#ifndef LAB_PERIODIC_H
#define LAB_PERIODIC_H

#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC		1
#endif

struct lab_periodic {
	struct bpf_timer timer;
};

#define LAB_PERIODIC(name, function, period_ns)				\
struct {								\
	__uint(type, BPF_MAP_TYPE_ARRAY);				\
	__uint(max_entries, 1);						\
	__type(key, u32);						\
	__type(value, struct lab_periodic);				\
} name##_timer SEC(".maps");						\
									\
static int name##_expired(void *map, u32 *key, struct bpf_timer *timer)	\
{									\
	lab_use_arena();						\
	function();							\
	bpf_timer_start(timer, (period_ns), 0);				\
	return 0;							\
}									\
									\
static __always_inline int name##_start(void)				\
{									\
	struct lab_periodic *p;						\
	u32 key = 0;							\
	int error;							\
									\
	p = bpf_map_lookup_elem(&name##_timer, &key);			\
	if (!p)								\
		return -ENOENT;						\
	error = bpf_timer_init(&p->timer, &name##_timer, CLOCK_MONOTONIC); \
	if (!error)							\
		error = bpf_timer_set_callback(&p->timer, name##_expired); \
	if (!error)							\
		error = bpf_timer_start(&p->timer, (period_ns), 0);	\
	if (error)							\
		scx_bpf_error("the timer " #name " does not start: %d", error); \
	return error;							\
}

/* Where lab_wake_idle() begins to look, so that no CPU is always the first. */
static u32 lab_idle_rotor __maybe_unused;

/*
 * lab_wake_idle - in place of the ticks of idle CPUs: wakes as many of them as
 * there are tasks that wait behind others. nr_of(cpu): tasks of its queue;
 * is_idle(cpu): whether it is online and has nothing to do, and shall be woken.
 */
#define lab_wake_idle(nr_of, is_idle)					\
do {									\
	u64 ___waiting = 0, ___nr;					\
	u32 ___i, ___cpu;						\
									\
	bpf_for(___i, 0, lab_nr_cpus) {					\
		___nr = nr_of(___i);					\
		if (___nr > 1)						\
			___waiting += ___nr - 1;			\
	}								\
	if (!___waiting)						\
		break;							\
	lab_idle_rotor++;						\
	bpf_for(___i, 0, lab_nr_cpus) {					\
		___cpu = (___i + lab_idle_rotor) % lab_nr_cpus;		\
		if (!is_idle(___cpu))					\
			continue;					\
		scx_bpf_kick_cpu(___cpu, SCX_KICK_IDLE);		\
		if (!--___waiting)					\
			break;						\
	}								\
} while (0)

#endif /* LAB_PERIODIC_H */
