//! The cgroups of a run: which are there, and which the policy has taken.

use std::cell::Cell;

use schedlab_workload::{CgroupId, Cgroups};

/// How far a cgroup has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Not made yet. → `Online`
    ToCome,
    /// Tasks may be in it (`SCX_TG_ONLINE`). → `Inited`
    Online,
    /// `ops.cgroup_init()` has taken it, or there is no such op (`SCX_TG_INITED`). → `Online`
    Inited,
}

/// The cgroups of a run; the root is there from the start.
pub(crate) struct CgroupTable {
    tree: Cgroups,
    states: Box<[Cell<State>]>,
}

impl CgroupTable {
    pub fn new(tree: Cgroups) -> CgroupTable {
        let states = (0..tree.len()).map(|index| match index {
            0 => State::Online,
            _ => State::ToCome,
        });
        CgroupTable {
            states: states.map(Cell::new).collect(),
            tree,
        }
    }

    /// Its parents, names and settings.
    pub fn tree(&self) -> &Cgroups {
        &self.tree
    }

    /// It is made (`css_online()`).
    pub fn online(&self, cgroup: CgroupId) {
        self.change(cgroup, State::ToCome, State::Online);
    }

    /// The policy has taken it.
    pub fn init(&self, cgroup: CgroupId) {
        self.change(cgroup, State::Online, State::Inited);
    }

    /// The policy gives it back. Returns whether it had taken it.
    pub fn exit(&self, cgroup: CgroupId) -> bool {
        let state = &self.states[cgroup.index()];
        let is_inited = state.get() == State::Inited;
        if is_inited {
            state.set(State::Online);
        }
        is_inited
    }

    fn change(&self, cgroup: CgroupId, from: State, to: State) {
        let before = self.states[cgroup.index()].replace(to);
        assert_eq!(before, from, "cgroup {} becomes {to:?}", cgroup.0);
    }

    /// All cgroups, each after its descendants (`css_for_each_descendant_post()`).
    pub fn descendants_post(&self) -> Vec<CgroupId> {
        let mut order = Vec::with_capacity(self.tree.len());
        self.add_post(CgroupId::ROOT, &mut order);
        order
    }

    fn add_post(&self, of: CgroupId, order: &mut Vec<CgroupId>) {
        for child in self.tree.below_root() {
            if self.tree.parent(child) == Some(of) {
                self.add_post(child, order);
            }
        }
        order.push(of);
    }
}
