/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a policy tells the auditor (crates/abi/src/audit.rs). Nothing, unless it
 * is compiled for an audit: with -DLAB_AUDIT, by a clang that puts the call of a
 * function of these names before each load and each store.
 */
#ifndef SCHEDLAB_SCX_AUDIT_H
#define SCHEDLAB_SCX_AUDIT_H

#ifdef LAB_AUDIT

#define LAB_AUDITED(name, bytes, write)						\
	void name(const volatile void *addr);					\
	__attribute__((used)) void name(const volatile void *addr)		\
	{									\
		lab_host->access(lab_host, addr, (bytes), (write),		\
				 __builtin_return_address(0));			\
	}

LAB_AUDITED(__sanitizer_cov_load1, 1, false)
LAB_AUDITED(__sanitizer_cov_load2, 2, false)
LAB_AUDITED(__sanitizer_cov_load4, 4, false)
LAB_AUDITED(__sanitizer_cov_load8, 8, false)
LAB_AUDITED(__sanitizer_cov_load16, 16, false)
LAB_AUDITED(__sanitizer_cov_store1, 1, true)
LAB_AUDITED(__sanitizer_cov_store2, 2, true)
LAB_AUDITED(__sanitizer_cov_store4, 4, true)
LAB_AUDITED(__sanitizer_cov_store8, 8, true)
LAB_AUDITED(__sanitizer_cov_store16, 16, true)

#undef LAB_AUDITED

LAB_INLINE bool lab_audit_pause(void)
{
	lab_host->unaudited(lab_host, true);
	return true;
}

LAB_INLINE void lab_audit_resume(bool *paused)
{
	lab_host->unaudited(lab_host, false);
}

/* The rest of the block, which the auditor does not look at. */
#define lab_host_unaudited_block()						\
	bool ___paused __attribute__((cleanup(lab_audit_resume))) = lab_audit_pause()

/* The expression, likewise. */
#define lab_host_unaudited(expression)						\
({										\
	lab_host_unaudited_block();						\
	(expression);								\
})

#else

#define lab_host_unaudited_block()	((void)0)
#define lab_host_unaudited(expression)	(expression)

#endif /* LAB_AUDIT */

/* The memory becomes the context of a task. */
LAB_INLINE void lab_host_context(const volatile void *ctx, u32 bytes, u32 task_index)
{
#ifdef LAB_AUDIT
	lab_host->context(lab_host, ctx, bytes, task_index);
#endif
}

/* The context is nobody's any more. */
LAB_INLINE void lab_host_context_ends(const volatile void *ctx)
{
#ifdef LAB_AUDIT
	lab_host->context_ends(lab_host, ctx);
#endif
}

#endif /* SCHEDLAB_SCX_AUDIT_H */
