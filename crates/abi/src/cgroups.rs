//! The cgroups that policies point at. None ever moves or goes.

use std::rc::Rc;

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
}

impl Order {
    /// Of the kernel's numbers those that `bpf_iter_css_new()` takes.
    pub fn of(flags: u32) -> Option<Order> {
        match flags {
            2 => Some(Order::DescendantsPre),
            3 => Some(Order::DescendantsPost),
            4 => Some(Order::AncestorsUp),
            _ => None,
        }
    }
}

/// The cgroups, by their numbers.
pub struct Cgroups {
    all: Vec<CgroupPlace>,
    parents: Vec<Option<CgroupId>>,
    memory: Rc<Memory>,
}

impl Cgroups {
    /// The root alone.
    pub fn new(memory: &Rc<Memory>) -> Cgroups {
        Cgroups {
            all: vec![Cgroup::put(memory, None, ROOT_INODE, "")],
            parents: vec![None],
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

    /// The cgroups of a walk from `start` on.
    fn walk(&self, start: CgroupId, order: Order) -> Vec<CgroupId> {
        let mut walk = Vec::new();
        match order {
            Order::AncestorsUp => walk.extend(self.line(start)),
            _ => self.descend(start, order, &mut walk),
        }
        walk
    }

    fn descend(&self, of: CgroupId, order: Order, walk: &mut Vec<CgroupId>) {
        if order == Order::DescendantsPre {
            walk.push(of);
        }
        for (child, _) in (0..)
            .zip(&self.parents)
            .filter(|(_, parent)| **parent == Some(of))
        {
            self.descend(CgroupId(child), order, walk);
        }
        if order == Order::DescendantsPost {
            walk.push(of);
        }
    }

    /// The structure that comes at place `nth` of a walk from `start` on, of the same kind as `start`.
    pub fn nth_of_walk(&self, start: *const Css, order: Order, nth: usize) -> Option<*const Css> {
        let first = self.all.iter().position(|place| place.has(start))?;
        let next = *self.walk(CgroupId(first as u32), order).get(nth)?;
        Some(self.place(next).like(start, &self.all[first]))
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
        let ids = |list: &[u32]| list.iter().copied().map(CgroupId).collect::<Vec<_>>();
        let root = CgroupId::ROOT;
        assert_eq!(
            cgroups.walk(root, Order::DescendantsPre),
            ids(&[0, 1, 2, 4, 3])
        );
        assert_eq!(
            cgroups.walk(root, Order::DescendantsPost),
            ids(&[2, 4, 1, 3, 0])
        );
        assert_eq!(
            cgroups.walk(CgroupId(1), Order::DescendantsPost),
            ids(&[2, 4, 1])
        );
        assert_eq!(
            cgroups.walk(CgroupId(4), Order::AncestorsUp),
            ids(&[4, 1, 0])
        );
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
