//! Objects of the kernel that calls of tasks share (`[shared.NAME]` of a profile): files, sockets, devices, buffers.
//!
//! They are locks and lines like the scheduler's own: a holder, spinners, a hand-over ([`Kernel::spin_lock`]), and the
//! transfer of what another CPU has written. A call uses them when it enters the kernel, before the time of its path.
//!
//! Model: an object is used once in a call, also in one that has to wait and goes on later. A lock that is held while
//! another one is taken counts as two, one after the other.

use schedlab_machine::{KernelPath, Scope};
use schedlab_trace::{CpuMode, LockClass, Recorder};
use schedlab_workload::ObjectId;

use crate::contract::policy::Policy;
use crate::paths::kernel::Kernel;
use crate::state::cpu::Cpu;
use crate::state::lock::LockIx;
use crate::state::shared::{Buffer, Instance, Source};
use crate::state::task::Task;

/// Free buffers that a CPU keeps if the profile does not say.
const PER_CPU: u32 = 64;

impl<P: Policy, R: Recorder> Kernel<P, R> {
    /// `p` enters the kernel by `path`, which concerns `object`, and uses what it shares with others.
    #[inline]
    pub(crate) fn use_shared(
        &self,
        c: &Cpu,
        p: &Task,
        path: KernelPath,
        object: Option<ObjectId>,
        bytes: u32,
    ) {
        if self.shared_objects.are_there() {
            self.use_shared_objects(c, p.origin.tgid, path, object);
            if matches!(path, KernelPath::Send | KernelPath::PipeWrite) {
                self.fill_buffer(c, p, path, bytes);
            }
        }
    }

    /// A packet of the connection `object` goes through the loopback device.
    pub(crate) fn use_shared_by_packet(&self, c: &Cpu, object: ObjectId) {
        if self.shared_objects.are_there() {
            self.use_shared_objects(c, 0, KernelPath::Transmit, Some(object));
        }
    }

    #[inline(never)]
    fn use_shared_objects(&self, c: &Cpu, tgid: u32, path: KernelPath, object: Option<ObjectId>) {
        self.set_mode(c, CpuMode::Kernel);
        let object = object.map_or(0, |object| object.0);
        for &index in self.shared_objects.used_by(path) {
            let shared = &self.shared_objects.objects[usize::from(index)].1;
            let number = match shared.scope {
                Scope::Machine | Scope::Message => 0,
                Scope::Process => tgid,
                Scope::Object => shared.buckets.map_or(object, |nr| object % nr),
            };
            let instance = self.shared_instance(index, number);
            if let Some(lock) = instance.lock {
                self.spin_lock(c, lock);
            }
            for _ in 0..shared.atomics {
                self.write_line(c, instance.lines[0], self.machine.memory.atomic_ps);
            }
            for &line in &instance.lines[1..] {
                self.write_line(c, line, 0);
            }
            if let Some(lock) = instance.lock {
                self.charge(c, shared.hold_ns.unwrap_or(0));
                self.spin_unlock(c, lock);
            }
        }
    }

    /// Returns the instance of an object with a number; makes it on first use.
    fn shared_instance(&self, index: u16, number: u32) -> &Instance {
        if let Some(known) = self.shared_objects.known(index, number) {
            return known;
        }
        let (name, shared) = &self.shared_objects.objects[usize::from(index)];
        let line_bytes = self.machine.memory.line_bytes;
        let addresses = self
            .shared_objects
            .new_addresses(shared.lines + 1, line_bytes);
        let addresses: Vec<u64> = addresses.collect();
        let lock = shared.hold_ns.map(|_| {
            let full = match shared.scope {
                Scope::Machine | Scope::Message => name.to_string(),
                Scope::Process | Scope::Object => format!("{name}{number}"),
            };
            self.new_lock(addresses[0], &full, LockClass::Shared)
        });
        let lines = addresses.iter().map(|&address| self.line_at(address));
        let lines = lines.collect();
        self.shared_objects
            .add(index, number, Instance { lock, lines })
    }

    /// Gets a buffer for a message of `bytes` and writes it. It is the task's until the message goes on its way.
    fn fill_buffer(&self, c: &Cpu, p: &Task, path: KernelPath, bytes: u32) {
        let Some((index, shared)) = self.shared_objects.message_of(path) else {
            return;
        };
        let data = bytes.div_ceil(self.machine.memory.line_bytes);
        let nr_lines = shared.lines + data;
        if nr_lines == 0 {
            return;
        }
        let buffers = &self.shared_objects.buffers;
        let source = buffers
            .borrow_mut()
            .take(c.id.index(), nr_lines, self.cpus.len());
        let buffer = match source {
            Source::Own(buffer) => buffer,
            Source::Common => {
                self.at_common_list(c, index);
                let per_cpu = shared.per_cpu.unwrap_or(PER_CPU) as usize;
                let line_bytes = self.machine.memory.line_bytes;
                buffers
                    .borrow_mut()
                    .take_common(c.id.index(), nr_lines, per_cpu, |nr| {
                        let addresses = self.shared_objects.new_addresses(nr, line_bytes);
                        addresses.map(|address| self.line_at(address)).collect()
                    })
            }
        };
        for &line in buffers.borrow().lines(buffer) {
            self.write_line(c, line, 0);
        }
        p.program.write_into(buffer);
    }

    /// Reads messages and frees their buffers.
    pub(crate) fn empty_buffers(&self, c: &Cpu, path: KernelPath, read: &[Buffer]) {
        let Some((index, shared)) = self.shared_objects.message_of(path) else {
            return;
        };
        let per_cpu = shared.per_cpu.unwrap_or(PER_CPU) as usize;
        let buffers = &self.shared_objects.buffers;
        for &buffer in read {
            for &line in buffers.borrow().lines(buffer) {
                self.read_line(c, line);
            }
            let is_too_long = buffers.borrow_mut().give(c.id.index(), buffer, per_cpu);
            if is_too_long {
                self.at_common_list(c, index);
                buffers
                    .borrow_mut()
                    .give_common(c.id.index(), buffer, per_cpu);
            }
        }
    }

    /// Takes the lock of the list of free buffers, if it has one, for as long as a batch needs.
    fn at_common_list(&self, c: &Cpu, index: u16) {
        let hold_ns = self.shared_objects.objects[usize::from(index)].1.hold_ns;
        let lock: Option<LockIx> = self.shared_instance(index, 0).lock;
        if let (Some(lock), Some(ns)) = (lock, hold_ns) {
            self.spin_lock(c, lock);
            self.charge(c, ns);
            self.spin_unlock(c, lock);
        }
    }
}
