//! The programs of a loader that run before its scheduler is attached: on a host without a simulation.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use schedlab_bpf::transcript::{Step, Transcript, World, map};
use schedlab_engine::KernelVersion;
use schedlab_engine::policy::{Answer, Env, Reply, Request, Shared, ThisCpu};
use schedlab_fiber::{Fibers, State, Switch};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet};
use schedlab_workload::Rng;

use crate::bpf::{KernelTypes, Places, Recording, step_map};
use crate::host::runner::Runner;
use crate::image::{Image, LoadError};
use crate::kconfig::Values;
use crate::layout::NR_CPUS_MAX;
use crate::maps::{EINVAL, Map};
use crate::memory::PAGE;
use crate::object::NativeObject;
use crate::options::Settings;

/// Carries all steps of a recording out on the host of a run.
pub fn replay(recording: &Recording, runner: &Runner, machine: &Machine) -> Result<(), String> {
    let stage = Stage::new(machine);
    for step in &recording.steps {
        let (status, _) = stage.carry_out(runner, &recording.places, step)?;
        if status < 0 {
            return Err(refused(step, status));
        }
    }
    Ok(())
}

/// Says that what worked in the loader's run does not in another one.
fn refused(step: &Step, status: i64) -> String {
    let what = match step {
        Step::Update { map, key, .. } => format!("sets the key {key:02x?} of its map {map}"),
        Step::Delete { map, key } => format!("deletes the key {key:02x?} of its map {map}"),
        _ => "changes a map".to_owned(),
    };
    let error = std::io::Error::from_raw_os_error(-status as i32);
    format!("its loader {what}, which fails in this run: {error}")
}

/// The kernel around programs that run before a scheduler is attached: it has CPUs, and no tasks that they could see.
struct Before<'s> {
    switch: &'s Switch,
    nr_cpus: usize,
    /// Why the run was given up.
    fault: RefCell<Option<String>>,
}

impl Answer for Before<'_> {
    fn answer(&self, request: Request) -> Reply {
        /// No scheduler is there that could have it.
        const ENODEV: i64 = -19;
        match request {
            Request::OnlineMask => Reply::Mask(CpuSet::all(self.nr_cpus)),
            Request::IdleMask { .. } => Reply::Mask(CpuSet::empty(self.nr_cpus)),
            Request::OwnTask | Request::CpuCurr { .. } | Request::TaskFromPid { .. } => {
                Reply::Task(None)
            }
            Request::LockedRq => Reply::Int(-1),
            Request::CreateDsq { .. } | Request::DsqNrQueued { .. } => Reply::Int(ENODEV),
            Request::Sync
            | Request::Lock { .. }
            | Request::LockUnlessDeadlock { .. }
            | Request::TryLock { .. }
            | Request::Unlock { .. }
            | Request::CpuperfSet { .. }
            | Request::Kick { .. }
            | Request::Error { .. } => Reply::Done,
            other => {
                let request = format!("{other:?}");
                let name = request.split([' ', '{', '(']).next().unwrap_or_default();
                Answer::fault(
                    self,
                    format!("a program that runs before the scheduler is attached asks for {name}"),
                )
            }
        }
    }

    fn fault(&self, message: String) -> ! {
        *self.fault.borrow_mut() = Some(message);
        loop {
            // Nobody resumes it.
            self.switch.suspend();
        }
    }
}

/// The CPU on which programs run before a scheduler is attached.
struct Stage {
    cpu: ThisCpu,
    shared: Shared,
    horizon: Cell<u64>,
    nr_cpus: usize,
}

impl Stage {
    fn new(machine: &Machine) -> Stage {
        Stage {
            cpu: ThisCpu::new(CpuId(0)),
            shared: Shared {
                cache: RefCell::new(CacheModel::new(machine)),
                random: RefCell::new(Rng::new(0)),
            },
            horizon: Cell::new(u64::MAX),
            nr_cpus: machine.topology.nr_cpus(),
        }
    }

    /// Carries a step out; answers with the loader's answer, and of a run with the context behind it.
    fn carry_out(
        &self,
        runner: &Runner,
        places: &Places,
        step: &Step,
    ) -> Result<(i64, Vec<u8>), String> {
        let status = match step {
            Step::Contents { map, patches } => {
                for (at, bytes) in patches {
                    put(runner, places, *map, *at, bytes);
                }
                0
            }
            Step::Update {
                map,
                key,
                value,
                flags,
            } => match places.maps.get(map) {
                Some(&map) => runner.with(|host| match host.maps.get_mut(map) {
                    Some(of) if of.has_maps() => {
                        let inner = step_map(value).and_then(|inner| places.maps.get(&inner));
                        match inner {
                            Some(&inner) => host.maps.put_map(map, key, inner, *flags),
                            None => EINVAL,
                        }
                    }
                    Some(of) => of.set(key, value, *flags),
                    None => 0,
                }),
                // No program that runs uses it.
                None => 0,
            },
            Step::Delete { map, key } => match places.maps.get(map) {
                Some(&map) => runner.with(|host| match host.maps.get_mut(map) {
                    Some(map) => map.delete(key),
                    None => 0,
                }),
                None => 0,
            },
            Step::Run { program, context } => {
                let function = places
                    .programs
                    .get(program)
                    .ok_or("a program was run that is not there")?;
                let (result, context) = self.run(runner, *function, context)?;
                return Ok((result.into(), context));
            }
        };
        Ok((status, Vec::new()))
    }

    fn run(
        &self,
        runner: &Runner,
        function: usize,
        context: &[u8],
    ) -> Result<(u32, Vec<u8>), String> {
        let switch = Switch::default();
        let before = Before {
            switch: &switch,
            nr_cpus: self.nr_cpus,
            fault: RefCell::new(None),
        };
        let env = Env {
            cpu: &self.cpu,
            shared: &self.shared,
            horizon: &self.horizon,
            kernel: &before,
        };
        // Aligned as the kernel's copy is.
        let mut words = vec![0u64; context.len().div_ceil(8).max(1)];
        for (word, bytes) in words.iter_mut().zip(context.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        let at = words.as_mut_ptr() as u64;
        let result = Cell::new(0);
        let state = {
            let mut fibers = Fibers::new(&switch);
            let body = || result.set(runner.call_program(&env, function, at) as u32);
            let fiber = fibers.spawn(body).map_err(|error| error.to_string())?;
            fibers.resume(fiber)
        };
        // A run has caches of its own.
        runner.with(|host| host.bpf.forget_lines());
        match (state, before.fault.take()) {
            (State::Done, None) => {}
            (State::Trapped(trap), _) => return Err(runner.describe(&self.cpu, &trap)),
            (_, Some(fault)) => return Err(fault),
            (state, None) => {
                return Err(format!(
                    "a program that runs before the scheduler is attached has stopped and does not go on ({state:?})"
                ));
            }
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(context.len());
        Ok((result.get(), bytes))
    }
}

/// Puts what the loader has written into the memory that it shares.
fn put(runner: &Runner, places: &Places, map: usize, at: u64, bytes: &[u8]) {
    runner.with(|host| {
        if let Some(section) = places.sections.get(&map) {
            let program = host.image.object().program.as_ref();
            if let Some(start) = program.and_then(|program| program.placement.section(section)) {
                let place = host.image.pointer(start + at);
                // SAFETY: a section has whole pages, and so has what a loader shares of it.
                unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
        } else if let Some(&index) = places.maps.get(&map)
            && let Some(map) = host.maps.get_mut(index)
        {
            map.put(at as usize, bytes);
        }
    });
}

/// A host for the programs that a loader runs while it is recorded.
pub struct Recorder<'m> {
    name: String,
    types: Arc<KernelTypes>,
    machine: &'m Machine,
    version: KernelVersion,
    ready: Option<Ready>,
}

/// It is made again when the loader has created more.
struct Ready {
    runner: Runner,
    stage: Stage,
    places: Places,
    /// Steps that are carried out.
    done: usize,
    /// Maps and programs that there were.
    size: (usize, usize),
}

impl<'m> Recorder<'m> {
    pub fn new(
        name: &str,
        types: &Arc<KernelTypes>,
        machine: &'m Machine,
        version: KernelVersion,
    ) -> Recorder<'m> {
        Recorder {
            name: name.to_owned(),
            types: Arc::clone(types),
            machine,
            version,
            ready: None,
        }
    }

    /// Carries out the new steps; answers with what the last one answers.
    fn follow(&mut self, transcript: &Transcript) -> Result<(i64, Vec<u8>), String> {
        let size = (transcript.maps.len(), transcript.programs.len());
        if self.ready.as_ref().is_none_or(|ready| ready.size != size) {
            self.ready = None;
            self.ready = Some(self.make(transcript, size)?);
        }
        let ready = self.ready.as_mut().expect("made above");
        let mut answer = (0, Vec::new());
        for step in &transcript.steps[ready.done..] {
            answer = ready.stage.carry_out(&ready.runner, &ready.places, step)?;
            // The loader takes a step back that fails.
            ready.done += usize::from(answer.0 >= 0);
        }
        Ok(answer)
    }

    fn make(&self, transcript: &Transcript, size: (usize, usize)) -> Result<Ready, String> {
        let object = NativeObject::from_transcript(&self.name, transcript, &self.types)
            .map_err(|errors| errors.to_string())?;
        let recording = object
            .program
            .as_ref()
            .and_then(|program| program.recording.as_ref());
        let recording = recording.expect("it comes from a transcript");
        let places = recording.places.clone();
        let runner =
            runner(&object, self.machine, self.version).map_err(|error| error.to_string())?;
        settle(&runner, &places, transcript)?;
        Ok(Ready {
            runner,
            stage: Stage::new(self.machine),
            places,
            done: 0,
            size,
        })
    }
}

/// The arena lies where the loader maps its own: programs hand the loader pointers into it.
fn settle(runner: &Runner, places: &Places, transcript: &Transcript) -> Result<(), String> {
    runner.with(|host| {
        for (number, record) in transcript.maps.iter().enumerate() {
            let wanted = record.extra;
            let is_aligned = wanted > 0 && wanted.trailing_zeros() >= 32;
            if let (map::ARENA, true, Some(&index)) = (record.kind, is_aligned, places.maps.get(&number)) {
                let arena = host.maps.get_mut(index).expect("it has a place");
                arena.settle(wanted).map_err(|error| {
                    format!("the arena finds no room at {wanted:#x}, where the loader has its own: {error}")
                })?;
                host.bpf.arena = wanted;
            }
        }
        Ok(())
    })
}

/// A host of an object, on which nothing has run.
fn runner(
    object: &Arc<NativeObject>,
    machine: &Machine,
    version: KernelVersion,
) -> Result<Runner, LoadError> {
    let policy = || object.name().to_owned();
    let cpus = machine.topology.nr_cpus();
    if cpus > NR_CPUS_MAX {
        return Err(LoadError::Cpus {
            policy: policy(),
            cpus,
        });
    }
    let values = Values::new(machine, version);
    let image = Image::load(object, &Settings::default(), &values, (machine, version))?;
    Runner::new(image, machine, version, None).map_err(|error| LoadError::System {
        policy: policy(),
        reason: error.to_string(),
    })
}

impl World for Recorder<'_> {
    fn apply(&mut self, transcript: &Transcript) -> Result<i64, String> {
        Ok(self.follow(transcript)?.0)
    }

    fn run(&mut self, transcript: &Transcript) -> Result<(u32, Vec<u8>), String> {
        let (result, context) = self.follow(transcript)?;
        Ok((result as u32, context))
    }

    fn lookup(
        &mut self,
        transcript: &Transcript,
        map: usize,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, String> {
        self.follow(transcript)?;
        Ok(self.of_map(map, |map| map.get(key)).flatten())
    }

    fn next_key(
        &mut self,
        transcript: &Transcript,
        map: usize,
        key: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, String> {
        self.follow(transcript)?;
        Ok(self.of_map(map, |map| map.key_behind(key)).flatten())
    }

    fn contents(&mut self, map: usize) -> Vec<(u64, Vec<u8>)> {
        let Some(ready) = &self.ready else {
            return Vec::new();
        };
        let Some(section) = ready.places.sections.get(&map) else {
            return self.of_map(map, |map| map.parts()).unwrap_or_default();
        };
        ready.runner.with(|host| {
            let program = host
                .image
                .object()
                .program
                .as_ref()
                .expect("it is an object");
            let start = program.placement.section(section).expect("it has a place");
            let sections = program.elf.data.iter();
            let bytes = sections
                .filter(|it| it.name == *section)
                .map(|it| it.bytes.len());
            let bytes = bytes.sum::<usize>().next_multiple_of(PAGE);
            // SAFETY: a section has whole pages.
            let bytes = unsafe { std::slice::from_raw_parts(host.image.pointer(start), bytes) };
            vec![(0, bytes.to_vec())]
        })
    }
}

impl Recorder<'_> {
    fn of_map<R>(&self, map: usize, f: impl FnOnce(&mut Map) -> R) -> Option<R> {
        let ready = self.ready.as_ref()?;
        let index = *ready.places.maps.get(&map)?;
        ready.runner.with(|host| host.maps.get_mut(index).map(f))
    }
}
