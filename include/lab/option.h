/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ranges of options: a policy checks in ops.init() those that it multiplies,
 * casts or divides by, so that a great number is refused instead of wrapping to
 * a small one. A policy that does without the rest of the library includes this
 * alone.
 */
#ifndef LAB_OPTION_H
#define LAB_OPTION_H

/* Most goodness by which a task must exceed another: a threshold is compared as a signed number. */
#define LAB_THRESHOLD_MAX	(1u << 30)

/* lab_at_most - true if an option is no more than @most; else the policy has ended by an error. */
#define lab_at_most(option, most)					\
({									\
	bool ___fits = (option) <= (most);				\
									\
	if (!___fits)							\
		scx_bpf_error(#option " must be at most %llu", (u64)(most)); \
	___fits;							\
})

#endif /* LAB_OPTION_H */
