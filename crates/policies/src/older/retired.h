/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Functions that the kernel has retired (docs/objects.md). Types of kernels that
 * still had them declare them; the types of today do not. Nothing is included here, as
 * a source brings its own types.
 */
struct task_struct;
struct bpf_iter_scx_dsq;

#define LAB_KSYM	__attribute__((section(".ksyms"), weak))

extern void scx_bpf_dispatch(struct task_struct *p, unsigned long long dsq_id, unsigned long long slice,
			     unsigned long long enq_flags) LAB_KSYM;
extern void scx_bpf_dispatch_vtime(struct task_struct *p, unsigned long long dsq_id, unsigned long long slice,
				   unsigned long long vtime, unsigned long long enq_flags) LAB_KSYM;
extern _Bool scx_bpf_consume(unsigned long long dsq_id) LAB_KSYM;
extern _Bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p,
				       unsigned long long dsq_id, unsigned long long enq_flags) LAB_KSYM;
extern _Bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p,
					     unsigned long long dsq_id, unsigned long long enq_flags) LAB_KSYM;
extern void scx_bpf_dispatch_from_dsq_set_slice(struct bpf_iter_scx_dsq *it__iter,
						unsigned long long slice) LAB_KSYM;
extern void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it__iter,
						unsigned long long vtime) LAB_KSYM;

#undef LAB_KSYM
