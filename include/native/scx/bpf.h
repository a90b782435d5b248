/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replaces libbpf's headers for a policy: sections, maps, helpers, loops.
 */
#ifndef SCHEDLAB_SCX_BPF_H
#define SCHEDLAB_SCX_BPF_H

#include "host.h"

#define SEC(name)		__attribute__((section(name), used))
#define __uint(name, value)	int (*name)[value]
#define __ulong(name, value)	enum { LAB_PASTE(lab_ulong_, __COUNTER__) = (value) } name
#define __type(name, value)	typeof(value) *name
#define __array(name, value)	typeof(value) *name[]

#ifndef __always_inline
#define __always_inline		inline __attribute__((always_inline))
#endif
#ifndef __noinline
#define __noinline		__attribute__((noinline))
#endif
#ifndef __weak
#define __weak			__attribute__((weak))
#endif
#define __hidden		__attribute__((visibility("hidden")))
#define __maybe_unused		__attribute__((unused))
#define __ksym
#define __kconfig
#define __kptr
#define __kptr_untrusted
#define __percpu_kptr
#define __uptr
#define __arg_ctx
#define __arg_nonnull
#define __arg_nullable
#define __arg_trusted
#define __arg_untrusted
#define __arg_arena
#define __contains(name, node)
#define __rcu
#define __user
#define __bpf_kfunc

#define likely(x)		__builtin_expect(!!(x), 1)
#define unlikely(x)		__builtin_expect(!!(x), 0)
#define barrier()		asm volatile("" ::: "memory")
#define barrier_var(var)	asm volatile("" : "+r"(var))
#define __sink(expr)		asm volatile("" : "+g"(expr))
#define bpf_unreachable()	__builtin_trap()

#define container_of(pointer, type, member)				\
({									\
	void *___member = (void *)(pointer);				\
	((type *)(___member - offsetof(type, member)));			\
})

/* Memory: the compiler's own. */
#define memset(dst, c, n)	__builtin_memset((void *)(dst), (c), (n))
#define memcpy(dst, src, n)	__builtin_memcpy((void *)(dst), (const void *)(src), (n))
#define memmove(dst, src, n)	__builtin_memmove((void *)(dst), (const void *)(src), (n))
#define __builtin_preserve_access_index(x)	(x)

/*
 * CO-RE. What exists is in the shadow headers, unless the simulated kernel is
 * older: a policy may declare what it asks for itself, as of another kernel. Of a
 * member only the name counts.
 */
#define bpf_core_field_exists(field...)		lab_core_exists(#field)
#define bpf_core_field_size(field...)		sizeof(field)
#define bpf_core_type_exists(type)		lab_core_exists(#type)
#define bpf_core_type_matches(type)		lab_core_exists(#type)
#define bpf_core_type_size(type)		sizeof(type)
#define bpf_core_enum_value_exists(type, value)	lab_core_exists(#value)
#define bpf_core_enum_value(type, value)	(value)
#define bpf_core_cast(pointer, type)		((typeof(type) *)(pointer))
#define bpf_rdonly_cast(pointer, type)		((void *)(pointer))
#define bpf_ksym_exists(symbol)			lab_core_exists(#symbol)

LAB_INLINE bool lab_core_exists(const char *name)
{
	return lab_host->ksym_exists(lab_host, name);
}

/* A function that came after the simulated kernel ends the run where it is called. */
LAB_INLINE void lab_require(const char *name)
{
	if (!lab_core_exists(name))
		lab_host->missing(lab_host, name);
}

#define LAB_READ_1(s, a)		((s)->a)
#define LAB_READ_2(s, a, b)		((s)->a->b)
#define LAB_READ_3(s, a, b, c)		((s)->a->b->c)
#define LAB_READ_4(s, a, b, c, d)	((s)->a->b->c->d)
#define LAB_ARG_5(_1, _2, _3, _4, n, ...)	n
#define BPF_CORE_READ(source, path...)					\
	LAB_ARG_5(path, LAB_READ_4, LAB_READ_3, LAB_READ_2, LAB_READ_1, )(source, path)

/* Words that several CPUs share: synchronisation points. */
#define READ_ONCE(x)							\
	(*({ lab_host_sync(); (const volatile typeof(x) *)&(x); }))
#define WRITE_ONCE(x, val)						\
({									\
	lab_host_sync();						\
	*(volatile typeof(x) *)&(x) = (val);				\
})

/*
 * Atomic operations: the compiler's, after the CPU has waited for its turn and
 * paid for the line. (A macro's own name inside it is not expanded again.)
 */
#define LAB_ATOMIC_AS(pointer, access, order)				\
({									\
	lab_host->atomic(lab_host, (pointer));				\
	lab_host_atomic_access((pointer), (access), (order));		\
})
/* Those without an order of their own are fully ordered. */
#define LAB_ATOMIC(pointer)	LAB_ATOMIC_AS(pointer, LAB_ACCESS_UPDATE, LAB_ORDER_FULL)
#define LAB_ATOMIC_BY(pointer, o) \
	LAB_ATOMIC_AS(pointer, LAB_ACCESS_UPDATE, lab_order_of(o))
/* A load or a store of a word that others share: a synchronisation point without charge. */
#define LAB_SHARED_AS(pointer, access, order)				\
({									\
	lab_host_sync();						\
	lab_host_atomic_access((pointer), (access), (order));		\
})
#define __sync_fetch_and_add(p, v)	({ LAB_ATOMIC(p); __sync_fetch_and_add(p, v); })
#define __sync_fetch_and_sub(p, v)	({ LAB_ATOMIC(p); __sync_fetch_and_sub(p, v); })
#define __sync_fetch_and_or(p, v)	({ LAB_ATOMIC(p); __sync_fetch_and_or(p, v); })
#define __sync_fetch_and_and(p, v)	({ LAB_ATOMIC(p); __sync_fetch_and_and(p, v); })
#define __sync_fetch_and_xor(p, v)	({ LAB_ATOMIC(p); __sync_fetch_and_xor(p, v); })
#define __sync_add_and_fetch(p, v)	({ LAB_ATOMIC(p); __sync_add_and_fetch(p, v); })
#define __sync_sub_and_fetch(p, v)	({ LAB_ATOMIC(p); __sync_sub_and_fetch(p, v); })
#define __sync_val_compare_and_swap(p, o, n) \
	({ LAB_ATOMIC(p); __sync_val_compare_and_swap(p, o, n); })
#define __sync_bool_compare_and_swap(p, o, n) \
	({ LAB_ATOMIC(p); __sync_bool_compare_and_swap(p, o, n); })
#define __sync_lock_test_and_set(p, v)	({ LAB_ATOMIC(p); __sync_lock_test_and_set(p, v); })
#define __sync_lock_release(p)		({ LAB_ATOMIC(p); __sync_lock_release(p); })
#define __atomic_load_n(p, order)	\
	({ LAB_SHARED_AS(p, 0, lab_order_of(order)); __atomic_load_n(p, order); })
#define __atomic_store_n(p, v, order)	\
	({ LAB_SHARED_AS(p, LAB_ACCESS_WRITE, lab_order_of(order)); __atomic_store_n(p, v, order); })
#define __atomic_fetch_add(p, v, o)	({ LAB_ATOMIC_BY(p, o); __atomic_fetch_add(p, v, o); })
#define __atomic_fetch_sub(p, v, o)	({ LAB_ATOMIC_BY(p, o); __atomic_fetch_sub(p, v, o); })
#define __atomic_add_fetch(p, v, o)	({ LAB_ATOMIC_BY(p, o); __atomic_add_fetch(p, v, o); })
#define __atomic_sub_fetch(p, v, o)	({ LAB_ATOMIC_BY(p, o); __atomic_sub_fetch(p, v, o); })
#define __atomic_exchange_n(p, v, o)	({ LAB_ATOMIC_BY(p, o); __atomic_exchange_n(p, v, o); })
#define __atomic_compare_exchange_n(p, e, d, w, s, f) \
	({ LAB_ATOMIC_BY(p, s); __atomic_compare_exchange_n(p, e, d, w, s, f); })
#define smp_mb()			({ lab_host_sync(); lab_host_fence(LAB_ORDER_FULL); })
#define smp_rmb()			({ lab_host_sync(); lab_host_fence(LAB_ORDER_ACQUIRE); })
#define smp_wmb()			({ barrier(); lab_host_fence(LAB_ORDER_RELEASE); })
#define smp_load_acquire(p)		\
	({ LAB_SHARED_AS(p, 0, LAB_ORDER_ACQUIRE); __atomic_load_n(p, __ATOMIC_ACQUIRE); })
#define smp_store_release(p, v)		\
	({ LAB_SHARED_AS(p, LAB_ACCESS_WRITE, LAB_ORDER_RELEASE); __atomic_store_n(p, v, __ATOMIC_RELEASE); })

/* Loops. */
struct lab_range {
	s64 at, stop;
};

LAB_INLINE struct lab_range lab_range(s64 start, s64 end)
{
	/* bpf_iter_num_new() refuses more than BPF_MAX_LOOPS. */
	if (end - start > BPF_MAX_LOOPS)
		end = start;
	return (struct lab_range){ start, end };
}

#define can_loop	lab_host_loop()
#define cond_break	if (!can_loop) break
#define cond_break_label(label)	if (!can_loop) goto label

/* As libbpf's, it looks at the bounds again in each round. */
#define bpf_for(i, start, end)						\
	for (struct lab_range ___range = lab_range((start), (end));	\
	     ___range.at < ___range.stop && lab_host_loop() &&		\
	     ((i) = ___range.at++, (i) >= (start) && (i) < (end));)

#define bpf_repeat(n)							\
	for (struct lab_range ___range = lab_range(0, (n));		\
	     ___range.at < ___range.stop && lab_host_loop() &&		\
	     (___range.at++, true);)

#define bpf_for_each(type, cur, args...)				\
	for (struct bpf_iter_##type ___it				\
	     __attribute__((cleanup(bpf_iter_##type##_destroy))),	\
	     *___it_ready __attribute__((unused)) =			\
	     (bpf_iter_##type##_new(&___it, ##args), &___it);		\
	     lab_host_loop() && ((cur) = bpf_iter_##type##_next(&___it));)

LAB_INLINE long bpf_loop(u32 nr, void *callback, void *ctx, u64 flags)
{
	long (*step)(u64 index, void *ctx) = callback;
	u32 i;

	if (flags)
		return -EINVAL;
	if (nr > BPF_MAX_LOOPS)
		return -E2BIG;
	for (i = 0; i < nr; i++) {
		lab_host_loop();
		if (step(i, ctx))
			return i + 1;
	}
	return i;
}

/* Helpers. */
#define bpf_map_lookup_elem(map, key)	lab_host->map_lookup(lab_host, (map), (key))
#define bpf_map_lookup_percpu_elem(map, key, cpu) \
	lab_host->map_lookup_percpu(lab_host, (map), (key), (cpu))
#define bpf_map_update_elem(map, key, value, flags) \
	lab_host->map_update(lab_host, (map), (key), (value), (flags))
#define bpf_map_delete_elem(map, key)	lab_host->map_delete(lab_host, (map), (key))
#define bpf_map_push_elem(map, value, flags) \
	lab_host->map_push(lab_host, (map), (value), (flags))
#define bpf_map_pop_elem(map, value)	lab_host->map_pop(lab_host, (map), (value), false)
#define bpf_map_peek_elem(map, value)	lab_host->map_pop(lab_host, (map), (value), true)

LAB_INLINE long bpf_for_each_map_elem(void *map, void *callback, void *ctx, u64 flags)
{
	long (*step)(void *map, const void *key, void *value, void *ctx) = callback;
	const void *key;
	u64 cursor = 0;
	void *value;
	long nr = 0;

	if (flags)
		return -EINVAL;
	while (lab_host_loop() && lab_host->map_next(lab_host, map, &cursor, &key, &value)) {
		nr++;
		if (step(map, key, value, ctx))
			break;
	}
	return nr;
}

#define bpf_task_storage_get(map, task, value, flags) \
	lab_host->storage_get(lab_host, (map), (task), (value), (flags))
#define bpf_task_storage_delete(map, task) \
	lab_host->storage_delete(lab_host, (map), (task))

#define bpf_timer_init(timer, map, flags) \
	lab_host->timer_init(lab_host, (timer), (map), (flags))
#define bpf_timer_set_callback(timer, callback) \
	lab_host->timer_set_callback(lab_host, (timer), (void *)(callback))
#define bpf_timer_start(timer, nsecs, flags) \
	lab_host->timer_start(lab_host, (timer), (nsecs), (flags))
#define bpf_timer_cancel(timer)		lab_host->timer_cancel(lab_host, (timer))

#define bpf_spin_lock(lock)		lab_host_lock(&(lock)->val, 3)
#define bpf_spin_unlock(lock)		lab_host_unlock(&(lock)->val)
#define bpf_res_spin_lock(lock)		lab_host->res_lock(lab_host, &(lock)->val, 3, lab_here())
#define bpf_res_spin_unlock(lock)	lab_host_unlock(&(lock)->val)
#define bpf_res_spin_lock_irqsave(lock, flags) \
	({ *(flags) = 0; bpf_res_spin_lock(lock); })
#define bpf_res_spin_unlock_irqrestore(lock, flags) \
	({ (void)(flags); lab_host_unlock(&(lock)->val); })

#define bpf_ktime_get_ns()		lab_host->now(lab_host)
#define bpf_ktime_get_boot_ns()		lab_host->now(lab_host)
#define bpf_ktime_get_coarse_ns()	lab_host->now(lab_host)
#define bpf_get_prandom_u32()		lab_host->random(lab_host)
#define bpf_get_smp_processor_id()	lab_host->smp_processor_id(lab_host)
#define bpf_get_numa_node_id()		\
	lab_host->cpu_node(lab_host, lab_host->smp_processor_id(lab_host))
#define bpf_get_current_task_btf()	lab_host->current_task(lab_host)
#define bpf_get_current_task()		((u64)lab_host->current_task(lab_host))
#define bpf_get_current_pid_tgid()					\
({									\
	struct task_struct *___p = lab_host->current_task(lab_host);	\
	(u64)___p->tgid << 32 | (u32)___p->pid;				\
})

/* RCU, preemption, interrupts: nothing interrupts an op in the virtual kernel. */
#define bpf_rcu_read_lock()		((void)0)
#define bpf_rcu_read_unlock()		((void)0)
#define bpf_preempt_disable()		((void)0)
#define bpf_preempt_enable()		((void)0)
#define bpf_local_irq_save(flags)	((void)(*(flags) = 0))
#define bpf_local_irq_restore(flags)	((void)(flags))

LAB_INLINE long bpf_probe_read_kernel(void *dst, u32 size, const void *src)
{
	if ((u64)src < 4096) {
		memset(dst, 0, size);
		return -EFAULT;
	}
	memcpy(dst, src, size);
	return 0;
}

LAB_INLINE long bpf_probe_read_kernel_str(void *dst, u32 size, const void *src)
{
	char *to = dst;
	const char *from = src;
	u32 i;

	if (!size)
		return 0;
	if ((u64)src < 4096) {
		to[0] = 0;
		return -EFAULT;
	}
	for (i = 0; i < size - 1 && from[i]; i++)
		to[i] = from[i];
	to[i] = 0;
	return i + 1;
}

#define bpf_core_read(dst, size, src)	bpf_probe_read_kernel(dst, size, src)
#define bpf_core_read_str(dst, size, src) bpf_probe_read_kernel_str(dst, size, src)

LAB_INLINE int bpf_strncmp(const char *a, u32 size, const char *b)
{
	u32 i;

	for (i = 0; i < size; i++) {
		if (a[i] != b[i])
			return (u8)a[i] < (u8)b[i] ? -1 : 1;
		if (!a[i])
			break;
	}
	return 0;
}

LAB_INLINE int strncmp(const char *a, const char *b, size_t n)
{
	return bpf_strncmp(a, n, b);
}

/* Text: arguments travel as an array of 64-bit words, as in the kernel's bstr. */
#define LAB_NARG(args...)	LAB_NARG_(_, ##args, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LAB_NARG_(_0, _1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, n, ...) n
#define LAB_WORD(x)	((u64)(x))
#define LAB_FILL_0(a)
#define LAB_FILL_1(a, x)	(a)[0] = LAB_WORD(x);
#define LAB_FILL_2(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_1((a) + 1, r)
#define LAB_FILL_3(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_2((a) + 1, r)
#define LAB_FILL_4(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_3((a) + 1, r)
#define LAB_FILL_5(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_4((a) + 1, r)
#define LAB_FILL_6(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_5((a) + 1, r)
#define LAB_FILL_7(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_6((a) + 1, r)
#define LAB_FILL_8(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_7((a) + 1, r)
#define LAB_FILL_9(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_8((a) + 1, r)
#define LAB_FILL_10(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_9((a) + 1, r)
#define LAB_FILL_11(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_10((a) + 1, r)
#define LAB_FILL_12(a, x, r...)	(a)[0] = LAB_WORD(x); LAB_FILL_11((a) + 1, r)
#define LAB_PASTE_(a, b)	a##b
#define LAB_PASTE(a, b)		LAB_PASTE_(a, b)

static inline __attribute__((format(printf, 1, 2), unused))
void lab_check_format(const char *fmt, ...) { (void)fmt; }

/* Fills ___args and hands it to @call with the format. */
#define LAB_TEXT(call, fmt, args...)					\
({									\
	u64 ___args[LAB_NARG(args) + 1] = {};				\
	LAB_PASTE(LAB_FILL_, LAB_NARG(args))(___args, ##args)		\
	/* only looked at: arguments are evaluated once */		\
	if (0)								\
		lab_check_format(fmt, ##args);				\
	call(fmt, ___args, LAB_NARG(args) * 8);				\
})

#define LAB_PRINT(fmt, args, bytes)	lab_host->print(lab_host, fmt, args, bytes, false)
#define LAB_DUMP(fmt, args, bytes)	lab_host->print(lab_host, fmt, args, bytes, true)
#define LAB_ERROR(fmt, args, bytes)	lab_host->error(lab_host, fmt, args, bytes)

#define bpf_printk(fmt, args...)	LAB_TEXT(LAB_PRINT, fmt, ##args)
#define bpf_trace_printk(fmt, size, args...) LAB_TEXT(LAB_PRINT, fmt, ##args)
#define scx_bpf_dump(fmt, args...)	((void)LAB_TEXT(LAB_DUMP, fmt, ##args))
#define scx_bpf_error(fmt, args...)					\
	LAB_TEXT(LAB_ERROR, __FILE__ ":" SCX_TOSTRING(__LINE__) ": " fmt, ##args)
#define scx_bpf_exit(code, fmt, args...)				\
({									\
	u64 ___args[LAB_NARG(args) + 1] = {};				\
	LAB_PASTE(LAB_FILL_, LAB_NARG(args))(___args, ##args)		\
	if (0)								\
		lab_check_format(fmt, ##args);				\
	lab_host->exit(lab_host, (code), fmt, ___args, LAB_NARG(args) * 8); \
})
#define scx_bpf_error_bstr(fmt, args, bytes) lab_host->error(lab_host, fmt, (const u64 *)(args), bytes)
#define scx_bpf_exit_bstr(code, fmt, args, bytes) \
	lab_host->exit(lab_host, code, fmt, (const u64 *)(args), bytes)
#define scx_bpf_dump_bstr(fmt, args, bytes) \
	((void)lab_host->print(lab_host, fmt, (const u64 *)(args), bytes, true))

#define SCX_STRINGIFY(x)	#x
#define SCX_TOSTRING(x)		SCX_STRINGIFY(x)

/* Arena: its memory is ordinary memory here. */
#define __arena
#define __arena_global
#define cast_kern(pointer)	((void)0)
#define cast_user(pointer)	((void)0)
#define bpf_addr_space_cast(var, dst, src)	((void)0)
#ifndef PAGE_SIZE
#define PAGE_SIZE		4096
#endif
#define __PAGE_SIZE		4096

#define bpf_arena_alloc_pages(map, addr, pages, node, flags) \
	((void)(node), (flags) ? NULL : lab_host->arena_alloc(lab_host, (map), (addr), (pages)))
#define bpf_arena_free_pages(map, addr, pages) \
	lab_host->arena_free(lab_host, (map), (addr), (pages))

/*
 * An op's arguments are those of an ordinary function. Programs other than ops
 * compile, and are never called (crates/abi/src/object.rs).
 */
#define BPF_PROG(name, args...)			name(args)
#define BPF_PROG2(name, args...)		name(args)
#define BPF_KPROBE(name, args...)		name(args)
#define BPF_KRETPROBE(name, args...)		name(args)
#define BPF_STRUCT_OPS(name, args...)		SEC("struct_ops/" #name) name(args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...)	SEC("struct_ops.s/" #name) name(args)

#endif /* SCHEDLAB_SCX_BPF_H */
