//! Where a policy keeps a task: the list, heap, tree or skip list of `include/lab` in which the task's context is linked,
//! by the name that the policy's source gives it.
//!
//! From the context, the links lead to the head of a list or the root of a tree. The policy's global variables, and what
//! their pointers lead to, have a name for that place. Types come from the object's debug information, so that this knows
//! no policy. Nothing is written, and no address is read that is not the policy's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::dwarf::{Shape, Types};

/// Longer structures are not followed to their ends.
pub const LINKS_MAX: u32 = 1 << 20;
/// How many structures are looked at in search of a name.
const PLACES_MAX: usize = 1 << 20;
/// How many pointers the elements of one array have, at most.
const POINTERS_MAX: usize = 1 << 16;

/// The policy's memory.
pub trait Memory {
    /// Reads a word; `None` if it is not the policy's.
    fn word(&self, at: usize) -> Option<usize>;

    /// Returns the places and types of the policy's global variables.
    fn globals(&self, types: &Types) -> Vec<(String, usize, usize)>;
}

/// A kind of node, and how it is linked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    List,
    SkipList,
    Heap,
    Tree,
}

impl Kind {
    fn of(node: &str) -> Option<Kind> {
        Some(match node {
            "lab_node" => Kind::List,
            "lab_skip_node" => Kind::SkipList,
            "lab_heap_node" => Kind::Heap,
            "lab_rb_node" => Kind::Tree,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Kind::List => "list",
            Kind::SkipList => "skip list",
            Kind::Heap => "heap",
            Kind::Tree => "tree",
        }
    }
}

/// Where a name is looked for.
struct Place {
    at: usize,
    type_at: usize,
    path: String,
}

/// The place for which a name is looked for.
enum Sought {
    /// The head of a circle of nodes.
    Head(usize),
    /// A tree's root, to which the structure's `root` points.
    Root(usize),
}

/// The search for one task's place.
pub struct Search<'a, M> {
    memory: &'a M,
    types: &'a Types,
    /// The structure of contexts, and its size.
    context: usize,
    bytes: usize,
    /// Where each task's context begins.
    contexts: BTreeSet<usize>,
    /// Pointers of a type: the offset, and the type that they point to.
    pointers: BTreeMap<usize, Vec<(u64, usize)>>,
    /// The structure that the policy builds around the run queue of `include/lab`.
    whole: Option<usize>,
}

impl<'a, M: Memory> Search<'a, M> {
    /// Begins a search; `None` if the policy has no contexts of `include/lab`.
    pub fn new(memory: &'a M, types: &'a Types, contexts: BTreeSet<usize>) -> Option<Self> {
        let Shape::Struct(context) = types.shape(types.named("task_t")?) else {
            return None;
        };
        let mut search = Search {
            memory,
            types,
            context,
            bytes: types.size(context) as usize,
            contexts,
            pointers: BTreeMap::new(),
            whole: None,
        };
        let is_built_on_a_queue = |structure: &usize| search.queue_of(*structure).is_some();
        search.whole = types.defined().into_iter().find(is_built_on_a_queue);
        Some(search)
    }

    /// Returns the name of what a context is linked in, for people.
    pub fn describe(&mut self, context: usize) -> Option<String> {
        let mut nodes = Vec::new();
        self.nodes(self.context, 0, &mut nodes);
        for (offset, kind, structure) in nodes {
            let node = context + offset as usize;
            let sought = match kind {
                Kind::List | Kind::SkipList => self.head(node, structure).map(Sought::Head),
                Kind::Heap | Kind::Tree => self.root(node, structure).map(Sought::Root),
            };
            if let Some(name) = sought.and_then(|sought| self.name(&sought)) {
                return Some(format!("the {} {name}", kind.name()));
            }
        }
        None
    }

    /// The nodes that a structure contains.
    fn nodes(&self, structure: usize, base: u64, found: &mut Vec<(u64, Kind, usize)>) {
        // Also of a member without a name: contexts begin with a union.
        let children = self.types.entry(structure).children.iter();
        for entry in children.map(|&child| self.types.entry(child)) {
            let Some(Shape::Struct(inner)) = entry.type_at.map(|at| self.types.shape(at)) else {
                continue;
            };
            let at = base + entry.offset.unwrap_or(0);
            match Kind::of(self.tag(inner)) {
                // A union shows the same node more than once.
                Some(_) if found.iter().any(|(known, ..)| *known == at) => {}
                Some(kind) => found.push((at, kind, inner)),
                None => self.nodes(inner, at, found),
            }
        }
    }

    fn member(&self, structure: usize, name: &str) -> Option<usize> {
        let members = self.types.members(structure);
        let (_, offset, _) = members.into_iter().find(|(member, ..)| *member == name)?;
        Some(offset as usize)
    }

    fn is_of_a_context(&self, at: usize) -> bool {
        let before = self.contexts.range(..=at).next_back();
        before.is_some_and(|before| at < before + self.bytes)
    }

    /// The head of the circle that a node is linked in: its only member that is of no context.
    fn head(&self, node: usize, structure: usize) -> Option<usize> {
        let (next, prev) = (
            self.member(structure, "next")?,
            self.member(structure, "prev")?,
        );
        let mut at = node;
        for _ in 0..LINKS_MAX {
            let to = self.memory.word(at + next)?;
            if to == 0 || self.memory.word(to + prev)? != at {
                return None;
            }
            at = to;
            if !self.is_of_a_context(at) {
                return Some(at);
            }
        }
        None
    }

    /// The root of the tree that a node is linked in.
    fn root(&self, node: usize, structure: usize) -> Option<usize> {
        let parent = self.member(structure, "parent")?;
        let children = match self.member(structure, "child") {
            Some(child) => [child, child + 8],
            None => [
                self.member(structure, "left")?,
                self.member(structure, "right")?,
            ],
        };
        let mut at = node;
        for _ in 0..LINKS_MAX {
            let to = self.memory.word(at + parent)?;
            if to == 0 {
                return Some(at);
            }
            let is_child = |child: &usize| self.memory.word(to + child) == Some(at);
            if !children.iter().any(is_child) {
                return None;
            }
            at = to;
        }
        None
    }

    /// Names a place as the policy's source does: by the way there from a global variable.
    fn name(&mut self, sought: &Sought) -> Option<String> {
        let globals = self.memory.globals(self.types);
        let mut seen = BTreeSet::new();
        let mut places: VecDeque<Place> = globals
            .into_iter()
            .map(|(path, at, type_at)| Place { at, type_at, path })
            .collect();
        let mut looked_at = 0;
        while let Some(place) = places.pop_front() {
            looked_at += 1;
            if looked_at > PLACES_MAX {
                return None;
            }
            let size = self.types.size(place.type_at) as usize;
            if let Sought::Head(head) = sought
                && (place.at..place.at + size).contains(head)
            {
                return Some(self.told(&place, (head - place.at) as u64));
            }
            let pointers = self.pointers_of(place.type_at);
            for (offset, target) in pointers {
                let Some(to) = self.memory.word(place.at + offset as usize) else {
                    break;
                };
                if to == 0 {
                    continue;
                }
                if let Sought::Root(root) = sought
                    && to == *root
                {
                    let field = self.types.field_at(place.type_at, offset);
                    if field == "root" || field.ends_with(".root") {
                        return Some(self.told(&place, offset));
                    }
                }
                let target = self.whole(target);
                if self.is_followed(target)
                    && !self.is_of_a_context(to)
                    && seen.insert((to, target))
                {
                    let path = format!("{}->", self.path(&place, offset));
                    places.push_back(Place {
                        at: to,
                        type_at: target,
                        path,
                    });
                }
            }
        }
        None
    }

    /// The name of a structure.
    fn tag(&self, structure: usize) -> &str {
        self.types
            .entry(structure)
            .name
            .as_deref()
            .unwrap_or_default()
    }

    /// The run queue of `include/lab` with which a structure begins.
    fn queue_of(&self, structure: usize) -> Option<usize> {
        let (_, offset, first) = *self.types.members(structure).first()?;
        match self.types.shape(first) {
            Shape::Struct(queue) if offset == 0 && self.tag(queue) == "lab_rq" => Some(queue),
            _ => None,
        }
    }

    /// Returns the structure that a pointer leads to: the whole of a queue, where its type has only the beginning.
    fn whole(&self, structure: usize) -> usize {
        match self.whole {
            Some(whole) if self.tag(structure) == "lab_rq" => whole,
            _ => structure,
        }
    }

    /// Nodes are reached by their contexts, and a context is no queue.
    fn is_followed(&self, structure: usize) -> bool {
        structure != self.context && Kind::of(self.tag(structure)).is_none()
    }

    /// The pointers to structures that a type has, in its order.
    fn pointers_of(&mut self, type_at: usize) -> Vec<(u64, usize)> {
        if let Some(known) = self.pointers.get(&type_at) {
            return known.clone();
        }
        let found = match self.types.shape(type_at) {
            Shape::Pointer(Some(target))
                if matches!(self.types.shape(target), Shape::Struct(_)) =>
            {
                vec![(0, target)]
            }
            Shape::Struct(structure) => {
                let members: Vec<(u64, usize)> = self
                    .types
                    .members(structure)
                    .into_iter()
                    .map(|(_, offset, member)| (offset, member))
                    .collect();
                let of = |(offset, member): (u64, usize)| {
                    let inner = self.pointers_of(member).into_iter();
                    inner
                        .map(move |(at, target)| (offset + at, target))
                        .collect::<Vec<_>>()
                };
                members.into_iter().flat_map(of).collect()
            }
            Shape::Array(array) => match self.types.entry(array).type_at {
                Some(element) => {
                    let (size, of_one) = (self.types.size(element), self.pointers_of(element));
                    let elements = 0..self.types.elements(array);
                    let all = elements.flat_map(|index| {
                        let begin = index * size;
                        of_one.iter().map(move |(at, target)| (begin + at, *target))
                    });
                    all.take(POINTERS_MAX).collect()
                }
                None => Vec::new(),
            },
            _ => Vec::new(),
        };
        self.pointers.insert(type_at, found.clone());
        found
    }

    fn path(&self, place: &Place, offset: u64) -> String {
        let field = self.types.field_at(place.type_at, offset);
        let dot = match field.is_empty() || field.starts_with('[') || place.path.ends_with("->") {
            true => "",
            false => ".",
        };
        format!("{}{dot}{field}", place.path)
    }

    /// The name of a list or tree by the place of its head or root, with the CPU whose queue it is part of.
    fn told(&self, place: &Place, offset: u64) -> String {
        let path = self.path(place, offset);
        let ends = [".root", ".head.next[0]", ".head.next", ".head.key", ".head"];
        let end = ends.iter().find(|end| path.ends_with(*end));
        let name = &path[..path.len() - end.map_or(0, |end| end.len())];
        match self.cpu_of(place) {
            Some(cpu) => format!("`{name}` of CPU {cpu}"),
            None => format!("`{name}`"),
        }
    }

    /// The CPU that a run queue of `include/lab` says that it belongs to.
    fn cpu_of(&self, place: &Place) -> Option<u32> {
        let Shape::Struct(structure) = self.types.shape(place.type_at) else {
            return None;
        };
        let queue = self.queue_of(structure)?;
        let cpu = self.member(queue, "cpu")?;
        let word = self.memory.word((place.at + cpu) & !7)?;
        Some((word >> (cpu % 8 * 8)) as u32)
    }
}
