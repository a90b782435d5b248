/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The code that the tests of the library's structures against plain models
 * share: random numbers, an array that items enter and leave at any place, and
 * ops.init(), which makes the operations and fails on the first difference;
 * after the last one the policy ends itself with their number, so that its
 * loader sees that they were made. A test includes this after the structure,
 * defines plant() and NAME_make(), and ends with MODEL_OPS(NAME).
 */
#ifndef RULES_MODEL_H
#define RULES_MODEL_H

char _license[] SEC("license") = "GPL";

UEI_DEFINE(uei);

/* The structure is broken before the operation of this number; 0: never. */
const volatile u32 fault_before;

/* Breaks the structure, so that the next comparison must see it. */
LAB_PART int plant(void);

/* In the arena, where the verifier does not follow values. */
struct model_run {
	u32 seed;
	u32 done;	/* operations that were made */
};

struct model_run __arena_global model_run;

static __noinline u32 draw(u32 below)
{
	u32 x;

	lab_use_arena();
	x = model_run.seed;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	model_run.seed = x;
	return x % below;
}

/* Most items of an array; a power of two. */
#define MODEL_MAX	32

/* Numbers of items, in order. */
struct model_array {
	u32 at[MODEL_MAX];
	u32 nr;
};

typedef struct model_array __arena model_array_t;

static __always_inline u32 model_at(model_array_t *array, u32 place)
{
	return array->at[place & (MODEL_MAX - 1)];
}

/* The item becomes the one at @place, which is at most the number of items. */
static __always_inline void model_insert(model_array_t *array, u32 place, u32 number)
{
	u32 i;

	for (i = array->nr; i > place && can_loop; i--)
		array->at[i & (MODEL_MAX - 1)] = model_at(array, i - 1);
	array->at[place & (MODEL_MAX - 1)] = number;
	array->nr++;
}

/* Takes out an item that is there. */
static __always_inline void model_remove(model_array_t *array, u32 number)
{
	u32 i;

	for (i = 0; i < array->nr && model_at(array, i) != number && can_loop; i++)
		;
	array->nr--;
	for (; i < array->nr && can_loop; i++)
		array->at[i & (MODEL_MAX - 1)] = model_at(array, i + 1);
}

/*
 * Makes operations: `operation` is an expression that is true if one went well
 * and what came out is as it must be. 0 or a negative errno after an error.
 */
#define model_make(rounds, operation)						\
({										\
	int ___error = 0;							\
	u32 ___i;								\
										\
	model_run.seed = 2463534242u;						\
	bpf_for(___i, 0, rounds) {						\
		if (fault_before && ___i == fault_before)			\
			plant();						\
		if (!(operation)) {						\
			scx_bpf_error("it differs from the model after %u operations", ___i); \
			___error = -EINVAL;					\
			break;							\
		}								\
		model_run.done++;						\
	}									\
	if (!___error && model_run.done != (rounds)) {				\
		scx_bpf_error("%u of %u operations were made", model_run.done, rounds); \
		___error = -EINVAL;						\
	}									\
	___error;								\
})

#define MODEL_OPS(test)								\
s32 BPF_STRUCT_OPS_SLEEPABLE(test##_init)					\
{										\
	int error = lab_init();							\
										\
	if (!error)								\
		error = test##_make();						\
	if (!error)								\
		scx_bpf_exit(model_run.done, "%u operations, all as in the model", \
			     model_run.done);					\
	return error;								\
}										\
										\
void BPF_STRUCT_OPS(test##_exit, struct scx_exit_info *ei)			\
{										\
	UEI_RECORD(uei, ei);							\
}										\
										\
SCX_OPS_DEFINE(test##_ops,							\
	       .init	= (void *)test##_init,					\
	       .exit	= (void *)test##_exit,					\
	       .name	= #test)

#endif /* RULES_MODEL_H */
