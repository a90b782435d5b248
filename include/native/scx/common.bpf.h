/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The native build's <scx/common.bpf.h>: the names that the kernel's has,
 * bound to the virtual kernel. The BPF build never sees this folder.
 */
#ifndef SCHEDLAB_SCX_COMMON_BPF_H
#define SCHEDLAB_SCX_COMMON_BPF_H

#include "types.h"
#include "enums.h"
#include "ops.h"
#include "host.h"
#include "bpf.h"
#include "kfuncs.h"
#include "cpumask.h"

#ifndef NR_CPUS
#define NR_CPUS			1024
#endif

extern int LINUX_KERNEL_VERSION __kconfig;
#define scx_bpf_dump_header()	scx_bpf_dump("kernel: schedlab\n")

#define SCX_OPS_DEFINE(name, ...)					\
	SEC(".struct_ops.link")						\
	struct sched_ext_ops name = {					\
		__VA_ARGS__,						\
	}

/*
 * An array whose length user space sets before loading in the kernel; here it
 * has room for every CPU of any machine.
 */
#define RESIZABLE_ARRAY(section, array)	array[LAB_NR_CPUS_MAX] SEC("." #section "." #array)
#define private(name)			SEC(".data." #name) __hidden __attribute__((aligned(8)))

/* NULL outside of the array, as the kernel's versions. */
#define MEMBER_VPTR(base, member)					\
	((typeof((base)member) *)lab_bounded((void *)&(base), sizeof(base), \
					     (void *)&((base)member),	\
					     sizeof((base)member)))
#define ARRAY_ELEM_PTR(array, i, n)					\
	((u64)(i) < (u64)(n) ? &(array)[i] : (typeof(&(array)[0]))NULL)

LAB_INLINE void *lab_bounded(void *base, u64 size, void *member, u64 member_size)
{
	u64 offset = (u64)member - (u64)base;

	return offset <= size - member_size ? member : NULL;
}

enum uei_sizes {
	UEI_REASON_LEN		= 128,
	UEI_MSG_LEN		= 1024,
	UEI_DUMP_DFL_LEN	= 32768,
};

struct user_exit_info {
	int kind;
	s32 exit_cpu;
	s64 exit_code;
	char reason[UEI_REASON_LEN];
	char msg[UEI_MSG_LEN];
};

#define UEI_DEFINE(name)	struct user_exit_info name SEC(".data.uei")
#define UEI_RECORD(uei, ei)						\
({									\
	bpf_probe_read_kernel_str((uei).reason, sizeof((uei).reason), (ei)->reason); \
	bpf_probe_read_kernel_str((uei).msg, sizeof((uei).msg), (ei)->msg); \
	(uei).exit_code = (ei)->exit_code;				\
	(uei).exit_cpu = (ei)->exit_cpu;				\
	(uei).kind = (ei)->kind;					\
})

/* Times that may wrap. */
LAB_INLINE s64 time_delta(u64 after, u64 before)
{
	return (s64)(after - before) > 0 ? (s64)(after - before) : 0;
}

LAB_INLINE bool time_after(u64 a, u64 b)
{
	return (s64)(b - a) < 0;
}

LAB_INLINE bool time_before(u64 a, u64 b)
{
	return time_after(b, a);
}

LAB_INLINE bool time_after_eq(u64 a, u64 b)
{
	return !time_before(a, b);
}

LAB_INLINE bool time_before_eq(u64 a, u64 b)
{
	return !time_after(a, b);
}

LAB_INLINE bool time_in_range(u64 a, u64 from, u64 to)
{
	return time_after_eq(a, from) && time_before_eq(a, to);
}

LAB_INLINE bool time_in_range_open(u64 a, u64 from, u64 to)
{
	return time_after_eq(a, from) && time_before(a, to);
}

/* Arithmetic. */
LAB_INLINE u32 log2_u32(u32 v)
{
	return v ? 31 - __builtin_clz(v) : 0;
}

/* One more than the position of the highest bit, but 1 for 0, as the kernel tree's. */
LAB_INLINE u32 log2_u64(u64 v)
{
	return v ? 64 - __builtin_clzll(v) : 1;
}

LAB_INLINE int ctzll(u64 v)
{
	return v ? __builtin_ctzll(v) : -1;
}

/*
 * Square root. Newton's method with the same start and the same eight steps as
 * in the kernel tree's, so that both worlds compute the same number.
 */
LAB_INLINE u64 __sqrt_u64(u64 x)
{
	u64 root = x < 1ULL << 32 ? x : 1ULL << 32;
	int step;

	for (step = 0; x > 1 && step < 8; step++) {
		u64 other = x / root;

		if (root <= other)
			break;
		root = (root + other) >> 1;
	}
	return root;
}

/* Moving average: the new value weighs 1/2^decay; halves below that. */
#define __calc_avg(old, new, decay)					\
({									\
	typeof(old) ___avg_old = (old);					\
	typeof(old) ___avg_new = (new);					\
	u32 ___shift = ___avg_old < (1 << (decay)) ||			\
		       ___avg_new < (1 << (decay)) ? 1 : (decay);	\
	___shift == 1 && ___avg_old == 1 && !___avg_new ? 0 :		\
		___avg_old - (___avg_old >> ___shift) + (___avg_new >> ___shift); \
})

LAB_INLINE u64 scale_by_task_weight(const struct task_struct *p, u64 value)
{
	return value * p->scx.weight / 100;
}

LAB_INLINE u64 scale_by_task_weight_inverse(const struct task_struct *p, u64 value)
{
	return value * 100 / p->scx.weight;
}

LAB_INLINE u64 get_prandom_u64(void)
{
	u64 high = bpf_get_prandom_u32();

	return high << 32 | bpf_get_prandom_u32();
}

#define flex_array_size(p, member, count)	((count) * sizeof(*(p)->member))
#define struct_size(p, member, count)					\
	(offsetof(typeof(*(p)), member) + flex_array_size(p, member, count))
#define struct_size_t(type, member, count)	struct_size((type *)NULL, member, count)

#define scx_read_event(events, name)	((events)->name)

/* Names that the kernel tree keeps for older kernels. */
#define __COMPAT_ENUM_OR_ZERO(type, value)	(lab_core_exists(#value) ? (value) : 0)
#define __COMPAT_is_enq_cpu_selected(enq_flags)	(!!((enq_flags) & SCX_ENQ_CPU_SELECTED))
#define __COMPAT_scx_bpf_events(events, size)	scx_bpf_events(events, size)
#define __COMPAT_scx_bpf_nr_node_ids()		scx_bpf_nr_node_ids()
#define __COMPAT_scx_bpf_cpu_node(cpu)		scx_bpf_cpu_node(cpu)
#define __COMPAT_scx_bpf_get_idle_cpumask_node(node) scx_bpf_get_idle_cpumask_node(node)
#define __COMPAT_scx_bpf_get_idle_smtmask_node(node) scx_bpf_get_idle_smtmask_node(node)
#define __COMPAT_scx_bpf_pick_idle_cpu_node(allowed, node, flags) \
	scx_bpf_pick_idle_cpu_node(allowed, node, flags)
#define __COMPAT_scx_bpf_pick_any_cpu_node(allowed, node, flags) \
	scx_bpf_pick_any_cpu_node(allowed, node, flags)
#define __COMPAT_scx_bpf_cpu_curr(cpu)		scx_bpf_cpu_curr(cpu)
#define __COMPAT_HAS_scx_bpf_select_cpu_and	1
#define __COMPAT_scx_bpf_reenqueue_local_from_anywhere() \
	lab_core_exists("scx_bpf_reenqueue_local___v2___compat")
#define __COMPAT_has_generic_reenq()		lab_core_exists("scx_bpf_dsq_reenq___compat")

LAB_INLINE struct task_struct *__COMPAT_scx_bpf_dsq_peek(u64 dsq_id)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p = NULL;

	if (bpf_ksym_exists(scx_bpf_dsq_peek))
		return scx_bpf_dsq_peek(dsq_id);
	if (!bpf_iter_scx_dsq_new(&it, dsq_id, 0))
		p = bpf_iter_scx_dsq_next(&it);
	bpf_iter_scx_dsq_destroy(&it);
	return p;
}

#endif /* SCHEDLAB_SCX_COMMON_BPF_H */
