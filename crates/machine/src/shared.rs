//! Objects of the kernel that several CPUs use at once, besides run queues: locks, counters and data that calls of
//! tasks go through.
//!
//! A profile lists them (`[shared.NAME]`), each with the calls that use it. A call takes the time of its path
//! (`paths`) and, on top of it, the time of its objects: the atomic operations, the lock with its wait, and the lines that
//! other CPUs have written. So nothing here says how much slower a call is on more CPUs: that follows from who used
//! the object before.

use std::collections::BTreeMap;

/// A call that uses objects of the kernel.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Deserialize, serde::Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum KernelPath {
    /// A write to a socket.
    Send,
    /// A read of a socket.
    Receive,
    /// A segment or an acknowledgement that goes through the loopback device, on a machine with a section `[tcp]`.
    Transmit,
    /// A write to a pipe.
    PipeWrite,
    /// A read of a pipe.
    PipeRead,
    /// An operation on a futex that enters the kernel.
    Futex,
    /// `fork()` and `clone()`.
    Fork,
    /// `execve()`.
    Exec,
    /// A page fault that needs no device: the first access of a page.
    Fault,
    /// The end of a task.
    Exit,
}

impl KernelPath {
    /// All of them, in the order of their discriminants.
    pub const ALL: [KernelPath; 10] = [
        KernelPath::Send,
        KernelPath::Receive,
        KernelPath::Transmit,
        KernelPath::PipeWrite,
        KernelPath::PipeRead,
        KernelPath::Futex,
        KernelPath::Fork,
        KernelPath::Exec,
        KernelPath::Fault,
        KernelPath::Exit,
    ];

    /// Returns whether the call is about an object of the workload: a socket, a pipe, a futex.
    pub fn has_object(self) -> bool {
        !matches!(
            self,
            KernelPath::Fork | KernelPath::Exec | KernelPath::Fault | KernelPath::Exit
        )
    }

    /// Returns whether the call brings a message or takes one.
    pub fn has_message(self) -> bool {
        self.has_object() && !matches!(self, KernelPath::Futex | KernelPath::Transmit)
    }
}

/// Which calls use one and the same object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// All of the machine: a device, a list of the kernel.
    Machine,
    /// Those of tasks with the same address space: the table of open files.
    Process,
    /// Those about the same socket, pipe or futex.
    Object,
    /// The write and the read of one message: its buffer. The buffers of a CPU are used again last in, first out, as
    /// the buffers of a slab.
    Message,
}

/// An object of the kernel, or one of each process, socket or message.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct SharedObject {
    /// The calls that use it, each once.
    pub paths: Vec<KernelPath>,
    /// Which calls share one.
    pub scope: Scope,
    /// How long a call holds its spin lock, besides the accesses under it; none: it has none. Of messages: the lock of
    /// the list of free buffers, for each batch that a CPU takes or leaves there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
    /// Atomic operations on its first line, besides the lock's: two for a reader of a reader-writer lock, two for a
    /// reference that is taken and dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub atomics: u32,
    /// Further lines that a call writes, under the lock if there is one. Of messages: lines besides the data's,
    /// which the write writes and the read reads.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lines: u32,
    /// Of messages: free buffers that a CPU keeps; half of them go to the common list when there are more, and as many
    /// come from there when it has no more. None: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_cpu: Option<u32>,
    /// Of sockets, pipes and futexes: they share so many by their number, as in a hash table; none: each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<u32>,
}

impl SharedObject {
    /// Returns the time that a call spends on it if nobody else does, in ps: all of its lines are in the CPU's cache.
    pub(crate) fn alone_ps(&self, hit_ps: u64, atomic_ps: u64) -> u64 {
        let accesses = u64::from(self.lines) + u64::from(self.hold_ns.is_some());
        let atomics = u64::from(self.atomics) + u64::from(self.hold_ns.is_some());
        self.hold_ns.unwrap_or(0) * 1_000 + accesses * hit_ps + atomics * atomic_ps
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// A call holds a lock of the kernel for at most this many nanoseconds.
const HOLD_NS_MAX: u64 = 1_000_000_000;

/// The most lines of an object.
const LINES_MAX: u32 = 1_024;

/// Returns the fault in a profile's objects: the field and the remedy.
pub(crate) fn complaint(shared: &BTreeMap<String, SharedObject>) -> Option<(String, String)> {
    let mut has_message = false;
    for (name, object) in shared {
        let fault = |field: &str, message: &str| {
            Some((format!("shared.{name}.{field}"), message.to_owned()))
        };
        let is_bare = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.is_empty() || !name.chars().all(is_bare) {
            return fault(
                "paths",
                "the name of an object has small letters, digits and _ alone",
            );
        }
        if object.paths.is_empty() {
            return fault("paths", "must name a call, as in [\"send\", \"receive\"]");
        }
        let fits = |path: &KernelPath| match object.scope {
            Scope::Machine => true,
            // A packet is of no task.
            Scope::Process => *path != KernelPath::Transmit,
            Scope::Object => path.has_object(),
            Scope::Message => path.has_message(),
        };
        if !object.paths.iter().all(fits) {
            return fault("scope", "a call of `paths` has no such object");
        }
        let is_message = object.scope == Scope::Message;
        if is_message {
            if std::mem::replace(&mut has_message, true) {
                return fault("scope", "only one object can have scope = \"message\"");
            }
            let has = |path| object.paths.contains(&path);
            if has(KernelPath::Send) != has(KernelPath::Receive)
                || has(KernelPath::PipeWrite) != has(KernelPath::PipeRead)
            {
                return fault("paths", "a message is written and read: name both calls");
            }
        }
        if object.hold_ns.is_none() && object.atomics == 0 && object.lines == 0 {
            return fault("scope", "does nothing: give hold_ns, atomics or lines");
        }
        if object.atomics > LINES_MAX || (is_message && object.atomics > 0) {
            return fault(
                "atomics",
                "must be at most 1024, and 0 of messages, which no two tasks use at once",
            );
        }
        if object.lines > LINES_MAX {
            return fault("lines", "must be at most 1024");
        }
        if object.hold_ns.is_some_and(|ns| ns > HOLD_NS_MAX) {
            return fault("hold_ns", "must be at most 1000000000, a second");
        }
        if object
            .per_cpu
            .is_some_and(|n| !is_message || !(2..=65_536).contains(&n))
        {
            return fault(
                "per_cpu",
                "must be 2 to 65536, and is of messages alone (scope = \"message\")",
            );
        }
        if object
            .buckets
            .is_some_and(|n| object.scope != Scope::Object || !(1..=1_048_576).contains(&n))
        {
            return fault(
                "buckets",
                "must be 1 to 1048576, and is of sockets, pipes and futexes alone (scope = \"object\")",
            );
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;

    fn with(section: &str) -> Result<Machine, crate::ProfileError> {
        let text = Machine::builtin("laptop").unwrap().to_toml();
        Machine::from_toml("x.toml", &format!("{text}\n{section}"))
    }

    fn section(fields: &str) -> String {
        let fields = fields.split(';').map(|field| {
            let (key, value) = field.split_once('=').unwrap();
            format!("{key} = {{ value = {value}, source = \"guess\" }}\n")
        });
        format!("[shared.z_dev]\n{}", fields.collect::<String>())
    }

    /// A lock's line and two more are hits, the lock is an atomic operation as the two others are, and it is held.
    #[test]
    fn a_call_alone_pays_for_its_accesses_and_its_holds() {
        let mut machine = Machine::builtin("laptop").unwrap();
        (machine.memory.hit_ps, machine.memory.atomic_ps) = (1_000, 7_000);
        let object = SharedObject {
            paths: vec![KernelPath::Fork],
            scope: Scope::Machine,
            hold_ns: Some(500),
            atomics: 2,
            lines: 2,
            per_cpu: None,
            buckets: None,
        };
        let without_lock = SharedObject {
            hold_ns: None,
            ..object.clone()
        };
        machine.shared = [("a", object), ("b", without_lock)]
            .map(|(name, object)| (name.to_owned(), object))
            .into();
        let with_lock_ps = 500_000 + 3 * 1_000 + 3 * 7_000;
        let without_ps = 2 * 1_000 + 2 * 7_000;
        assert_eq!(
            machine.shared_alone_ps(KernelPath::Fork),
            with_lock_ps + without_ps
        );
        assert_eq!(machine.shared_alone_ps(KernelPath::Exit), 0);
    }

    #[test]
    fn an_object_reads_back_as_it_was_written() {
        let machine = with(&section(
            "paths=[\"send\", \"receive\"];scope=\"machine\";hold_ns=700;atomics=2;lines=3",
        ));
        let machine = machine.unwrap();
        let expected = SharedObject {
            paths: vec![KernelPath::Send, KernelPath::Receive],
            scope: Scope::Machine,
            hold_ns: Some(700),
            atomics: 2,
            lines: 3,
            per_cpu: None,
            buckets: None,
        };
        assert_eq!(machine.shared["z_dev"], expected);
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again, machine);
        let known = again.provenance().iter();
        let fields = known.filter(|one| one.field.starts_with("shared.z_dev."));
        assert_eq!(fields.count(), 5);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_field() {
        for (fields, says) in [
            (
                "paths=[];scope=\"machine\";lines=1",
                "shared.z_dev.paths: must name a call",
            ),
            (
                "paths=[\"send\"];scope=\"machine\"",
                "shared.z_dev.scope: does nothing",
            ),
            (
                "paths=[\"fork\"];scope=\"object\";lines=1",
                "shared.z_dev.scope: a call",
            ),
            (
                "paths=[\"futex\"];scope=\"message\";lines=1",
                "shared.z_dev.scope: a call",
            ),
            (
                "paths=[\"send\"];scope=\"message\";lines=1",
                "shared.z_dev.paths: a message",
            ),
            (
                "paths=[\"send\", \"receive\"];scope=\"message\";atomics=1",
                "shared.z_dev.atomics",
            ),
            (
                "paths=[\"send\"];scope=\"machine\";lines=1025",
                "shared.z_dev.lines",
            ),
            (
                "paths=[\"send\"];scope=\"machine\";hold_ns=1000000001",
                "shared.z_dev.hold_ns",
            ),
            (
                "paths=[\"send\"];scope=\"object\";lines=1;per_cpu=8",
                "shared.z_dev.per_cpu",
            ),
            (
                "paths=[\"send\", \"receive\"];scope=\"message\";lines=1;per_cpu=1",
                "shared.z_dev.per_cpu",
            ),
            (
                "paths=[\"send\"];scope=\"machine\";lines=1;buckets=2",
                "shared.z_dev.buckets",
            ),
            ("paths=[\"sned\"];scope=\"machine\";lines=1", "sned"),
        ] {
            let error = with(&section(fields)).unwrap_err().to_string();
            assert!(error.contains(says), "{fields}: {error}");
        }
        let unnamed = section("paths=[\"send\"];scope=\"machine\";lines=1").replace("z_dev", "Dev");
        let error = with(&unnamed).unwrap_err().to_string();
        assert!(error.contains("small letters"), "{error}");
        let unsourced = "[shared.z_dev]\npaths = [\"send\"]";
        let error = with(unsourced).unwrap_err().to_string();
        assert!(
            error.contains("shared.z_dev.paths has no source"),
            "{error}"
        );
    }

    #[test]
    fn paths_are_numbered_in_their_order() {
        for (index, path) in KernelPath::ALL.into_iter().enumerate() {
            assert_eq!(path as usize, index);
        }
    }
}
