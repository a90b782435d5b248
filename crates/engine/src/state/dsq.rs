//! Dispatch queues as data: FIFO and vtime-ordered lists of tasks, and the cursors that walk them.
//!
//! A queue has a list of the tasks that are in it by their turn, linked through the tasks, and a sorted array of those
//! that are in it by their vtime ([`crate::state::sorted`]), where the kernel has one list and a red-black tree; in a queue
//! that works one of the two is empty. A task is on at most one queue, and nothing is allocated per insertion. Who may
//! do what, locks and costs are in [`crate::paths::dispatch`].
//!
//! Queues are cells, so a reference to one may be kept while other CPUs change it or create others.

use std::cell::{Cell, RefCell};

use elsa::vec::FrozenVec;
use schedlab_trace::{CpuId, TaskId};

use crate::contract::consts::{dsq_id, errno, iter};
use crate::contract::policy::IterId;
use crate::state::lock::LockIx;
use crate::state::sorted::{NIL, Sorted};

/// Where in the queue a task is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Tail,
    Head,
    /// Ordered by this vtime, after equal ones.
    Vtime(u64),
}

/// A queue cannot be FIFO and vtime-ordered at once. The insertion is carried out nevertheless.
// Model: in the queue that results, whose policy is unloaded, those in turn come before those by vtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MixedOrder {
    AlreadyFifo,
    AlreadyVtime,
}

/// A task's membership in a queue (`struct scx_dsq_list_node`).
pub(crate) struct Node {
    task: TaskId,
    prev: Cell<u32>,
    next: Cell<u32>,
    /// Order of insertion into the queue, for iterators.
    seq: Cell<u32>,
    /// It is in the queue by this vtime, not by its turn.
    by_vtime: Cell<bool>,
    vtime: Cell<u64>,
}

impl Node {
    pub fn new(task: TaskId) -> Self {
        Node {
            task,
            prev: Cell::new(NIL),
            next: Cell::new(NIL),
            seq: Cell::new(0),
            by_vtime: Cell::new(false),
            vtime: Cell::new(0),
        }
    }

    /// `SCX_TASK_DSQ_ON_PRIQ`.
    pub fn is_by_vtime(&self) -> bool {
        self.by_vtime.get()
    }
}

/// The owner of the tasks' nodes.
pub(crate) trait Nodes {
    fn node(&self, task: u32) -> &Node;
}

/// `struct bpf_iter_scx_dsq_kern`. Its cursor stands behind a task, or before it if it walks backwards.
#[derive(Clone, Copy)]
struct Cursor {
    dsq: u32,
    /// The task at which it stands; `NIL`: it is before all that it has to see.
    at: u32,
    /// It is on the queue's list, so that the queue's slot is not free.
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
    /// The CPUs' local ones are counted first, then the nodes' global ones, then the policy's.
    pub index: u32,
    id: Cell<u64>,
    /// Its lock, once it has been used.
    lock: Cell<Option<LockIx>>,
    /// How many tasks are in it.
    nr: Cell<u32>,
    /// Tasks inserted so far.
    seq: Cell<u32>,
    /// When a task was taken from it last, in ns; 0 = never.
    taken_ns: Cell<u64>,
    /// The list of those that are in it by their turn.
    head: Cell<u32>,
    tail: Cell<u32>,
    /// The first of those that are in it by their vtime.
    earliest: Cell<u32>,
    sorted: RefCell<Sorted>,
}

impl Dsq {
    reads! { lock: Option<LockIx>, taken_ns: u64, id: u64, nr: u32 }

    sets! {
        make_lock(lock: LockIx): lock = Some(lock);
        take_at(now: u64): taken_ns = now;
    }

    /// The local DSQ of a CPU.
    pub fn local(cpu: CpuId) -> Self {
        Dsq::new(cpu.0, dsq_id::LOCAL)
    }

    fn new(index: u32, id: u64) -> Self {
        Dsq {
            index,
            id: Cell::new(id),
            lock: Cell::new(None),
            nr: Cell::new(0),
            seq: Cell::new(0),
            taken_ns: Cell::new(0),
            head: Cell::new(NIL),
            tail: Cell::new(NIL),
            earliest: Cell::new(NIL),
            sorted: RefCell::default(),
        }
    }

    pub fn is_builtin(&self) -> bool {
        self.id() & dsq_id::FLAG_BUILTIN != 0
    }

    /// The tasks in it, in order.
    pub fn tasks<'a>(&'a self, nodes: &'a impl Nodes) -> impl Iterator<Item = TaskId> + 'a {
        let next = |&task: &TaskId| self.next(nodes.node(task.0));
        std::iter::successors(self.first(), next)
    }

    #[inline]
    fn first_or_nil(&self) -> u32 {
        match self.head.get() {
            NIL => self.earliest.get(),
            head => head,
        }
    }

    /// The first task.
    #[inline]
    pub fn first(&self) -> Option<TaskId> {
        known(self.first_or_nil())
    }

    /// The task after `p`.
    pub fn next(&self, p: &Node) -> Option<TaskId> {
        known(self.after(p))
    }

    #[inline(always)]
    pub fn insert(&self, nodes: &impl Nodes, p: &Node, place: Place) -> Result<(), MixedOrder> {
        match place {
            Place::Vtime(vtime) => self.insert_by_vtime(p, vtime),
            Place::Head => self.insert_in_turn(nodes, p, true),
            Place::Tail => self.insert_in_turn(nodes, p, false),
        }
    }

    /// Counts a task that comes in. Returns its place in the order of insertion.
    #[inline]
    fn count_in(&self, p: &Node) -> u32 {
        let seq = self.seq.get().wrapping_add(1);
        self.seq.set(seq);
        p.seq.set(seq);
        self.nr.set(self.nr.get() + 1);
        seq
    }

    fn insert_by_vtime(&self, p: &Node, vtime: u64) -> Result<(), MixedOrder> {
        let seq = self.count_in(p);
        p.by_vtime.set(true);
        p.vtime.set(vtime);
        let mixed = self.earliest.get() == NIL && self.head.get() != NIL;
        if self.sorted.borrow_mut().insert(p.task.0, vtime, seq) {
            self.earliest.set(p.task.0);
        }
        if mixed {
            return Err(MixedOrder::AlreadyFifo);
        }
        Ok(())
    }

    #[inline]
    fn insert_in_turn(&self, nodes: &impl Nodes, p: &Node, first: bool) -> Result<(), MixedOrder> {
        self.count_in(p);
        p.by_vtime.set(false);
        let task = p.task.0;
        let (prev, next) = match first {
            true => (NIL, self.head.get()),
            false => (self.tail.get(), NIL),
        };
        p.prev.set(prev);
        p.next.set(next);
        match prev {
            NIL => self.head.set(task),
            prev => nodes.node(prev).next.set(task),
        }
        match next {
            NIL => self.tail.set(task),
            next => nodes.node(next).prev.set(task),
        }
        if self.earliest.get() != NIL {
            return Err(MixedOrder::AlreadyVtime);
        }
        Ok(())
    }

    #[inline]
    fn unlink(&self, nodes: &impl Nodes, p: &Node) {
        self.nr.set(self.nr.get() - 1);
        if p.by_vtime.get() {
            return self.unlink_by_vtime(p);
        }
        let (prev, next) = (p.prev.get(), p.next.get());
        match prev {
            NIL => self.head.set(next),
            prev => nodes.node(prev).next.set(next),
        }
        match next {
            NIL => self.tail.set(prev),
            next => nodes.node(next).prev.set(prev),
        }
    }

    fn unlink_by_vtime(&self, p: &Node) {
        let mut sorted = self.sorted.borrow_mut();
        if self.earliest.get() == p.task.0 {
            self.earliest.set(sorted.remove_first());
        } else {
            sorted.remove(p.task.0, p.vtime.get(), p.seq.get());
        }
    }

    /// The task after `p`, or `NIL`.
    fn after(&self, p: &Node) -> u32 {
        if p.by_vtime.get() {
            let sorted = self.sorted.borrow();
            return sorted.next(p.task.0, p.vtime.get(), p.seq.get());
        }
        match p.next.get() {
            NIL => self.earliest.get(),
            next => next,
        }
    }

    /// The task before `p`, or `NIL`.
    fn before(&self, p: &Node) -> u32 {
        if !p.by_vtime.get() {
            return p.prev.get();
        }
        let sorted = self.sorted.borrow();
        match sorted.prev(p.task.0, p.vtime.get(), p.seq.get()) {
            NIL => self.tail.get(),
            prev => prev,
        }
    }

    /// `nldsq_next_task()`: returns the task after `at` (`NIL`: the first one), or `NIL`.
    fn step(&self, nodes: &impl Nodes, at: u32, reverse: bool) -> u32 {
        match (at, reverse) {
            (NIL, false) => self.first_or_nil(),
            (NIL, true) => match self.sorted.borrow().last() {
                NIL => self.tail.get(),
                last => last,
            },
            (at, false) => self.after(nodes.node(at)),
            (at, true) => self.before(nodes.node(at)),
        }
    }
}

#[inline]
fn known(task: u32) -> Option<TaskId> {
    (task != NIL).then_some(TaskId(task))
}

/// All queues of a run but the local ones, which the CPUs have.
pub(crate) struct Dsqs {
    /// The index of the first.
    begin: u32,
    queues: FrozenVec<Box<Dsq>>,
    /// Sorted by id.
    user: RefCell<Vec<(u64, u32)>>,
    /// The one of them that was asked for last.
    asked: Cell<Option<(u64, u32)>>,
    free: RefCell<Vec<u32>>,
    cursors: RefCell<Vec<Cursor>>,
    /// Cursors on a list.
    nr_listed: Cell<u32>,
}

/// `u32_before()`.
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Dsqs {
    pub fn new(nr_cpus: usize, nr_nodes: usize) -> Self {
        let begin = nr_cpus as u32;
        let global = (begin..).take(nr_nodes);
        Dsqs {
            begin,
            queues: global
                .map(|index| Box::new(Dsq::new(index, dsq_id::GLOBAL)))
                .collect(),
            user: RefCell::default(),
            asked: Cell::new(None),
            free: RefCell::default(),
            cursors: RefCell::default(),
            nr_listed: Cell::new(0),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Dsq> {
        self.queues.iter()
    }

    #[inline]
    pub fn get(&self, dsq: u32) -> &Dsq {
        &self.queues[(dsq - self.begin) as usize]
    }

    /// The policy's queue of this id, if it is the one that was asked for last.
    #[inline]
    pub fn again(&self, id: u64) -> Option<u32> {
        let asked = self.asked.get();
        asked.filter(|asked| asked.0 == id).map(|(_, index)| index)
    }

    /// The policy's queue of this id.
    #[inline]
    pub fn find_user(&self, id: u64) -> Option<u32> {
        self.again(id).or_else(|| self.search_user(id))
    }

    #[inline(never)]
    fn search_user(&self, id: u64) -> Option<u32> {
        if id & dsq_id::FLAG_BUILTIN != 0 {
            return None;
        }
        let user = self.user.borrow();
        let place = user.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        self.asked.set(Some(user[place]));
        Some(user[place].1)
    }

    /// `scx_bpf_create_dsq()`, its errno negated on failure.
    pub fn create(&self, id: u64) -> Result<u32, i64> {
        if id & dsq_id::FLAG_BUILTIN != 0 {
            return Err(-errno::EINVAL);
        }
        let mut user = self.user.borrow_mut();
        let Err(place) = user.binary_search_by_key(&id, |&(id, _)| id) else {
            return Err(-errno::EEXIST);
        };
        let index = match self.free.borrow_mut().pop() {
            Some(index) => {
                let dsq = self.get(index);
                dsq.id.set(id);
                dsq.seq.set(0);
                dsq.lock.set(None);
                index
            }
            None => {
                let index = self.begin + self.queues.len() as u32;
                self.queues.push(Box::new(Dsq::new(index, id)));
                index
            }
        };
        user.insert(place, (id, index));
        Ok(index)
    }

    /// `destroy_dsq()`. Returns how many tasks are in the way.
    pub fn destroy(&self, id: u64) -> Result<(), u32> {
        let mut user = self.user.borrow_mut();
        let Ok(place) = user.binary_search_by_key(&id, |&(id, _)| id) else {
            return Ok(());
        };
        let index = user[place].1;
        let dsq = self.get(index);
        if dsq.nr() > 0 {
            return Err(dsq.nr());
        }
        dsq.id.set(dsq_id::INVALID);
        user.remove(place);
        self.asked.set(None);
        // A cursor may still stand in it, or a CPU wait for its lock: then its slot is not used again.
        let cursors = self.cursors.borrow();
        let stands = |cursor: &Cursor| cursor.listed && cursor.dsq == index;
        if !cursors.iter().any(stands) && dsq.lock.get().is_none() {
            self.free.borrow_mut().push(index);
        }
        Ok(())
    }

    /// `task_unlink_from_dsq()`. `dsq` may be a local one.
    #[inline]
    pub fn unlink(&self, nodes: &impl Nodes, dsq: &Dsq, p: &Node) {
        if self.nr_listed.get() > 0 {
            return self.unlink_under_cursors(nodes, dsq, p);
        }
        dsq.unlink(nodes, p);
    }

    /// Cursors that stand at `p` stay where they are when it goes: behind the task before it, or the other way round.
    #[inline(never)]
    fn unlink_under_cursors(&self, nodes: &impl Nodes, dsq: &Dsq, p: &Node) {
        let mut cursors = self.cursors.borrow_mut();
        for cursor in cursors.iter_mut().filter(|cursor| cursor.at == p.task.0) {
            cursor.at = dsq.step(nodes, p.task.0, !cursor.reverse);
        }
        dsq.unlink(nodes, p);
    }

    /// `bpf_iter_scx_dsq_new()`.
    pub fn iter_new(&self, dsq: u32, flags: u64) -> IterId {
        let cursor = Cursor {
            dsq,
            at: NIL,
            listed: false,
            live: true,
            reverse: flags & iter::REV != 0,
            seq: self.get(dsq).seq.get(),
            slice: None,
            vtime: None,
        };
        let mut cursors = self.cursors.borrow_mut();
        let free = cursors.iter().position(|cursor| !cursor.live);
        let index = match free {
            Some(index) => {
                cursors[index] = cursor;
                index
            }
            None => {
                cursors.push(cursor);
                cursors.len() - 1
            }
        };
        IterId(index as u32)
    }

    /// The queue that an iterator walks, if it is alive.
    pub fn iter_dsq(&self, iter: IterId) -> Option<u32> {
        let cursors = self.cursors.borrow();
        let cursor = cursors.get(iter.0 as usize)?;
        cursor.live.then_some(cursor.dsq)
    }

    /// `nldsq_cursor_next_task()`.
    pub fn iter_next(&self, nodes: &impl Nodes, iter: IterId) -> Option<TaskId> {
        let mut cursors = self.cursors.borrow_mut();
        let cursor = &mut cursors[iter.0 as usize];
        let dsq = self.get(cursor.dsq);
        loop {
            cursor.at = dsq.step(nodes, cursor.at, cursor.reverse);
            if cursor.at == NIL || !before(cursor.seq, nodes.node(cursor.at).seq.get()) {
                break;
            }
        }
        self.list(cursor, cursor.at != NIL);
        known(cursor.at)
    }

    /// Puts a cursor on its queue's list or takes it off.
    fn list(&self, cursor: &mut Cursor, listed: bool) {
        let others = self.nr_listed.get() - u32::from(cursor.listed);
        self.nr_listed.set(others + u32::from(listed));
        cursor.listed = listed;
    }

    /// `bpf_iter_scx_dsq_destroy()`.
    pub fn iter_destroy(&self, iter: IterId) {
        let mut cursors = self.cursors.borrow_mut();
        let cursor = &mut cursors[iter.0 as usize];
        self.list(cursor, false);
        cursor.at = NIL;
        cursor.live = false;
    }

    /// `scx_bpf_dsq_move_set_slice()`.
    pub fn iter_set_slice(&self, iter: IterId, slice: u64) {
        self.cursors.borrow_mut()[iter.0 as usize].slice = Some(slice);
    }

    /// `scx_bpf_dsq_move_set_vtime()`.
    pub fn iter_set_vtime(&self, iter: IterId, vtime: u64) {
        self.cursors.borrow_mut()[iter.0 as usize].vtime = Some(vtime);
    }

    /// Takes the overrides for the next move.
    pub fn iter_take_overrides(&self, iter: IterId) -> (Option<u64>, Option<u64>) {
        let cursor = &mut self.cursors.borrow_mut()[iter.0 as usize];
        (cursor.slice.take(), cursor.vtime.take())
    }

    /// Whether a task on the iterator's queue was inserted after the iteration began.
    pub fn inserted_after(&self, iter: IterId, p: &Node) -> bool {
        before(self.cursors.borrow()[iter.0 as usize].seq, p.seq.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of the policy's, and the tasks that may be in it.
    struct Queue {
        dsqs: Dsqs,
        dsq: u32,
        nodes: Vec<Node>,
    }

    impl Nodes for Vec<Node> {
        fn node(&self, task: u32) -> &Node {
            &self[task as usize]
        }
    }

    fn queue(nr_tasks: u32) -> Queue {
        let dsqs = Dsqs::new(1, 1);
        let dsq = dsqs.create(5).unwrap();
        let nodes = (0..nr_tasks).map(|task| Node::new(TaskId(task))).collect();
        Queue { dsqs, dsq, nodes }
    }

    impl Queue {
        fn dsq(&self) -> &Dsq {
            self.dsqs.get(self.dsq)
        }

        fn insert(&self, task: u32, place: Place) -> Result<(), MixedOrder> {
            self.dsq().insert(&self.nodes, self.nodes.node(task), place)
        }

        fn unlink(&self, task: u32) {
            let node = self.nodes.node(task);
            self.dsqs.unlink(&self.nodes, self.dsq(), node);
        }

        fn iter_next(&self, iter: IterId) -> Option<u32> {
            self.dsqs.iter_next(&self.nodes, iter).map(|task| task.0)
        }

        fn tasks(&self) -> Vec<u32> {
            let next = |&task: &TaskId| self.dsq().next(self.nodes.node(task.0));
            let tasks = std::iter::successors(self.dsq().first(), next);
            tasks.map(|task| task.0).collect()
        }
    }

    #[test]
    fn vtime_order_is_stable_and_wraps() {
        let queue = queue(5);
        for (task, vtime) in [(0, 3), (1, u64::MAX), (2, 3), (3, 1), (4, u64::MAX - 1)] {
            queue.insert(task, Place::Vtime(vtime)).unwrap();
        }
        assert_eq!(queue.tasks(), [4, 1, 3, 0, 2]);
    }

    /// The expected tasks of an iterator, as a list: the tasks of its beginning, in its order, that it has not
    /// passed.
    struct Walk {
        iter: IterId,
        ahead: Vec<u32>,
    }

    /// Queues of either kind against a list, with removals from anywhere and iterators under way.
    #[test]
    fn queues_agree_with_a_list() {
        let nr = 200;
        for by_vtime in [false, true] {
            let queue = queue(nr);
            let mut model: Vec<(u64, u32)> = Vec::new();
            let mut walks: Vec<Walk> = Vec::new();
            let mut state = 7u64;
            for step in 0..20_000u64 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let task = (state >> 33) as u32 % nr;
                let vtime = (state >> 20) & 63;
                if let Some(at) = model.iter().position(|&(_, t)| t == task) {
                    model.remove(at);
                    queue.unlink(task);
                    for walk in &mut walks {
                        walk.ahead.retain(|&ahead| ahead != task);
                    }
                } else {
                    let (at, place) = match by_vtime {
                        true => (
                            model.partition_point(|&(other, _)| other <= vtime),
                            Place::Vtime(vtime),
                        ),
                        false if vtime & 1 == 0 => (0, Place::Head),
                        false => (model.len(), Place::Tail),
                    };
                    model.insert(at, (vtime, task));
                    queue.insert(task, place).unwrap();
                }
                if walks.len() < 3 && state >> 60 == 0 {
                    let reverse = state >> 59 & 1 != 0;
                    let mut ahead: Vec<u32> = model.iter().map(|&(_, t)| t).collect();
                    if reverse {
                        ahead.reverse();
                    }
                    let flags = if reverse { iter::REV } else { 0 };
                    let iter = queue.dsqs.iter_new(queue.dsq, flags);
                    walks.push(Walk { iter, ahead });
                }
                if state >> 61 == 1 {
                    walks.retain_mut(|walk| {
                        let seen = queue.iter_next(walk.iter);
                        assert_eq!(seen, walk.ahead.first().copied());
                        if seen.is_none() {
                            queue.dsqs.iter_destroy(walk.iter);
                            return false;
                        }
                        walk.ahead.remove(0);
                        true
                    });
                }
                if step % 64 == 0 {
                    let expected: Vec<u32> = model.iter().map(|&(_, t)| t).collect();
                    assert_eq!(queue.tasks(), expected);
                    assert_eq!(queue.dsq().nr() as usize, expected.len());
                }
            }
        }
    }

    #[test]
    fn orders_do_not_mix() {
        let fifo = queue(2);
        fifo.insert(0, Place::Tail).unwrap();
        let mixed = fifo.insert(1, Place::Vtime(0));
        assert_eq!(mixed, Err(MixedOrder::AlreadyFifo));
        let sorted = queue(2);
        sorted.insert(1, Place::Vtime(0)).unwrap();
        let mixed = sorted.insert(0, Place::Tail);
        assert_eq!(mixed, Err(MixedOrder::AlreadyVtime));
        for queue in [fifo, sorted] {
            assert_eq!(queue.tasks(), [0, 1]);
            let iter = queue.dsqs.iter_new(queue.dsq, iter::REV);
            assert_eq!(queue.iter_next(iter), Some(1));
            assert_eq!(queue.iter_next(iter), Some(0));
            queue.unlink(0);
            assert_eq!(queue.tasks(), [1]);
            queue.unlink(1);
            assert_eq!(queue.dsq().first(), None);
        }
    }

    #[test]
    fn iterators_see_what_was_there_and_survive_removals() {
        for (flags, expected) in [(0, vec![1, 2, 3]), (iter::REV, vec![3, 2])] {
            let queue = queue(6);
            for task in [1, 2, 3] {
                queue.insert(task, Place::Tail).unwrap();
            }
            let iter = queue.dsqs.iter_new(queue.dsq, flags);
            queue.insert(4, Place::Tail).unwrap();
            queue.insert(0, Place::Head).unwrap();
            let mut seen = Vec::new();
            while let Some(task) = queue.iter_next(iter) {
                seen.push(task);
                // Forwards the task just seen leaves; backwards the one to come after the next.
                if flags == 0 {
                    queue.unlink(task);
                } else if task == 3 {
                    queue.unlink(1);
                }
            }
            assert_eq!(seen, expected);
            queue.dsqs.iter_destroy(iter);
            assert!(queue.dsqs.iter_dsq(iter).is_none());
        }
    }

    #[test]
    fn destroyed_queues_are_gone_and_busy_ones_stay() {
        let queue = queue(1);
        let dsqs = &queue.dsqs;
        assert_eq!(dsqs.create(5), Err(-errno::EEXIST));
        assert_eq!(dsqs.create(dsq_id::GLOBAL), Err(-errno::EINVAL));
        assert_eq!(dsqs.find_user(5), Some(queue.dsq));
        queue.insert(0, Place::Tail).unwrap();
        assert_eq!(dsqs.destroy(5), Err(1));
        queue.unlink(0);
        assert_eq!(dsqs.destroy(5), Ok(()));
        assert_eq!(dsqs.find_user(5), None);
        assert_eq!(dsqs.destroy(5), Ok(()));
    }

    #[test]
    fn a_slot_is_used_again_when_no_cursor_stands_in_it() {
        let queue = queue(1);
        let dsqs = &queue.dsqs;
        queue.insert(0, Place::Tail).unwrap();
        let iter = dsqs.iter_new(queue.dsq, 0);
        assert_eq!(queue.iter_next(iter), Some(0));
        queue.unlink(0);
        assert_eq!(dsqs.destroy(5), Ok(()));
        let other = dsqs.create(5).unwrap();
        assert_ne!(other, queue.dsq);
        assert_eq!(dsqs.destroy(5), Ok(()));
        assert_eq!(dsqs.create(6), Ok(other));
    }

    /// An iterator over a queue that has been destroyed may still take its lock.
    #[test]
    fn a_queue_does_not_inherit_the_lock_of_the_one_before() {
        let queue = queue(0);
        let dsqs = &queue.dsqs;
        assert_eq!(dsqs.destroy(5), Ok(()));
        dsqs.get(queue.dsq).lock.set(Some(LockIx(7)));
        assert_eq!(dsqs.create(6), Ok(queue.dsq));
        assert_eq!(dsqs.get(queue.dsq).lock.get(), None);
    }
}
