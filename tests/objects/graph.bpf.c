/* SPDX-License-Identifier: GPL-2.0-only */
/* Objects of the kernel in a tree and in a list. */
#include "kernel.h"

struct bpf_rb_root { u64 opaque[2]; } __attribute__((aligned(8)));
struct bpf_rb_node { u64 opaque[4]; } __attribute__((aligned(8)));
struct bpf_list_head { u64 opaque[2]; } __attribute__((aligned(8)));
struct bpf_list_node { u64 opaque[3]; } __attribute__((aligned(8)));

struct item {
	struct bpf_rb_node node;
	struct bpf_list_node link;
	u64 value;
};

#define type_id(type)	__builtin_btf_type_id(*(type *)0, 0)

extern void *bpf_obj_new_impl(u64 local_type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
			       bool_t (*less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta, u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, u64 off) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta, u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;

struct bpf_rb_root root;
struct bpf_list_head head;

static bool_t less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return ((struct item *)a)->value < ((struct item *)b)->value;
}

#define of_link(at)	((struct item *)((void *)(at) - __builtin_offsetof(struct item, link)))

static noinline u64 put(u64 value)
{
	struct item *item = bpf_obj_new_impl(type_id(struct item), NULL);

	if (!item)
		return 0;
	item->value = value;
	bpf_rbtree_add_impl(&root, &item->node, less, NULL, 0);
	if (value & 1)
		bpf_list_push_back_impl(&head, &item->link, NULL, 0);
	else
		bpf_list_push_front_impl(&head, &item->link, NULL, 0);
	return 1;
}

SEC("struct_ops/running") s32 g_running(u64 *ctx)
{
	struct bpf_rb_node *node;
	struct bpf_list_node *link;
	u64 sorted = 0, listed = 0, again;
	int i;

	put(5);
	put(2);
	put(7);
	node = bpf_rbtree_first(&root);
	again = (u64)bpf_rbtree_add_impl(&root, node, less, NULL, 0);
	for (i = 0; i < 3; i++) {
		link = bpf_list_pop_front(&head);
		if (link)
			listed = listed * 10 + of_link(link)->value;
	}
	for (i = 0; i < 4; i++) {
		node = bpf_rbtree_first(&root);
		if (!node)
			break;
		node = bpf_rbtree_remove(&root, node);
		if (!node)
			break;
		sorted = sorted * 10 + ((struct item *)node)->value;
		bpf_obj_drop_impl(node, NULL);
	}
	finish("sorted %llu listed %llu again %lld left %llu", sorted, listed, (s64)(s32)again, bpf_rbtree_first(&root) != NULL);
	return 0;
}

SCHEDULER("graph", .running = (void *)g_running);
