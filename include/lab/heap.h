/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A heap: the node with the greatest key is at hand, and any node can be taken
 * out. It is a leftist tree (C. A. Crane, 1972) of nodes that lie in the users'
 * own structures, so it needs no memory and knows no bound. Adding and taking
 * out take O(log n) steps, looking at the first takes one. Equal keys come out
 * in no particular order. The caller holds the lock of the heap.
 *
 * Lines of the nodes that are followed or changed are touched here.
 *
 * Model: nothing is charged for the ranks of the children of such a node, nor for
 * the link to a new parent in the first of what is merged: lab_unaudited().
 */
#ifndef LAB_HEAP_H
#define LAB_HEAP_H

struct lab_heap_node {
	struct lab_heap_node __arena *parent;
	struct lab_heap_node __arena *left;
	struct lab_heap_node __arena *right;
	u64 key;
	u64 rank;		/* nodes on the way right to the first free place */
};

struct lab_heap {
	struct lab_heap_node __arena *root;	/* greatest key, NULL = empty */
	u64 nr;					/* nodes */
};

typedef struct lab_heap_node __arena lab_heap_node_t;
typedef struct lab_heap __arena lab_heap_t;

static __always_inline void lab_heap_init(lab_heap_t *heap)
{
	heap->root = NULL;
	heap->nr = 0;
}

/* Returns the node with the greatest key, NULL if the heap is empty. */
static __always_inline lab_heap_node_t *lab_heap_first(lab_heap_t *heap)
{
	return heap->root;
}

/* The right way is the short one: of two children the one of higher rank is left. */
static __always_inline u64 lab_heap_lean(lab_heap_node_t *node)
{
	lab_heap_node_t *left = node->left, *right = node->right;
	u64 left_rank = left ? lab_unaudited(left->rank) : 0;
	u64 right_rank = right ? lab_unaudited(right->rank) : 0;

	lab_touch(node, true);
	if (left_rank >= right_rank)
		return right_rank + 1;
	node->left = right;
	node->right = left;
	return left_rank + 1;
}

/*
 * Makes one tree of two, under @parent. False: the loop budget ran out, and the
 * trees are broken.
 */
static __always_inline bool lab_heap_merge(lab_heap_node_t *a, lab_heap_node_t *b,
					   lab_heap_node_t *parent, lab_heap_node_t **merged)
{
	lab_heap_node_t *last = NULL, *root = NULL, *rest;

	/* Down the right ways of both, the greater node first. */
	while (a && b && can_loop) {
		lab_touch(a, false);
		lab_touch(b, false);
		if (a->key < b->key) {
			rest = a;
			a = b;
			b = rest;
		}
		if (last)
			last->right = a;
		else
			root = a;
		a->parent = last;
		last = a;
		a = a->right;
	}
	if (a && b)
		return false;
	rest = a ? a : b;
	if (rest)
		lab_unaudited_set(rest->parent, last);
	if (last)
		last->right = rest;
	else
		root = rest;
	/* And up again. */
	while (last && can_loop) {
		last->rank = lab_heap_lean(last);
		last = last->parent;
	}
	if (last)
		return false;
	if (root)
		lab_unaudited_set(root->parent, parent);
	*merged = root;
	return true;
}

/* The node becomes one of the heap. False: the loop budget ran out, and the heap is broken. */
static __always_inline bool lab_heap_add(lab_heap_t *heap, lab_heap_node_t *node, u64 key)
{
	lab_heap_node_t *root = heap->root;

	node->left = NULL;
	node->right = NULL;
	node->parent = NULL;
	node->rank = 1;
	node->key = key;
	if (!lab_heap_merge(root, node, NULL, &root))
		return false;
	heap->root = root;
	heap->nr++;
	return true;
}

/* Takes out a node of the heap. False: the loop budget ran out, and the heap is broken. */
static __always_inline bool lab_heap_del(lab_heap_t *heap, lab_heap_node_t *node)
{
	lab_heap_node_t *parent = node->parent, *merged = NULL;
	u64 rank;

	lab_touch(node, true);
	if (!lab_heap_merge(node->left, node->right, parent, &merged))
		return false;
	/* lab_heap_lean() touches it below. */
	if (!parent)
		heap->root = merged;
	else if (lab_unaudited(parent->left == node))
		lab_unaudited_set(parent->left, merged);
	else
		lab_unaudited_set(parent->right, merged);
	/* Ranks above it change as far as they depend on its own. */
	while (parent) {
		if (!can_loop)
			return false;
		rank = lab_heap_lean(parent);
		if (rank == parent->rank)
			break;
		parent->rank = rank;
		parent = parent->parent;
	}
	node->parent = NULL;
	node->left = NULL;
	node->right = NULL;
	heap->nr--;
	return true;
}

#endif /* LAB_HEAP_H */
