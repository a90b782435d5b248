//! Puts hosts together and runs their ops.

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{Env, OpCall, OpKind, PolicyLock, ThisCpu};
use schedlab_fiber::Trap;
use schedlab_fiber::trap::{self, Foreign};
use schedlab_machine::Machine;
use schedlab_trace::CpuId;
use schedlab_workload::CgroupId;

use super::{Context, Cpu, Host};
use crate::audit::state::Audit;
use crate::bpf::{self, Sized, fields::Birth};
use crate::cgroups::Cgroups;
use crate::cids::Cids;
use crate::fields::Fields;
use crate::functions;
use crate::graph::Graph;
use crate::image::Image;
use crate::known::Known;
use crate::maps::Maps;
use crate::masks::MaskPool;
use crate::memory::{Memory, space};
use crate::object::NativeObject;
use crate::ops;
use crate::ops_table;
use crate::races::Races;
use crate::tasks::{Extension, Tasks};
use crate::timers::Timers;

/// Address space for the parts of the virtual kernel to which policies have pointers: of each task less than 200
/// bytes, and a KB for each mask.
const KERNEL_BYTES: usize = 16 << 30;

/// The analysis for which a policy is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// Accesses that no probe has paid for.
    pub payment: bool,
    /// Accesses that nothing orders.
    pub races: bool,
}

/// Owner of a [`Host`]: runs its ops.
pub struct Runner {
    host: *mut Host,
}

impl Runner {
    /// Puts a host together.
    pub fn new(
        image: Image,
        machine: &Machine,
        version: KernelVersion,
        watch: Option<Watch>,
    ) -> std::io::Result<Runner> {
        let object: Arc<NativeObject> = Arc::clone(image.object());
        let nr_cpus = machine.topology.nr_cpus();
        let ops = image.ops();
        let memory = Rc::new(Memory::new(space(KERNEL_BYTES))?);
        let cgroups = Cgroups::new(&memory);
        let sized = Sized::new(object.maps(), object.program.as_deref(), machine)?;
        let program = object.program.as_deref();
        let is_cid = program.is_some_and(|program| program.is_cid);
        let extension = program.map(|program| Extension {
            birth: Birth::new(&memory, cgroups.place(CgroupId::ROOT)),
            has_mask: program.asks_for_mask(),
        });
        let mut host = Host {
            table: match watch {
                Some(_) => functions::WATCHED,
                None => functions::PLAIN,
            },
            env: std::ptr::null(),
            bpf: bpf::Run::new(std::ptr::null_mut(), 0, machine.instruction_ps()),
            looked_at: Cell::new(false),
            current: std::ptr::null_mut(),
            cpus: (0..nr_cpus)
                .map(|id| UnsafeCell::new(Cpu::new(id, &memory)))
                .collect(),
            info: ops_table::info(&ops, is_cid),
            sleepable: ops_table::sleepable(&ops, &image),
            ops,
            tasks: Tasks::new(nr_cpus, &memory, extension),
            maps: Maps::new(&sized.maps, &sized.inner, nr_cpus)?,
            beside_init: Vec::new(),
            masks: MaskPool::new(nr_cpus, &memory),
            cgroups,
            memory,
            timers: Timers::default(),
            graph: Graph::default(),
            locks: Vec::new(),
            addresses: Known::new(),
            log: VecDeque::new(),
            dump: String::new(),
            dump_pending: String::new(),
            fields: Fields::new(machine),
            prefetch: machine.task_layout.prefetch,
            op_ns: machine.sched_ext.op_ns,
            kfunc_ns: machine.sched_ext.kfunc_ns,
            atomic_ps: machine.memory.atomic_ps,
            costs: machine.policy.clone(),
            hz: machine.hz,
            topology: machine.topology.clone(),
            cids: Cids::new(&machine.topology, is_cid),
            capacities: machine
                .core_traits()
                .iter()
                .map(|one| one.capacity)
                .collect(),
            nr_cpus,
            nr_nodes: machine.topology.nr_nodes(),
            version,
            exit_message: String::new(),
            initialized: false,
            foreign: Foreign::new(image.code()),
            audit: watch.map(|watch| Audit::new(nr_cpus, watch.payment)),
            races: watch
                .filter(|watch| watch.races)
                .map(|_| Races::new(nr_cpus)),
            image,
        };
        // Each map's variable holds the map's number.
        for (index, map) in host.maps.list.iter_mut().enumerate() {
            let variable = host.image.pointer(map.def.address).cast::<u64>();
            map.variable = variable;
            // SAFETY: a map is a structure of pointers that are not followed natively; the first is ours.
            unsafe { variable.write(index as u64) };
        }
        if let Some(image) = host.image.bpf() {
            host.bpf.data = image.data();
            host.maps
                .put_globals(object.program.as_deref(), &mut host.bpf)?;
            if let Some(program) = &object.program {
                let other = std::io::Error::other;
                host.beside_init = image.beside(program, machine).map_err(other)?;
                let place = bpf::expression::Place::of(machine);
                for (map, key, inner) in sized.slots {
                    host.maps.begin_with(map, key, inner).map_err(other)?;
                }
                for contents in program.decisions.contents(place).map_err(other)? {
                    host.maps.put(&contents, nr_cpus).map_err(other)?;
                }
                if !host.beside_init.is_empty() {
                    host.info.present = host.info.present.with(OpKind::Init);
                }
            }
            return Ok(Runner {
                host: Box::into_raw(Box::new(host)),
            });
        }
        let pointer = object.host_pointer;
        let host = Box::into_raw(Box::new(host));
        // SAFETY: the debug information says that `lab_host` lies there; no policy code runs yet.
        unsafe {
            (*host)
                .image
                .pointer(pointer)
                .cast::<*mut Host>()
                .write(host);
        }
        Ok(Runner { host })
    }

    /// The host. Policy code may run on other CPUs' fibers, which wait: no reference to what they hold
    /// references to may be kept.
    #[inline]
    pub fn host(&self) -> &Host {
        // SAFETY: policy code of other fibers looks at the host only while it runs, and references
        // that we hand out end before anybody is resumed.
        unsafe { &*self.host }
    }

    /// Looks at the host. `f` must neither suspend nor keep a reference.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Host) -> R) -> R {
        Context(self.host).with(f)
    }

    /// Describes a trap on a CPU, for people.
    pub fn describe(&self, cpu: &ThisCpu, trap: &Trap) -> String {
        // It may have struck who looked at what a wild pointer points to.
        Context(self.host).looks_no_more();
        self.with(|host| host.describe(cpu.op.get(), trap))
    }

    /// Describes the fault of an op that returns and still holds locks, for people.
    pub fn describe_held_locks(&self, cpu: &ThisCpu) -> String {
        self.with(|host| host.describe_held_locks(cpu))
    }

    /// One CPU that waits for a lock that another one holds, for people.
    pub fn describe_lock_wait(&self, lock: PolicyLock, waiter: CpuId, holder: CpuId) -> String {
        self.with(|host| host.describe_lock_wait(lock, waiter, holder))
    }

    /// Describes the fault of an op that returns and has released a lock of the op that waits for it, for people.
    pub fn describe_released_lock(&self, cpu: &ThisCpu) -> String {
        let what = "it returns and has released a lock of the op that waits for it";
        self.with(|host| host.name_fault(cpu.op.get(), what))
    }

    /// Runs an op on `env.cpu`, on the fiber of the caller.
    #[inline(always)]
    pub fn call<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.run::<AUDITED>(env, op, false)
    }

    /// Runs an op while another one of `env.cpu`, further up this stack, waits.
    #[inline(never)]
    pub fn call_nested<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall) -> i64 {
        self.run::<AUDITED>(env, op, true)
    }

    /// Runs a program that is no op, on `env.cpu` and the fiber of the caller: a function of the object's by its number there.
    pub fn call_program(&self, env: &Env<'_>, function: usize, argument: u64) -> u64 {
        let context = Context(self.host);
        let entry = context.with(|host| host.image.bpf().and_then(|image| image.entry(function)));
        let entry = entry.expect("the program is linked");
        // SAFETY: the environment outlives the call, and is forgotten after it.
        unsafe { context.choose(std::ptr::from_ref(env).cast()) };
        context.with(|host| host.current().begin(false));
        // SAFETY: the host lives as long as we do; the code is the program's.
        let result = unsafe {
            trap::enter(&(*self.host).foreign);
            context.execute(entry, [argument, 0, 0, 0])
        };
        context.with(|host| {
            trap::leave(&host.foreign);
            host.env = std::ptr::null();
        });
        result
    }

    #[inline(always)]
    fn run<const AUDITED: bool>(&self, env: &Env<'_>, op: &OpCall, nested: bool) -> i64 {
        let (context, cpu) = (Context(self.host), env.cpu);
        // SAFETY: the environment outlives the call, and is forgotten after it: where an op of this CPU waits, further
        // up this stack, `ask` puts its own back.
        unsafe { context.choose(std::ptr::from_ref(env).cast()) };
        context.with(|host| {
            host.current().begin(nested);
            cpu.charge_ns(host.op_ns);
            if AUDITED {
                host.begin_watched(env, op);
            }
        });
        // SAFETY: the host lives as long as we do.
        unsafe { trap::enter(&(*self.host).foreign) };
        let result = ops::call(context, op);
        context.with(|host| {
            trap::leave(&host.foreign);
            host.env = std::ptr::null();
            if AUDITED {
                host.end_watched(cpu.id.index(), op);
            }
        });
        result
    }
}
impl Drop for Runner {
    fn drop(&mut self) {
        // SAFETY: `new` made the box. The image goes last, being the last member.
        drop(unsafe { Box::from_raw(self.host) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kconfig::Values;
    use crate::layout::tests::compiled;

    #[test]
    #[should_panic(expected = "the host is borrowed twice")]
    fn who_looks_at_the_host_cannot_look_again() {
        let object = NativeObject::from_elf("copies", "", compiled("copies")).unwrap();
        let machine = Machine::builtin("laptop").unwrap();
        let values = Values::new(&machine, KernelVersion::V7_2);
        let settings = object.settings(&[]).unwrap();
        let image =
            Image::load(&object, &settings, &values, (&machine, KernelVersion::V7_2)).unwrap();
        let runner = Runner::new(image, &machine, KernelVersion::V7_2, None).unwrap();
        assert!(runner.with(|host| host.nr_cpus) > 0);
        runner.with(|_| runner.with(|host| host.nr_cpus));
    }
}
