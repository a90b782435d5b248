//! Dispatch queues as data: FIFO and vtime-ordered lists of tasks, and the cursors that walk them.
//!
//! As in the kernel, every queue is one list in dispatch order; a vtime-ordered queue also has a
//! tree to find a new task's place (there a red-black tree, here a treap, which is smaller and of
//! the same order). Tasks are linked by index, a task is on at most one queue, and nothing is
//! allocated per insertion. Who may do what, locks and costs are in [`crate::dispatch`].

use schedlab_trace::TaskId;

use crate::consts::{dsq_id, errno, iter};
use crate::policy::IterId;
use crate::task::NIL;

/// List nodes with this bit are cursors, the others tasks.
const CURSOR: u32 = 1 << 31;

/// Where in the queue a task is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Tail,
    Head,
    /// Ordered by this vtime, after equal ones.
    Vtime(u64),
}

/// A queue cannot be FIFO and vtime-ordered at once. The insertion is carried out nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MixedOrder {
    AlreadyFifo,
    AlreadyVtime,
}

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

const UNLINKED: Link = Link {
    prev: NIL,
    next: NIL,
};

/// A task's membership in a queue.
#[derive(Clone, Copy)]
struct Node {
    vtime: u64,
    link: Link,
    left: u32,
    right: u32,
    parent: u32,
    priority: u32,
    /// Order of insertion into the queue, for iterators.
    seq: u32,
    in_tree: bool,
}

const FREE_NODE: Node = Node {
    vtime: 0,
    link: UNLINKED,
    left: NIL,
    right: NIL,
    parent: NIL,
    priority: 0,
    seq: 0,
    in_tree: false,
};

/// `struct bpf_iter_scx_dsq_kern`.
#[derive(Clone, Copy)]
struct Cursor {
    dsq: u32,
    link: Link,
    listed: bool,
    live: bool,
    reverse: bool,
    /// Tasks inserted later than this are not seen.
    seq: u32,
    slice: Option<u64>,
    vtime: Option<u64>,
}

/// One queue.
pub(crate) struct Dsq {
    pub id: u64,
    pub nr: u32,
    head: u32,
    tail: u32,
    root: u32,
    /// First task, cursors aside (`first_task`).
    first: u32,
    seq: u32,
    /// Its lock, once it has been used.
    pub lock: Option<crate::lock::LockIx>,
}

impl Dsq {
    fn new(id: u64) -> Self {
        Dsq {
            id,
            nr: 0,
            head: NIL,
            tail: NIL,
            root: NIL,
            first: NIL,
            seq: 0,
            lock: None,
        }
    }

    pub fn is_builtin(&self) -> bool {
        self.id & dsq_id::FLAG_BUILTIN != 0
    }

    pub fn first(&self) -> Option<TaskId> {
        (self.first != NIL).then_some(TaskId(self.first))
    }

    /// Counts a task that comes in; tells its place in the order of insertion.
    fn count_in(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.nr += 1;
        self.seq
    }
}

/// All queues of a run: the CPUs' local ones first, then the nodes' global ones, then the policy's.
pub(crate) struct Dsqs {
    queues: Vec<Dsq>,
    /// Sorted by id.
    user: Vec<(u64, u32)>,
    free: Vec<u32>,
    nodes: Vec<Node>,
    cursors: Vec<Cursor>,
    insertions: u64,
}

/// `u32_before()`.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// `time_before64()`.
fn vtime_before(a: u64, b: u64) -> bool {
    (a.wrapping_sub(b) as i64) < 0
}

impl Dsqs {
    pub fn new(nr_cpus: usize, nr_nodes: usize) -> Self {
        let mut queues = Vec::new();
        queues.extend((0..nr_cpus).map(|_| Dsq::new(dsq_id::LOCAL)));
        queues.extend((0..nr_nodes).map(|_| Dsq::new(dsq_id::GLOBAL)));
        Dsqs {
            queues,
            user: Vec::new(),
            free: Vec::new(),
            nodes: Vec::new(),
            cursors: Vec::new(),
            insertions: 0,
        }
    }

    /// Makes room for a new task.
    pub fn add_task(&mut self, task: TaskId) {
        if self.nodes.len() <= task.index() {
            self.nodes.resize(task.index() + 1, FREE_NODE);
        }
    }

    /// What is kept of a task, for prefetching.
    pub fn kept_of(&self, task: TaskId) -> &impl Sized {
        &self.nodes[task.index()]
    }

    #[inline]
    pub fn get(&self, dsq: u32) -> &Dsq {
        &self.queues[dsq as usize]
    }

    pub fn get_mut(&mut self, dsq: u32) -> &mut Dsq {
        &mut self.queues[dsq as usize]
    }

    #[inline]
    pub fn find_user(&self, id: u64) -> Option<u32> {
        let place = self.user.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        Some(self.user[place].1)
    }

    /// `scx_bpf_create_dsq()`, its errno negated on failure.
    pub fn create(&mut self, id: u64) -> Result<u32, i64> {
        if id & dsq_id::FLAG_BUILTIN != 0 {
            return Err(-errno::EINVAL);
        }
        let Err(place) = self.user.binary_search_by_key(&id, |&(id, _)| id) else {
            return Err(-errno::EEXIST);
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.queues[index as usize] = Dsq::new(id);
                index
            }
            None => {
                self.queues.push(Dsq::new(id));
                self.queues.len() as u32 - 1
            }
        };
        self.user.insert(place, (id, index));
        Ok(index)
    }

    /// `destroy_dsq()`: tells how many tasks are in the way.
    pub fn destroy(&mut self, id: u64) -> Result<(), u32> {
        let Ok(place) = self.user.binary_search_by_key(&id, |&(id, _)| id) else {
            return Ok(());
        };
        let index = self.user[place].1;
        let dsq = &mut self.queues[index as usize];
        if dsq.nr > 0 {
            return Err(dsq.nr);
        }
        dsq.id = dsq_id::INVALID;
        self.user.remove(place);
        // A cursor may still stand in it, or a CPU wait for its lock: then its slot is not used again.
        if dsq.head == NIL && dsq.lock.is_none() {
            self.free.push(index);
        }
        Ok(())
    }

    fn link(&mut self, node: u32) -> &mut Link {
        if node & CURSOR != 0 {
            &mut self.cursors[(node & !CURSOR) as usize].link
        } else {
            &mut self.nodes[node as usize].link
        }
    }

    /// Links `node` after `prev` (`NIL` = at the head).
    fn list_add(&mut self, dsq: u32, node: u32, prev: u32) {
        let next = match prev {
            NIL => self.queues[dsq as usize].head,
            prev => self.link(prev).next,
        };
        *self.link(node) = Link { prev, next };
        match prev {
            NIL => self.queues[dsq as usize].head = node,
            prev => self.link(prev).next = node,
        }
        match next {
            NIL => self.queues[dsq as usize].tail = node,
            next => self.link(next).prev = node,
        }
    }

    fn list_del(&mut self, dsq: u32, node: u32) {
        let Link { prev, next } = *self.link(node);
        match prev {
            NIL => self.queues[dsq as usize].head = next,
            prev => self.link(prev).next = next,
        }
        match next {
            NIL => self.queues[dsq as usize].tail = prev,
            next => self.link(next).prev = prev,
        }
        *self.link(node) = UNLINKED;
    }

    /// The list's order of insertion follows `enqueue` in the kernel's dispatch_enqueue().
    #[inline]
    pub fn insert(&mut self, dsq: u32, task: TaskId, place: Place) -> Result<(), MixedOrder> {
        match place {
            Place::Vtime(vtime) => self.insert_by_vtime(dsq, task, vtime),
            Place::Head => self.insert_in_turn(dsq, task, true),
            Place::Tail => self.insert_in_turn(dsq, task, false),
        }
    }

    fn insert_by_vtime(&mut self, dsq: u32, task: TaskId, vtime: u64) -> Result<(), MixedOrder> {
        let node = task.0;
        let queue = &self.queues[dsq as usize];
        let mixed = queue.root == NIL && queue.first != NIL;
        let prev = self.tree_insert(dsq, node, vtime);
        self.list_add(dsq, node, prev);
        let queue = &mut self.queues[dsq as usize];
        if prev == NIL {
            queue.first = node;
        }
        self.nodes[node as usize].seq = queue.count_in();
        if mixed {
            return Err(MixedOrder::AlreadyFifo);
        }
        Ok(())
    }

    fn insert_in_turn(&mut self, dsq: u32, task: TaskId, first: bool) -> Result<(), MixedOrder> {
        let node = task.0;
        let prev = if first {
            NIL
        } else {
            self.queues[dsq as usize].tail
        };
        self.list_add(dsq, node, prev);
        let queue = &mut self.queues[dsq as usize];
        if first || queue.first == NIL {
            queue.first = node;
        }
        self.nodes[node as usize].seq = queue.count_in();
        if queue.root != NIL {
            return Err(MixedOrder::AlreadyVtime);
        }
        Ok(())
    }

    /// `task_unlink_from_dsq()`.
    pub fn unlink(&mut self, dsq: u32, task: TaskId) {
        let node = task.0;
        let Node { in_tree, link, .. } = self.nodes[node as usize];
        if in_tree {
            self.tree_remove(dsq, node);
        }
        if self.queues[dsq as usize].first == node {
            let is_task = link.next & CURSOR == 0 || link.next == NIL;
            self.queues[dsq as usize].first = if is_task {
                link.next
            } else {
                self.next_task(dsq, node, false)
            };
        }
        self.list_del(dsq, node);
        self.queues[dsq as usize].nr -= 1;
    }

    /// `nldsq_next_task()`: the next task after node `cur` (`NIL` = from the start), or `NIL`.
    fn next_task(&self, dsq: u32, cur: u32, reverse: bool) -> u32 {
        let queue = &self.queues[dsq as usize];
        let step = |node: u32| {
            let link = if node == NIL {
                Link {
                    prev: queue.tail,
                    next: queue.head,
                }
            } else if node & CURSOR != 0 {
                self.cursors[(node & !CURSOR) as usize].link
            } else {
                self.nodes[node as usize].link
            };
            if reverse { link.prev } else { link.next }
        };
        let mut node = step(cur);
        while node != NIL && node & CURSOR != 0 {
            node = step(node);
        }
        node
    }

    /// The task after `task` in dispatch order.
    pub fn next(&self, dsq: u32, task: TaskId) -> Option<TaskId> {
        let next = self.next_task(dsq, task.0, false);
        (next != NIL).then_some(TaskId(next))
    }

    /// `bpf_iter_scx_dsq_new()`.
    pub fn iter_new(&mut self, dsq: u32, flags: u64) -> IterId {
        let cursor = Cursor {
            dsq,
            link: UNLINKED,
            listed: false,
            live: true,
            reverse: flags & iter::REV != 0,
            seq: self.queues[dsq as usize].seq,
            slice: None,
            vtime: None,
        };
        let free = self.cursors.iter().position(|cursor| !cursor.live);
        let index = match free {
            Some(index) => {
                self.cursors[index] = cursor;
                index
            }
            None => {
                self.cursors.push(cursor);
                self.cursors.len() - 1
            }
        };
        IterId(index as u32)
    }

    /// The queue that an iterator walks, if it is alive.
    pub fn iter_dsq(&self, iter: IterId) -> Option<u32> {
        let cursor = self.cursors.get(iter.0 as usize)?;
        cursor.live.then_some(cursor.dsq)
    }

    /// `nldsq_cursor_next_task()`.
    pub fn iter_next(&mut self, iter: IterId) -> Option<TaskId> {
        let Cursor {
            dsq,
            listed,
            reverse,
            seq,
            ..
        } = self.cursors[iter.0 as usize];
        let node = iter.0 | CURSOR;
        let mut task = if listed { node } else { NIL };
        loop {
            task = self.next_task(dsq, task, reverse);
            if task == NIL || !before(seq, self.nodes[task as usize].seq) {
                break;
            }
        }
        if listed {
            self.list_del(dsq, node);
        }
        self.cursors[iter.0 as usize].listed = task != NIL;
        if task == NIL {
            return None;
        }
        let prev = if reverse { self.link(task).prev } else { task };
        self.list_add(dsq, node, prev);
        Some(TaskId(task))
    }

    /// `bpf_iter_scx_dsq_destroy()`.
    pub fn iter_destroy(&mut self, iter: IterId) {
        let Cursor {
            dsq, listed, live, ..
        } = self.cursors[iter.0 as usize];
        if live && listed {
            self.list_del(dsq, iter.0 | CURSOR);
        }
        self.cursors[iter.0 as usize].live = false;
    }

    /// `scx_bpf_dsq_move_set_slice()`.
    pub fn iter_set_slice(&mut self, iter: IterId, slice: u64) {
        self.cursors[iter.0 as usize].slice = Some(slice);
    }

    /// `scx_bpf_dsq_move_set_vtime()`.
    pub fn iter_set_vtime(&mut self, iter: IterId, vtime: u64) {
        self.cursors[iter.0 as usize].vtime = Some(vtime);
    }

    /// Takes the overrides for the next move.
    pub fn iter_take_overrides(&mut self, iter: IterId) -> (Option<u64>, Option<u64>) {
        let cursor = &mut self.cursors[iter.0 as usize];
        (cursor.slice.take(), cursor.vtime.take())
    }

    /// Whether a task on the iterator's queue was inserted after the iteration began.
    pub fn inserted_after(&self, iter: IterId, task: TaskId) -> bool {
        before(
            self.cursors[iter.0 as usize].seq,
            self.nodes[task.index()].seq,
        )
    }

    // The treap: ordered by vtime, a heap by priority.

    /// Inserts and returns the predecessor in order.
    fn tree_insert(&mut self, dsq: u32, node: u32, vtime: u64) -> u32 {
        self.insertions += 1;
        let priority = mix(self.insertions);
        let mut parent = NIL;
        let mut predecessor = NIL;
        let mut at = self.queues[dsq as usize].root;
        let mut went_left = false;
        while at != NIL {
            parent = at;
            let other = &self.nodes[at as usize];
            went_left = vtime_before(vtime, other.vtime);
            if went_left {
                at = other.left;
            } else {
                predecessor = at;
                at = other.right;
            }
        }
        let entry = &mut self.nodes[node as usize];
        entry.vtime = vtime;
        entry.left = NIL;
        entry.right = NIL;
        entry.parent = parent;
        entry.priority = priority;
        entry.in_tree = true;
        if parent == NIL {
            self.queues[dsq as usize].root = node;
        } else if went_left {
            self.nodes[parent as usize].left = node;
        } else {
            self.nodes[parent as usize].right = node;
        }
        while parent != NIL && self.nodes[parent as usize].priority < priority {
            self.rotate_up(dsq, node);
            parent = self.nodes[node as usize].parent;
        }
        predecessor
    }

    /// Makes `node` the parent of its parent.
    fn rotate_up(&mut self, dsq: u32, node: u32) {
        let parent = self.nodes[node as usize].parent;
        let grandparent = self.nodes[parent as usize].parent;
        let moved;
        if self.nodes[parent as usize].left == node {
            moved = self.nodes[node as usize].right;
            self.nodes[parent as usize].left = moved;
            self.nodes[node as usize].right = parent;
        } else {
            moved = self.nodes[node as usize].left;
            self.nodes[parent as usize].right = moved;
            self.nodes[node as usize].left = parent;
        }
        if moved != NIL {
            self.nodes[moved as usize].parent = parent;
        }
        self.nodes[parent as usize].parent = node;
        self.replace_child(dsq, grandparent, parent, node);
    }

    /// Puts `new` (may be `NIL`) where `old` was below `parent`.
    fn replace_child(&mut self, dsq: u32, parent: u32, old: u32, new: u32) {
        if parent == NIL {
            self.queues[dsq as usize].root = new;
        } else if self.nodes[parent as usize].left == old {
            self.nodes[parent as usize].left = new;
        } else {
            self.nodes[parent as usize].right = new;
        }
        if new != NIL {
            self.nodes[new as usize].parent = parent;
        }
    }

    fn tree_remove(&mut self, dsq: u32, node: u32) {
        loop {
            let Node { left, right, .. } = self.nodes[node as usize];
            if left == NIL || right == NIL {
                let child = if left == NIL { right } else { left };
                let parent = self.nodes[node as usize].parent;
                self.replace_child(dsq, parent, node, child);
                self.nodes[node as usize].in_tree = false;
                return;
            }
            let heavier = self.nodes[left as usize].priority >= self.nodes[right as usize].priority;
            self.rotate_up(dsq, if heavier { left } else { right });
        }
    }
}

/// A well-mixed priority for the `n`-th insertion (the finaliser of SplitMix64; Steele, Lea, Flood:
/// *Fast splittable pseudorandom number generators*, OOPSLA 2014).
fn mix(n: u64) -> u32 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(dsqs: &Dsqs, dsq: u32) -> Vec<u32> {
        let mut order = Vec::new();
        let mut at = dsqs.get(dsq).first();
        while let Some(task) = at {
            order.push(task.0);
            at = dsqs.next(dsq, task);
        }
        order
    }

    fn queue(nr_tasks: u32) -> (Dsqs, u32) {
        let mut dsqs = Dsqs::new(1, 1);
        let dsq = dsqs.create(5).unwrap();
        for task in 0..nr_tasks {
            dsqs.add_task(TaskId(task));
        }
        (dsqs, dsq)
    }

    #[test]
    fn vtime_order_is_stable_and_wraps() {
        let (mut dsqs, dsq) = queue(5);
        for (task, vtime) in [(0, 3), (1, u64::MAX), (2, 3), (3, 1), (4, u64::MAX - 1)] {
            dsqs.insert(dsq, TaskId(task), Place::Vtime(vtime)).unwrap();
        }
        assert_eq!(tasks(&dsqs, dsq), [4, 1, 3, 0, 2]);
    }

    /// The treap against a sorted list, with removals from anywhere.
    #[test]
    fn treap_agrees_with_a_sorted_list() {
        let nr = 200;
        let (mut dsqs, dsq) = queue(nr);
        let mut model: Vec<(u64, u64, u32)> = Vec::new();
        let mut state = 7u64;
        for step in 0..20_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let task = (state >> 33) as u32 % nr;
            let vtime = (state >> 20) & 63;
            if let Some(at) = model.iter().position(|&(_, _, t)| t == task) {
                model.remove(at);
                dsqs.unlink(dsq, TaskId(task));
            } else {
                model.push((vtime, step, task));
                model.sort_unstable();
                dsqs.insert(dsq, TaskId(task), Place::Vtime(vtime)).unwrap();
            }
            if step % 64 == 0 {
                let expected: Vec<u32> = model.iter().map(|&(_, _, t)| t).collect();
                assert_eq!(tasks(&dsqs, dsq), expected);
                assert_eq!(dsqs.get(dsq).nr as usize, expected.len());
            }
        }
    }

    #[test]
    fn orders_do_not_mix() {
        let (mut dsqs, dsq) = queue(2);
        dsqs.insert(dsq, TaskId(0), Place::Tail).unwrap();
        assert_eq!(
            dsqs.insert(dsq, TaskId(1), Place::Vtime(0)),
            Err(MixedOrder::AlreadyFifo)
        );
        let (mut dsqs, dsq) = queue(2);
        dsqs.insert(dsq, TaskId(0), Place::Vtime(0)).unwrap();
        assert_eq!(
            dsqs.insert(dsq, TaskId(1), Place::Tail),
            Err(MixedOrder::AlreadyVtime)
        );
    }

    #[test]
    fn iterators_see_what_was_there_and_survive_removals() {
        for (flags, expected) in [(0, vec![1, 2, 3]), (iter::REV, vec![3, 2])] {
            let (mut dsqs, dsq) = queue(6);
            for task in [1, 2, 3] {
                dsqs.insert(dsq, TaskId(task), Place::Tail).unwrap();
            }
            let iter = dsqs.iter_new(dsq, flags);
            dsqs.insert(dsq, TaskId(4), Place::Tail).unwrap();
            dsqs.insert(dsq, TaskId(0), Place::Head).unwrap();
            let mut seen = Vec::new();
            while let Some(task) = dsqs.iter_next(iter) {
                seen.push(task.0);
                // Forwards the task just seen leaves; backwards the one to come after the next.
                if flags == 0 {
                    dsqs.unlink(dsq, task);
                } else if task.0 == 3 {
                    dsqs.unlink(dsq, TaskId(1));
                }
            }
            assert_eq!(seen, expected);
            dsqs.iter_destroy(iter);
            assert!(dsqs.iter_dsq(iter).is_none());
        }
    }

    #[test]
    fn first_task_passes_over_cursors() {
        let (mut dsqs, dsq) = queue(3);
        dsqs.insert(dsq, TaskId(0), Place::Tail).unwrap();
        dsqs.insert(dsq, TaskId(1), Place::Tail).unwrap();
        let iter = dsqs.iter_new(dsq, 0);
        assert_eq!(dsqs.iter_next(iter), Some(TaskId(0)));
        dsqs.unlink(dsq, TaskId(0));
        assert_eq!(dsqs.get(dsq).first(), Some(TaskId(1)));
        dsqs.unlink(dsq, TaskId(1));
        assert_eq!(dsqs.get(dsq).first(), None);
        dsqs.insert(dsq, TaskId(2), Place::Tail).unwrap();
        assert_eq!(dsqs.get(dsq).first(), Some(TaskId(2)));
    }

    #[test]
    fn destroyed_queues_are_gone_and_busy_ones_stay() {
        let (mut dsqs, dsq) = queue(1);
        assert_eq!(dsqs.create(5), Err(-errno::EEXIST));
        assert_eq!(dsqs.create(dsq_id::GLOBAL), Err(-errno::EINVAL));
        dsqs.insert(dsq, TaskId(0), Place::Tail).unwrap();
        assert_eq!(dsqs.destroy(5), Err(1));
        dsqs.unlink(dsq, TaskId(0));
        assert_eq!(dsqs.destroy(5), Ok(()));
        assert_eq!(dsqs.find_user(5), None);
        assert_eq!(dsqs.destroy(5), Ok(()));
    }
}
