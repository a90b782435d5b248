/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A red-black tree in the arena: ordered by a key that may wrap, with the first
 * node at hand, and with the least of a second number in every subtree, so that
 * the first node whose number does not exceed a bound is found in one descent.
 * Adding, taking out and that search take a number of steps that grows with the
 * logarithm of the number of nodes. The caller holds the lock of the tree.
 *
 * Among equal keys the one added later stands behind. Nodes lie in lines of
 * their own and are touched here.
 *
 * Model: the nodes on the way down to a place, those that rotate and the one that
 * comes or goes are charged. What changes beside that way (colours, least values,
 * a neighbour's link) and the way up again, through nodes that are known, are
 * not: lab_unaudited().
 */
#ifndef LAB_RBTREE_H
#define LAB_RBTREE_H

struct lab_rb_node {
	struct lab_rb_node __arena *child[2];	/* before it and behind it */
	struct lab_rb_node __arena *parent;
	s64 key;		/* not to be changed while it is linked */
	s64 value;		/* nor this */
	s64 least;		/* least value of the subtree */
	u32 red;
	u32 pad;
} __attribute__((aligned(LAB_CACHELINE)));

typedef struct lab_rb_node __arena lab_rb_node_t;

struct lab_rb_tree {
	lab_rb_node_t *root;
	lab_rb_node_t *first;	/* NULL when empty */
	u64 nr;			/* nodes linked */
	lab_rb_node_t *found;	/* what the last search found, NULL = nothing */
	u64 steps;		/* nodes that it looked at */
};

typedef struct lab_rb_tree __arena lab_rb_tree_t;

static __always_inline void lab_rb_init(lab_rb_tree_t *tree)
{
	tree->root = NULL;
	tree->first = NULL;
	tree->nr = 0;
}

/* Of two numbers that may wrap, whether @a is the lesser. */
static __always_inline bool lab_rb_less(s64 a, s64 b)
{
	return (s64)((u64)a - (u64)b) < 0;
}

static __always_inline bool lab_rb_is_red(lab_rb_node_t *node)
{
	return node && lab_unaudited(node->red);
}

/* The least value of its subtree anew, from its children's. */
static __always_inline void lab_rb_settle(lab_rb_node_t *node)
{
	lab_rb_node_t *before, *behind;
	s64 least;

	lab_unaudited_block();
	before = node->child[0];
	behind = node->child[1];
	least = node->value;
	if (before && lab_rb_less(before->least, least))
		least = before->least;
	if (behind && lab_rb_less(behind->least, least))
		least = behind->least;
	node->least = least;
}

static __always_inline void lab_rb_settle_up(lab_rb_node_t *node)
{
	for (; node && can_loop; node = lab_unaudited(node->parent))
		lab_rb_settle(node);
}

/* @with takes the place of @node below its parent. */
static __always_inline void lab_rb_replace(lab_rb_tree_t *tree, lab_rb_node_t *node,
					   lab_rb_node_t *with)
{
	lab_rb_node_t *parent;

	lab_unaudited_block();
	parent = node->parent;
	if (!parent)
		tree->root = with;
	else
		parent->child[parent->child[1] == node] = with;
	if (with)
		with->parent = parent;
}

/* @node goes down towards side @side; its child on the other side takes its place. */
static __noinline int lab_rb_rotate(lab_rb_tree_t *tree, lab_rb_node_t *node, u32 side)
{
	lab_rb_node_t *up, *across;

	lab_unaudited_block();
	lab_use_arena();
	up = node->child[!side];
	across = up->child[side & 1];
	lab_touch(up, true);
	node->child[!side] = across;
	if (across)
		across->parent = node;
	lab_rb_replace(tree, node, up);
	up->child[side & 1] = node;
	node->parent = up;
	lab_rb_settle(node);
	lab_rb_settle(up);
	return 0;
}

/* A node that has no parent of its own colour again, after @node was added red. */
static __always_inline void lab_rb_balance_added(lab_rb_tree_t *tree, lab_rb_node_t *node)
{
	lab_rb_node_t *parent, *grand, *uncle;
	u32 side;

	lab_unaudited_block();
	for (parent = node->parent; parent && parent->red && can_loop; parent = node->parent) {
		grand = parent->parent;
		side = grand->child[1] == parent;
		uncle = grand->child[!side];
		if (lab_rb_is_red(uncle)) {
			parent->red = false;
			uncle->red = false;
			grand->red = true;
			node = grand;
			continue;
		}
		if (parent->child[!side] == node) {
			lab_rb_rotate(tree, parent, side);
			node = parent;
			parent = node->parent;
		}
		parent->red = false;
		grand->red = true;
		lab_rb_rotate(tree, grand, !side);
		break;
	}
	tree->root->red = false;
}

/*
 * lab_rb_add - links a node whose key and value are set. False: the loop budget
 * ran out and it is not linked.
 */
LAB_PART bool lab_rb_add(lab_rb_tree_t *tree __arg_arena, lab_rb_node_t *node __arg_arena)
{
	lab_rb_node_t *parent = NULL, *pos;
	bool first = true;
	u32 side = 0;

	lab_use_arena();
	for (pos = tree->root; pos && can_loop; pos = pos->child[side & 1]) {
		lab_touch(pos, false);
		parent = pos;
		side = !lab_rb_less(node->key, pos->key);
		if (side)
			first = false;
	}
	if (pos)
		return false;
	lab_touch(node, true);
	node->child[0] = NULL;
	node->child[1] = NULL;
	node->parent = parent;
	node->red = true;
	node->least = node->value;
	if (parent) {
		lab_touch(parent, true);
		parent->child[side & 1] = node;
	} else {
		tree->root = node;
	}
	if (first)
		tree->first = node;
	tree->nr++;
	lab_rb_settle_up(parent);
	lab_rb_balance_added(tree, node);
	return true;
}

/* The next node on one side, in order: behind (1) or before (0); NULL at the end. */
static __noinline lab_rb_node_t *lab_rb_beside(lab_rb_node_t *node, u32 side)
{
	lab_rb_node_t *pos;

	lab_unaudited_block();
	lab_use_arena();
	pos = node->child[side & 1];
	if (pos) {
		for (; pos->child[!side] && can_loop; pos = pos->child[!side])
			lab_touch(pos, false);
		return pos;
	}
	for (pos = node->parent; pos && pos->child[side & 1] == node && can_loop; pos = pos->parent)
		node = pos;
	return pos;
}

/* The node behind another, NULL at the end. */
static __always_inline lab_rb_node_t *lab_rb_next(lab_rb_node_t *node)
{
	return lab_rb_beside(node, 1);
}

/* The node before another, NULL at the begin. */
static __always_inline __maybe_unused lab_rb_node_t *lab_rb_prev(lab_rb_node_t *node)
{
	return lab_rb_beside(node, 0);
}

/* The last node, NULL when empty. */
static __noinline __maybe_unused lab_rb_node_t *lab_rb_last(lab_rb_tree_t *tree)
{
	lab_rb_node_t *pos;

	lab_unaudited_block();
	lab_use_arena();
	pos = tree->root;
	for (; pos && pos->child[1] && can_loop; pos = pos->child[1])
		lab_touch(pos, false);
	return pos;
}

/* A subtree below @parent that lacks a black node, @node or an empty one, gets it. */
static __always_inline void lab_rb_balance_taken(lab_rb_tree_t *tree, lab_rb_node_t *node,
						 lab_rb_node_t *parent)
{
	lab_rb_node_t *other;
	u32 side;

	lab_unaudited_block();
	while (parent && !lab_rb_is_red(node) && can_loop) {
		side = parent->child[0] != node;
		other = parent->child[!side];
		if (other->red) {
			other->red = false;
			parent->red = true;
			lab_rb_rotate(tree, parent, side);
			other = parent->child[!side];
		}
		lab_touch(other, true);
		if (!lab_rb_is_red(other->child[0]) && !lab_rb_is_red(other->child[1])) {
			other->red = true;
			node = parent;
			parent = node->parent;
			continue;
		}
		if (!lab_rb_is_red(other->child[!side])) {
			other->child[side & 1]->red = false;
			other->red = true;
			lab_rb_rotate(tree, other, !side);
			other = parent->child[!side];
		}
		other->red = parent->red;
		parent->red = false;
		other->child[!side]->red = false;
		lab_rb_rotate(tree, parent, side);
		node = tree->root;
		break;
	}
	if (node)
		node->red = false;
}

/* Takes a linked node out. */
LAB_PART int lab_rb_del(lab_rb_tree_t *tree __arg_arena, lab_rb_node_t *node __arg_arena)
{
	lab_rb_node_t *moved, *parent, *heir;
	bool red;

	lab_unaudited_block();
	lab_use_arena();
	lab_touch(node, true);
	if (tree->first == node)
		tree->first = lab_rb_next(node);
	red = node->red;
	parent = node->parent;
	if (!node->child[0] || !node->child[1]) {
		moved = node->child[!node->child[0]];
		lab_rb_replace(tree, node, moved);
	} else {
		/* The next node takes its place, and what that had below it the next one's. */
		for (heir = node->child[1]; heir->child[0] && can_loop; heir = heir->child[0])
			lab_touch(heir, false);
		lab_touch(heir, true);
		red = heir->red;
		moved = heir->child[1];
		parent = heir;
		if (heir->parent != node) {
			parent = heir->parent;
			lab_rb_replace(tree, heir, moved);
			heir->child[1] = node->child[1];
			heir->child[1]->parent = heir;
		}
		lab_rb_replace(tree, node, heir);
		heir->child[0] = node->child[0];
		heir->child[0]->parent = heir;
		heir->red = node->red;
	}
	lab_rb_settle_up(parent);
	if (!red)
		lab_rb_balance_taken(tree, moved, parent);
	node->child[0] = NULL;
	node->child[1] = NULL;
	node->parent = NULL;
	tree->nr--;
	return 0;
}

/*
 * lab_rb_first_within - of the nodes whose value is at most @bound, the first in
 * order: @tree->found, NULL: none. Sets @tree->steps.
 */
LAB_PART int lab_rb_find_within(lab_rb_tree_t *tree __arg_arena, s64 bound)
{
	lab_rb_node_t *pos, *before;

	lab_use_arena();
	pos = tree->root;
	tree->steps = 0;
	tree->found = NULL;
	if (!pos || lab_rb_less(bound, lab_unaudited(pos->least)))
		return 0;
	/* From here on the subtree of pos has one. */
	while (pos && can_loop) {
		lab_touch(pos, false);
		tree->steps++;
		before = pos->child[0];
		if (before && !lab_rb_less(bound, lab_unaudited(before->least))) {
			pos = before;
		} else if (!lab_rb_less(bound, pos->value)) {
			tree->found = pos;
			break;
		} else {
			pos = pos->child[1];
		}
	}
	return 0;
}

static __always_inline lab_rb_node_t *lab_rb_first_within(lab_rb_tree_t *tree, s64 bound)
{
	lab_rb_find_within(tree, bound);
	return tree->found;
}

#endif /* LAB_RBTREE_H */
