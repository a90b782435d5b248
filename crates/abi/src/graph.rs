//! Objects, red-black trees and lists of the kernel, as a policy has them.

use std::collections::{BTreeMap, VecDeque};

/// The objects, trees and lists of a run, by their addresses.
#[derive(Default)]
pub struct Graph {
    /// Sizes of the objects that are there.
    sizes: BTreeMap<usize, usize>,
    /// Places of objects that are gone, by size.
    free: BTreeMap<usize, Vec<usize>>,
    /// Nodes in the order of each tree.
    trees: BTreeMap<u64, Vec<u64>>,
    lists: BTreeMap<u64, VecDeque<u64>>,
    /// The tree or list that each node is in.
    owners: BTreeMap<u64, u64>,
}

impl Graph {
    /// A place for an object of so many bytes; `take` finds one that is new. Null without memory.
    pub fn allocate(&mut self, bytes: usize, take: impl FnOnce(usize) -> *mut u8) -> *mut u8 {
        let used = self.free.get_mut(&bytes).and_then(Vec::pop);
        let place = used.map_or_else(|| take(bytes), |place| place as *mut u8);
        if !place.is_null() {
            self.sizes.insert(place as usize, bytes);
        }
        place
    }

    /// An object goes. Whether it was there.
    pub fn release(&mut self, object: *mut u8) -> bool {
        let Some(bytes) = self.sizes.remove(&(object as usize)) else {
            return false;
        };
        self.free.entry(bytes).or_default().push(object as usize);
        true
    }

    /// The nodes of a tree to which a node may be added; `None` if it is in one already.
    pub fn nodes_for(&self, root: u64, node: u64) -> Option<Vec<u64>> {
        let is_free = !self.owners.contains_key(&node);
        is_free.then(|| self.trees.get(&root).cloned().unwrap_or_default())
    }

    /// Puts a node into a tree.
    pub fn add(&mut self, root: u64, node: u64, place: usize) {
        self.trees.entry(root).or_default().insert(place, node);
        self.owners.insert(node, root);
    }

    /// The first node of a tree; 0 if it is empty.
    pub fn first(&self, root: u64) -> u64 {
        let nodes = self.trees.get(&root);
        nodes.and_then(|nodes| nodes.first()).copied().unwrap_or(0)
    }

    /// Takes a node out of a tree. Whether it was there.
    pub fn remove(&mut self, root: u64, node: u64) -> bool {
        if self.owners.get(&node) != Some(&root) {
            return false;
        }
        self.owners.remove(&node);
        self.trees
            .entry(root)
            .or_default()
            .retain(|other| *other != node);
        true
    }

    /// Puts a node into a list. Whether it was in none.
    pub fn push(&mut self, head: u64, node: u64, front: bool) -> bool {
        if self.owners.contains_key(&node) {
            return false;
        }
        self.owners.insert(node, head);
        let nodes = self.lists.entry(head).or_default();
        match front {
            true => nodes.push_front(node),
            false => nodes.push_back(node),
        }
        true
    }

    /// Takes the first or the last node out of a list; 0 if it is empty.
    pub fn pop(&mut self, head: u64, front: bool) -> u64 {
        let nodes = self.lists.entry(head).or_default();
        let node = if front {
            nodes.pop_front()
        } else {
            nodes.pop_back()
        };
        let node = node.unwrap_or(0);
        self.owners.remove(&node);
        node
    }
}
