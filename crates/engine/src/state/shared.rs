//! Objects of the kernel that calls of tasks share ([`SharedObject`]): the locks and lines of each, made on first use.

use std::cell::{Cell, RefCell};

use elsa::vec::FrozenVec;
use schedlab_machine::{KernelPath, LineRef, Machine, Scope, SharedObject, address};

use crate::state::lock::LockIx;

/// An object, or the one of a process, socket, pipe or futex.
pub(crate) struct Instance {
    /// If it has one.
    pub lock: Option<LockIx>,
    /// The first one has the lock and the counters.
    pub lines: Box<[LineRef]>,
}

/// The buffer of a message, by its place in [`Buffers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Buffer {
    class: u32,
    number: u32,
}

/// All buffers that are equally long, as a slab has them.
struct Class {
    nr_lines: u32,
    /// Of all its buffers, one after another.
    lines: Vec<LineRef>,
    /// Of each CPU, the one that was used last at the end.
    free: Vec<Vec<u32>>,
    /// The common list.
    common: Vec<u32>,
}

/// Where a CPU gets a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// From its own list.
    Own(Buffer),
    /// The own list is empty: a batch is to be taken from the common one.
    Common,
}

/// The buffers of messages.
#[derive(Default)]
pub(crate) struct Buffers {
    classes: Vec<Class>,
}

impl Buffers {
    /// Takes a buffer of `nr_lines` lines from the list of `cpu`, of `nr_cpus`.
    pub fn take(&mut self, cpu: usize, nr_lines: u32, nr_cpus: usize) -> Source {
        let class = self.class_of(nr_lines, nr_cpus);
        match self.classes[class].free[cpu].pop() {
            Some(number) => Source::Own(Buffer {
                class: class as u32,
                number,
            }),
            None => Source::Common,
        }
    }

    /// Moves a batch from the common list to the list of `cpu` and takes one. `new_lines` makes the lines of a new
    /// buffer, if the common list is empty.
    pub fn take_common(
        &mut self,
        cpu: usize,
        nr_lines: u32,
        per_cpu: usize,
        new_lines: impl FnOnce(u32) -> Vec<LineRef>,
    ) -> Buffer {
        let class = self.class_of(nr_lines, 0);
        let known = &mut self.classes[class];
        let rest = known.common.len().saturating_sub(per_cpu / 2);
        let batch = known.common.split_off(rest);
        known.free[cpu].extend(batch);
        let number = known.free[cpu].pop().unwrap_or_else(|| {
            let number = known.lines.len() as u32 / nr_lines.max(1);
            known.lines.extend(new_lines(nr_lines));
            number
        });
        Buffer {
            class: class as u32,
            number,
        }
    }

    /// Puts a buffer into the list of `cpu`. Returns whether the list is too long now: [`Buffers::give_common`].
    pub fn give(&mut self, cpu: usize, buffer: Buffer, per_cpu: usize) -> bool {
        let free = &mut self.classes[buffer.class as usize].free[cpu];
        free.push(buffer.number);
        free.len() > per_cpu
    }

    /// Moves the half of the list of `cpu` that was used longest ago to the common one.
    pub fn give_common(&mut self, cpu: usize, buffer: Buffer, per_cpu: usize) {
        let class = &mut self.classes[buffer.class as usize];
        let batch = class.free[cpu].drain(..per_cpu / 2);
        class.common.extend(batch);
    }

    /// Returns its lines.
    pub fn lines(&self, buffer: Buffer) -> &[LineRef] {
        let class = &self.classes[buffer.class as usize];
        let nr = class.nr_lines as usize;
        &class.lines[buffer.number as usize * nr..][..nr]
    }

    fn class_of(&mut self, nr_lines: u32, nr_cpus: usize) -> usize {
        let known = self.classes.iter().position(|one| one.nr_lines == nr_lines);
        known.unwrap_or_else(|| {
            self.classes.push(Class {
                nr_lines,
                lines: Vec::new(),
                free: vec![Vec::new(); nr_cpus],
                common: Vec::new(),
            });
            self.classes.len() - 1
        })
    }
}

/// No instance.
const NONE: u32 = u32::MAX;

/// The objects of a machine.
pub(crate) struct SharedObjects {
    /// In the order of their names, in which a call uses them.
    pub objects: Vec<(Box<str>, SharedObject)>,
    /// The objects that a call uses, without its message.
    by_path: [Vec<u16>; KernelPath::ALL.len()],
    /// The object of messages.
    pub message: Option<u16>,
    pub buffers: RefCell<Buffers>,
    instances: FrozenVec<Box<Instance>>,
    /// Of each object, the instances by process, socket, pipe or futex.
    places: RefCell<Vec<Vec<u32>>>,
    /// Where the next one comes to lie.
    next_address: Cell<u64>,
}

impl SharedObjects {
    pub fn new(machine: &Machine) -> Self {
        let named = machine.shared.iter();
        let objects: Vec<(Box<str>, SharedObject)> = named
            .map(|(name, object)| (name.as_str().into(), object.clone()))
            .collect();
        let numbered = || (0u16..).zip(&objects);
        let of_message = |object: &SharedObject| object.scope == Scope::Message;
        let uses = |path: KernelPath| {
            numbered()
                .filter(|(_, (_, object))| object.paths.contains(&path) && !of_message(object))
                .map(|(index, _)| index)
                .collect()
        };
        SharedObjects {
            by_path: KernelPath::ALL.map(uses),
            message: numbered()
                .find(|(_, (_, object))| of_message(object))
                .map(|(index, _)| index),
            places: RefCell::new(vec![Vec::new(); objects.len()]),
            objects,
            buffers: RefCell::default(),
            instances: FrozenVec::new(),
            next_address: Cell::new(address::SHARED),
        }
    }

    /// Returns whether there is any.
    #[inline]
    pub fn are_there(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Returns the objects that a call uses, without its message.
    pub fn used_by(&self, path: KernelPath) -> &[u16] {
        &self.by_path[path as usize]
    }

    /// Returns the object of the messages of `path`, if they have one.
    pub fn message_of(&self, path: KernelPath) -> Option<(u16, &SharedObject)> {
        let index = self.message?;
        let object = &self.objects[usize::from(index)].1;
        object.paths.contains(&path).then_some((index, object))
    }

    /// Returns the instance of the object `index` with a number, if it has been made.
    pub fn known(&self, index: u16, number: u32) -> Option<&Instance> {
        let places = self.places.borrow();
        let place = *places[usize::from(index)].get(number as usize)?;
        (place != NONE).then(|| &self.instances[place as usize])
    }

    /// Remembers a new instance.
    pub fn add(&self, index: u16, number: u32, instance: Instance) -> &Instance {
        let mut places = self.places.borrow_mut();
        let numbers = &mut places[usize::from(index)];
        if numbers.len() <= number as usize {
            numbers.resize(number as usize + 1, NONE);
        }
        numbers[number as usize] = self.instances.len() as u32;
        self.instances.push_get(Box::new(instance))
    }

    /// Returns the addresses of the lines of something new.
    pub fn new_addresses(&self, nr_lines: u32, line_bytes: u32) -> impl Iterator<Item = u64> {
        let line_bytes = u64::from(line_bytes);
        let bytes = (u64::from(nr_lines) * line_bytes).next_multiple_of(address::ALONE);
        let mut first = self.next_address.get();
        if first + bytes > address::SHARED_END {
            // Model: beyond 1 GiB of them, two share a place.
            first = address::SHARED;
        }
        self.next_address.set(first + bytes);
        (0..u64::from(nr_lines)).map(move |line| first + line * line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers of one line each, named by the order in which they were made.
    fn take(buffers: &mut Buffers, cpu: usize) -> (u32, bool) {
        match buffers.take(cpu, 1, 2) {
            Source::Own(buffer) => (buffer.number, false),
            Source::Common => {
                let line = LineRef::default();
                let buffer = buffers.take_common(cpu, 1, 4, |_| vec![line]);
                (buffer.number, true)
            }
        }
    }

    #[test]
    fn buffers_are_used_again_last_in_first_out_and_go_over_in_batches() {
        let mut buffers = Buffers::default();
        let number = |number| Buffer { class: 0, number };
        for made in 0..5 {
            assert_eq!(take(&mut buffers, 0), (made, true));
        }
        // CPU 1 frees what CPU 0 has made: four fit into its list.
        for freed in 0..4 {
            assert!(!buffers.give(1, number(freed), 4), "{freed}");
        }
        assert!(buffers.give(1, number(4), 4));
        buffers.give_common(1, number(4), 4);
        // The two that came first went over, the last one comes back first.
        assert_eq!(take(&mut buffers, 1), (4, false));
        assert_eq!(take(&mut buffers, 1), (3, false));
        assert_eq!(take(&mut buffers, 0), (1, true));
        assert_eq!(take(&mut buffers, 0), (0, false));
        assert_eq!(take(&mut buffers, 0), (5, true));
    }

    #[test]
    fn buffers_of_another_length_are_others() {
        let mut buffers = Buffers::default();
        let lines = |nr: u32| vec![LineRef::default(); nr as usize];
        let _ = buffers.take(0, 3, 1);
        let of_three = buffers.take_common(0, 3, 64, lines);
        let _ = buffers.take(0, 5, 1);
        let of_five = buffers.take_common(0, 5, 64, lines);
        assert_eq!(buffers.lines(of_three).len(), 3);
        assert_eq!(buffers.lines(of_five).len(), 5);
        assert!(!buffers.give(0, of_five, 64));
        assert_eq!(buffers.take(0, 3, 1), Source::Common);
        assert_eq!(buffers.take(0, 5, 1), Source::Own(of_five));
    }
}
