/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of a policy to the auditor and the checker of races (crates/abi/src/audit.rs,
 * crates/abi/src/races.rs). Nothing, unless it is compiled for that: with -DLAB_AUDIT,
 * by a clang that puts the call of a function of ThreadSanitizer's names before each
 * load and each store, as the kernel's own checker of races (KCSAN) has it done.
 */
#ifndef SCHEDLAB_SCX_AUDIT_H
#define SCHEDLAB_SCX_AUDIT_H

#ifdef LAB_AUDIT

/* Properties of an access: bits, as in crates/abi/src/watch.rs. */
#define LAB_ACCESS_WRITE	1u
#define LAB_ACCESS_MARKED	2u	/* volatile or atomic */
#define LAB_ACCESS_UPDATE	5u	/* a write of what is read by the same operation */

/* Kinds of memory order: as in crates/abi/src/watch.rs. */
enum lab_order {
	LAB_ORDER_NONE,			/* relaxed: a marked access and no more */
	LAB_ORDER_ACQUIRE,
	LAB_ORDER_RELEASE,
	LAB_ORDER_FULL,
};

/* The instrumentation does not instrument itself. */
#define LAB_UNWATCHED	__attribute__((no_sanitize("thread"), noinline, used))

#define LAB_WATCHED(name, bytes, kind)						\
	void name(const volatile void *addr);					\
	LAB_UNWATCHED void name(const volatile void *addr)			\
	{									\
		lab_host->access(lab_host, addr, (bytes), (kind),		\
				 __builtin_return_address(0));			\
	}

#define LAB_WATCHED_SIZE(bytes)							\
	LAB_WATCHED(__tsan_read##bytes, bytes, 0)				\
	LAB_WATCHED(__tsan_write##bytes, bytes, LAB_ACCESS_WRITE)		\
	LAB_WATCHED(__tsan_unaligned_read##bytes, bytes, 0)			\
	LAB_WATCHED(__tsan_unaligned_write##bytes, bytes, LAB_ACCESS_WRITE)	\
	LAB_WATCHED(__tsan_volatile_read##bytes, bytes, LAB_ACCESS_MARKED)	\
	LAB_WATCHED(__tsan_volatile_write##bytes, bytes,			\
		    LAB_ACCESS_WRITE | LAB_ACCESS_MARKED)			\
	LAB_WATCHED(__tsan_unaligned_volatile_read##bytes, bytes, LAB_ACCESS_MARKED) \
	LAB_WATCHED(__tsan_unaligned_volatile_write##bytes, bytes,		\
		    LAB_ACCESS_WRITE | LAB_ACCESS_MARKED)

LAB_WATCHED_SIZE(1)
LAB_WATCHED_SIZE(2)
LAB_WATCHED_SIZE(4)
LAB_WATCHED_SIZE(8)
LAB_WATCHED_SIZE(16)

#undef LAB_WATCHED_SIZE
#undef LAB_WATCHED

void *__tsan_memcpy(void *to, const void *from, u64 bytes);
LAB_UNWATCHED void *__tsan_memcpy(void *to, const void *from, u64 bytes)
{
	lab_host->access(lab_host, from, bytes, 0, __builtin_return_address(0));
	lab_host->access(lab_host, to, bytes, LAB_ACCESS_WRITE, __builtin_return_address(0));
	return __builtin_memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, u64 bytes);
LAB_UNWATCHED void *__tsan_memmove(void *to, const void *from, u64 bytes)
{
	lab_host->access(lab_host, from, bytes, 0, __builtin_return_address(0));
	lab_host->access(lab_host, to, bytes, LAB_ACCESS_WRITE, __builtin_return_address(0));
	return __builtin_memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int byte, u64 bytes);
LAB_UNWATCHED void *__tsan_memset(void *to, int byte, u64 bytes)
{
	lab_host->access(lab_host, to, bytes, LAB_ACCESS_WRITE, __builtin_return_address(0));
	return __builtin_memset(to, byte, bytes);
}

/* Clang calls it from a constructor; there is nothing to set up. */
void __tsan_init(void);
LAB_UNWATCHED void __tsan_init(void)
{
}

/* An atomic operation that follows at once. @access: 0, LAB_ACCESS_WRITE or LAB_ACCESS_UPDATE. */
static LAB_UNWATCHED void lab_watch_atomic(const volatile void *addr, u32 bytes, u32 access,
					   u32 order)
{
	lab_host->atomic_access(lab_host, addr, bytes, access, order,
				__builtin_return_address(0));
}

LAB_INLINE u32 lab_order_of(int memory_order)
{
	switch (memory_order) {
	case __ATOMIC_RELAXED:
		return LAB_ORDER_NONE;
	case __ATOMIC_CONSUME:
	case __ATOMIC_ACQUIRE:
		return LAB_ORDER_ACQUIRE;
	case __ATOMIC_RELEASE:
		return LAB_ORDER_RELEASE;
	default:
		return LAB_ORDER_FULL;
	}
}

#define lab_host_atomic_access(pointer, access, order) \
	lab_watch_atomic((pointer), sizeof(*(pointer)), (access), (order))

/* A barrier: what it orders. */
LAB_INLINE void lab_host_fence(u32 order)
{
	lab_host->fence(lab_host, order);
}

/* A lock that only the kernel takes, around what the virtual kernel never interrupts. */
LAB_INLINE void lab_host_guard(const volatile void *lock, bool begins)
{
	lab_host->guard(lab_host, lock, begins);
}

LAB_INLINE bool lab_race_pause(void)
{
	lab_host->racy(lab_host, true);
	return true;
}

LAB_INLINE void lab_race_resume(bool *paused)
{
	lab_host->racy(lab_host, false);
}

/* The rest of the block, whose accesses may race on purpose. */
#define lab_host_racy_block()							\
	bool ___racy __attribute__((cleanup(lab_race_resume))) = lab_race_pause()

/* The expression, likewise. */
#define lab_host_racy(expression)						\
({										\
	lab_host_racy_block();							\
	(expression);								\
})

/* An access that the compiler neither splits nor leaves out. */
#define lab_host_once(lvalue)	(*(volatile typeof(lvalue) *)&(lvalue))

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
#define lab_host_racy_block()		((void)0)
#define lab_host_racy(expression)	(expression)
#define lab_host_once(lvalue)		(lvalue)
#define lab_host_atomic_access(pointer, access, order) ((void)0)
#define lab_host_fence(order)		((void)0)
#define lab_host_guard(lock, begins)	((void)0)

#endif /* LAB_AUDIT */

/* The memory becomes the context of a task. */
LAB_INLINE void lab_host_context(const volatile void *ctx, u32 bytes, u32 task_index)
{
#ifdef LAB_AUDIT
	lab_host->context(lab_host, ctx, bytes, task_index);
#endif
}

/* The context belongs to no task any more. */
LAB_INLINE void lab_host_context_ends(const volatile void *ctx)
{
#ifdef LAB_AUDIT
	lab_host->context_ends(lab_host, ctx);
#endif
}

#endif /* SCHEDLAB_SCX_AUDIT_H */
