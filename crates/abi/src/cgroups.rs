//! The cgroups that policies point at. None ever moves or goes.

use std::rc::Rc;

use schedlab_engine::KernelVersion;
use schedlab_workload::CgroupId;

use crate::bpf::fields::{Cgroup, CgroupPlace, Css};
use crate::memory::Memory;

/// Inode number of the root (`kernfs_create_root()`); those below it follow in the order in which they are made.
const ROOT_INODE: u64 = 1;

/// An order of a walk (`enum bpf_cgroup_iter_order`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    DescendantsPre,
    DescendantsPost,
    AncestorsUp,
    /// The children alone, without the start.
    Children,
}

impl Order {
    /// Returns the order of one of the kernel's numbers, if its `bpf_iter_css_new()` takes it.
    pub fn of(flags: u32, version: KernelVersion) -> Option<Order> {
        match flags {
            2 => Some(Order::DescendantsPre),
            3 => Some(Order::DescendantsPost),
            4 => Some(Order::AncestorsUp),
            5 if version.walks_children() => Some(Order::Children),
            _ => None,
        }
    }
}

/// The cgroups, by their numbers.
pub struct Cgroups {
    all: Vec<CgroupPlace>,
    parents: Vec<Option<CgroupId>>,
    /// The children of each, in order.
    children: Vec<Vec<CgroupId>>,
    memory: Rc<Memory>,
}

impl Cgroups {
    /// The root alone.
    pub fn new(memory: &Rc<Memory>) -> Cgroups {
        Cgroups {
            all: vec![Cgroup::put(memory, None, ROOT_INODE, "")],
            parents: vec![None],
            children: vec![Vec::new()],
            memory: Rc::clone(memory),
        }
    }

    /// Adds the next cgroup.
    pub fn add(&mut self, cgroup: CgroupId, parent: CgroupId, name: &str) {
        assert_eq!(cgroup.index(), self.all.len(), "cgroups come in order");
        let inode = ROOT_INODE + u64::from(cgroup.0);
        let parent_place = &self.all[parent.index()];
        let place = Cgroup::put(&self.memory, Some(parent_place), inode, name);
        self.all.push(place);
        self.parents.push(Some(parent));
        self.children.push(Vec::new());
        self.children[parent.index()].push(cgroup);
    }

    /// Where one lies.
    pub fn place(&self, cgroup: CgroupId) -> CgroupPlace {
        self.all[cgroup.index()]
    }

    /// The cgroup at a pointer.
    pub fn at(&self, pointer: *const Cgroup) -> Option<CgroupId> {
        let mut all = self.all.iter();
        let index = all.position(|place| std::ptr::eq(place.cgroup, pointer))?;
        Some(CgroupId(index as u32))
    }

    /// The cgroup with an inode.
    pub fn by_inode(&self, inode: u64) -> Option<CgroupId> {
        let index = inode.checked_sub(ROOT_INODE)?;
        ((index as usize) < self.all.len()).then_some(CgroupId(index as u32))
    }

    /// The ancestor at a level, from the root's 0 on; one is its own ancestor at its own.
    pub fn ancestor(&self, of: CgroupId, level: i32) -> Option<CgroupId> {
        let mut line: Vec<CgroupId> = self.line(of).collect();
        line.reverse();
        line.get(usize::try_from(level).ok()?).copied()
    }

    /// It and its ancestors, up to the root.
    pub fn line(&self, of: CgroupId) -> impl Iterator<Item = CgroupId> {
        std::iter::successors(Some(of), |cgroup| self.parents[cgroup.index()])
    }

    fn first_child(&self, of: CgroupId) -> Option<CgroupId> {
        self.children[of.index()].first().copied()
    }

    /// The next child of its parent.
    fn sibling(&self, of: CgroupId) -> Option<CgroupId> {
        let siblings = &self.children[self.parents[of.index()]?.index()];
        let next = siblings.partition_point(|&sibling| sibling <= of);
        siblings.get(next).copied()
    }

    /// The first cgroup without children below one, or itself.
    fn first_leaf(&self, of: CgroupId) -> CgroupId {
        let line = std::iter::successors(Some(of), |&cgroup| self.first_child(cgroup));
        line.last().unwrap_or(of)
    }

    /// Returns the cgroup that follows `last` in a walk from `start` on; the first one without `last`.
    fn next(&self, start: CgroupId, order: Order, last: Option<CgroupId>) -> Option<CgroupId> {
        match (order, last) {
            (Order::DescendantsPre | Order::AncestorsUp, None) => Some(start),
            (Order::AncestorsUp, Some(last)) => self.parents[last.index()],
            (Order::Children, None) => self.first_child(start),
            (Order::Children, Some(last)) => self.sibling(last),
            (Order::DescendantsPost, None) => Some(self.first_leaf(start)),
            (Order::DescendantsPost, Some(last)) if last == start => None,
            (Order::DescendantsPost, Some(last)) => match self.sibling(last) {
                Some(sibling) => Some(self.first_leaf(sibling)),
                None => self.parents[last.index()],
            },
            (Order::DescendantsPre, Some(last)) => self.first_child(last).or_else(|| {
                let below_start = self.line(last).take_while(|&cgroup| cgroup != start);
                let mut siblings = below_start.filter_map(|cgroup| self.sibling(cgroup));
                siblings.next()
            }),
        }
    }

    /// The structure that follows the one of `last` in a walk from `start` on, of the same kind as `start`, with its cgroup.
    pub fn next_of_walk(
        &self,
        start: *const Css,
        order: Order,
        last: Option<CgroupId>,
    ) -> Option<(CgroupId, *const Css)> {
        let first = self.all.iter().position(|place| place.has(start))?;
        // It comes from the policy's memory.
        if last.is_some_and(|last| last.index() >= self.all.len()) {
            return None;
        }
        let next = self.next(CgroupId(first as u32), order, last)?;
        Some((next, self.place(next).like(start, &self.all[first])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_go_as_the_kernel_goes() {
        let memory = Rc::new(Memory::new(crate::memory::space(1 << 20)).unwrap());
        let mut cgroups = Cgroups::new(&memory);
        // 0 has 1 and 3, 1 has 2 and 4.
        for (cgroup, parent) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            cgroups.add(CgroupId(cgroup), CgroupId(parent), "name");
        }
        let walk = |start, order| {
            let start = CgroupId(start);
            let first = cgroups.next(start, order, None);
            let all = std::iter::successors(first, |&last| cgroups.next(start, order, Some(last)));
            all.map(|cgroup| cgroup.0).collect::<Vec<_>>()
        };
        assert_eq!(walk(0, Order::DescendantsPre), [0, 1, 2, 4, 3]);
        assert_eq!(walk(1, Order::DescendantsPre), [1, 2, 4]);
        assert_eq!(walk(4, Order::DescendantsPre), [4]);
        assert_eq!(walk(0, Order::DescendantsPost), [2, 4, 1, 3, 0]);
        assert_eq!(walk(1, Order::DescendantsPost), [2, 4, 1]);
        assert_eq!(walk(4, Order::DescendantsPost), [4]);
        assert_eq!(walk(4, Order::AncestorsUp), [4, 1, 0]);
        assert_eq!(walk(0, Order::Children), [1, 3]);
        assert_eq!(walk(1, Order::Children), [2, 4]);
        assert_eq!(walk(4, Order::Children), []);
        let children = |version| Order::of(5, version);
        assert_eq!(children(KernelVersion::V7_2), Some(Order::Children));
        assert_eq!(children(KernelVersion::V6_18), None);
        assert_eq!(cgroups.ancestor(CgroupId(4), 1), Some(CgroupId(1)));
        assert_eq!(cgroups.ancestor(CgroupId(4), 2), Some(CgroupId(4)));
        assert_eq!(cgroups.ancestor(CgroupId(4), 3), None);
        assert_eq!(cgroups.ancestor(CgroupId(4), -1), None);
        assert_eq!(cgroups.by_inode(3), Some(CgroupId(2)));
        assert_eq!((cgroups.by_inode(0), cgroups.by_inode(6)), (None, None));
        let place = cgroups.place(CgroupId(4));
        assert_eq!(cgroups.at(place.cgroup), Some(CgroupId(4)));
        assert_eq!(cgroups.at(std::ptr::null()), None);
    }
}
