/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A timer that calls one function again and again. sched_ext has no tick on
 * idle CPUs; what a scheduler does there is done by this, or by those CPUs once
 * they are woken by lab_wake_idle() of <lab/idle.h>.
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

#endif /* LAB_PERIODIC_H */
