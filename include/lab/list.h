/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A circular doubly linked list with its head as sentinel, in the arena.
 * The caller holds the lock of the list.
 *
 * Model: of the two neighbours of a node that comes or goes only the links are
 * written, which nothing is charged for; the caller touches the head's line and
 * the node's. Such a step costs up to two misses less than it might.
 */
#ifndef LAB_LIST_H
#define LAB_LIST_H

struct lab_node {
	struct lab_node __arena *next;
	struct lab_node __arena *prev;
};

struct lab_list {
	struct lab_node head;	/* next: first, prev: last; itself when empty */
	u64 nr;			/* nodes linked */
};

typedef struct lab_node __arena lab_node_t;
typedef struct lab_list __arena lab_list_t;

static __always_inline void lab_list_init(lab_list_t *list)
{
	list->head.next = &list->head;
	list->head.prev = &list->head;
	list->nr = 0;
}

static __always_inline void lab_list_link(lab_list_t *list, lab_node_t *node,
					  lab_node_t *before, lab_node_t *after)
{
	node->prev = before;
	node->next = after;
	lab_unaudited_set(before->next, node);
	lab_unaudited_set(after->prev, node);
	list->nr++;
}

/* The node becomes the first. It must not be linked. */
static __always_inline void lab_list_add_head(lab_list_t *list, lab_node_t *node)
{
	lab_list_link(list, node, &list->head, list->head.next);
}

/* The node becomes the last. It must not be linked. */
static __always_inline void lab_list_add_tail(lab_list_t *list, lab_node_t *node)
{
	lab_list_link(list, node, list->head.prev, &list->head);
}

/* Takes a linked node out. */
static __always_inline void lab_list_del(lab_list_t *list, lab_node_t *node)
{
	lab_node_t *before = node->prev, *after = node->next;

	lab_unaudited_set(before->next, after);
	lab_unaudited_set(after->prev, before);
	node->next = NULL;
	node->prev = NULL;
	list->nr--;
}

/*
 * lab_list_for_each - walks from the first node to the last. The body must not
 * take @pos out. If the loop budget runs out (a list longer than the verifier
 * lets a program walk, or a broken one), the walk ends early and
 * lab_list_ended() is false: the caller must not take that for the end. The
 * kernel promises 8 M steps or a quarter of a second; 65,535 steps are safe in any case.
 */
#define lab_list_for_each(pos, list)					\
	for ((pos) = (list)->head.next;					\
	     (pos) != &(list)->head && can_loop;			\
	     (pos) = (pos)->next)

#define lab_list_ended(pos, list)	((pos) == &(list)->head)

/* The structure of @type whose @member is @node. */
#define lab_entry(node, type, member)					\
	((type __arena *)((char __arena *)(node) - offsetof(type, member)))

#endif /* LAB_LIST_H */
