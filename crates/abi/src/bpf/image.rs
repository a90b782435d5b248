//! A run's own data of an object: the variables of its maps, its global variables, the values of the kernel's configuration.

use std::sync::Arc;

use schedlab_bpf::elf::Link;
use schedlab_bpf::translate::Entry;
use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;

use super::expression::Place;
use super::{CODE, Program, Translated};
use crate::kconfig::Values;
use crate::layout::Ops;
use crate::map_def::{self, MapDef};
use crate::memory::{PAGE, Reservation};
use crate::options::{PolicyOption, Settings};

/// The data of one run, and the code that all runs share.
pub struct Image {
    data: Reservation,
    code: Arc<Translated>,
    /// Comes in place of the flags in the table.
    flags: Option<u64>,
}

/// The maps of a run before it begins.
#[derive(Default)]
pub struct Sized {
    pub maps: Vec<MapDef>,
    /// Maps that lie in maps and have no variable.
    pub inner: Vec<MapDef>,
    /// Of maps of maps their numbers, keys, and the numbers of the maps there.
    pub slots: Vec<(usize, u32, usize)>,
}

impl Sized {
    /// Gives the maps of an object the sizes that its loader gives them.
    pub fn new(
        maps: &[MapDef],
        program: Option<&Program>,
        machine: &Machine,
    ) -> std::io::Result<Sized> {
        let mut sized = Sized {
            maps: maps.to_vec(),
            ..Sized::default()
        };
        let Some(program) = program else {
            return Ok(sized);
        };
        let place = Place::of(machine);
        let other = std::io::Error::other;
        for (map, size) in program.decisions.sizes(place).map_err(other)? {
            let def = &mut sized.maps[map];
            def.max_entries = size;
            def.max_entries = map_def::entries_of_libbpf(def);
        }
        if let Some(recording) = &program.recording {
            sized.inner.clone_from(&recording.inner);
            return Ok(sized);
        }
        for (map, def) in sized.maps.iter().enumerate() {
            let slots = def.slots.iter();
            sized
                .slots
                .extend(slots.map(|(key, inner)| (map, *key, *inner)));
        }
        for (map, key, size) in program.decisions.inner(place).map_err(other)? {
            let of = &sized.maps[map];
            let Some(model) = &of.inner else {
                continue;
            };
            let number = sized.maps.len() + sized.inner.len();
            sized.inner.push(MapDef {
                name: format!("{}[{key}]", of.name),
                max_entries: size.unwrap_or(model.max_entries),
                ..(**model).clone()
            });
            sized.slots.push((map, key, number));
        }
        Ok(sized)
    }
}

/// A program that runs beside `ops.init()`.
pub struct Beside {
    /// It runs after it, not before.
    pub after: bool,
    /// Its native code.
    pub entry: usize,
    pub name: String,
    /// Bytes of its argument; empty if it takes none.
    pub argument: Vec<u8>,
    /// The decision that asks for it; empty of one that runs wherever a scheduler is attached.
    pub place: String,
}

impl Image {
    /// Reserves the data and fills them in.
    pub fn load(
        program: &Program,
        (machine, version): (&Machine, KernelVersion),
        options: &[PolicyOption],
        settings: &Settings,
        kconfig: &Values,
    ) -> Result<Image, String> {
        let code = program.translated(version)?;
        let placement = &program.placement;
        let bytes = placement.bytes as usize;
        let data = Reservation::new(bytes, PAGE).map_err(|error| error.to_string())?;
        if !data.open(0, bytes) {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let place = Place::of(machine);
        let decisions = &program.decisions;
        let flags = decisions.flags(place, |name| program.enumerator(version, name))?;
        let image = Image { data, code, flags };
        for section in &program.elf.data {
            if let Some(at) = placement.section(&section.name) {
                image.write(at, &section.bytes);
                for (offset, link) in &section.pointers {
                    let pointer = image.resolve(program, link)?;
                    image.write(at + offset, &pointer.to_le_bytes());
                }
            }
        }
        for (at, name) in &program.enumerators {
            image.write(*at, &program.enumerator(version, name).to_le_bytes());
        }
        let nr_cpus = (machine.topology.nr_cpus() as u64).to_le_bytes();
        for (at, bytes) in &program.cpu_counts {
            image.write(*at, &nr_cpus[..*bytes as usize]);
        }
        decisions.set_variables(place, &mut |at, bytes| image.write(at, bytes))?;
        for &(index, value) in &settings.values {
            let option = &options[index];
            image.write(option.address, &value.to_le_bytes()[..option.bytes.into()]);
        }
        for (at, name) in &placement.kconfig {
            image.write(*at, &kconfig.of(name).unwrap_or(0).to_le_bytes());
        }
        image.seal(program);
        Ok(image)
    }

    /// Constants are read-only in a kernel, too.
    fn seal(&self, program: &Program) {
        let sections = &program.placement.sections;
        for (index, (name, at)) in sections.iter().enumerate() {
            let next = sections.get(index + 1).map(|(_, next)| *next);
            let next = next.or(program.placement.kconfig.first().map(|(at, _)| *at));
            let end = next.unwrap_or(program.placement.bytes);
            if name.starts_with(".rodata") {
                self.data.seal(*at as usize, (end - at) as usize);
            }
        }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        assert!(
            at as usize + bytes.len() <= self.data.len(),
            "it has a place"
        );
        // SAFETY: the place lies in the reservation, which is open, and no policy code runs yet.
        unsafe {
            self.data
                .place(at as usize)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    /// The pointer that a variable begins with.
    fn resolve(&self, program: &Program, link: &Link) -> Result<u64, String> {
        let placement = &program.placement;
        match link {
            Link::Data { section, offset } => {
                let at = placement
                    .section(section)
                    .ok_or("a variable points into the arena")?;
                Ok(self.pointer(at + offset) as u64)
            }
            Link::Map(name) => {
                let index = program.elf.maps.iter().position(|map| map.name == *name);
                let index = index.ok_or("a variable points to a map that is not there")?;
                Ok(self.pointer(index as u64 * 8) as u64)
            }
            Link::Function(function) => Ok(self.address(*function).unwrap_or(0) as u64),
            _ => Ok(0),
        }
    }

    /// The code of a function of the object, if it is linked.
    pub fn entry(&self, function: usize) -> Option<Entry> {
        let origins = &self.code.linked.origins;
        let number = origins.iter().position(|of| *of == function)?;
        Some(self.code.code.entry(number))
    }

    /// Where the data begin.
    pub fn data(&self) -> *mut u8 {
        self.data.place(0)
    }

    /// The code.
    pub fn code(&self) -> &Translated {
        &self.code
    }

    /// The place of an address of the object.
    pub fn pointer(&self, address: u64) -> *mut u8 {
        match address.checked_sub(CODE) {
            Some(code) => code as *mut u8,
            None => self.data.place(address as usize),
        }
    }

    /// The address in the object of a place.
    #[inline]
    pub fn offset(&self, place: usize) -> Option<u64> {
        match self.data.offset(place) {
            Some(offset) => Some(offset as u64),
            None => self
                .code
                .code
                .range()
                .contains(&place)
                .then(|| CODE + place as u64),
        }
    }

    /// The programs that run beside `ops.init()`, in their order.
    pub fn beside(&self, program: &Program, machine: &Machine) -> Result<Vec<Beside>, String> {
        let prepared = program.decisions.prepared(Place::of(machine))?;
        let called = prepared.into_iter().map(|it| Beside {
            after: it.after,
            argument: it.argument,
            place: it.place,
            ..self.program(program, it.function)
        });
        let attach = program.attach.iter();
        let attach = attach.map(|function| self.program(program, *function));
        Ok(called.chain(attach).collect())
    }

    /// A program without an argument, which no decision asks for.
    fn program(&self, program: &Program, function: usize) -> Beside {
        Beside {
            after: false,
            entry: self
                .address(function)
                .expect("programs that run are linked"),
            name: program.elf.functions[function].name.clone(),
            argument: Vec::new(),
            place: String::new(),
        }
    }

    /// Where the native code of a function begins.
    fn address(&self, function: usize) -> Option<usize> {
        self.entry(function).map(|entry| entry as usize)
    }

    /// The table of ops, with the addresses of native code.
    pub fn ops(&self, program: &Program) -> Ops {
        let mut table = program.table.clone();
        for &(at, function) in &program.ops {
            let entry = self.address(function);
            let entry = entry.expect("the functions of ops are linked");
            table[at..at + 8].copy_from_slice(&entry.to_ne_bytes());
        }
        assert_eq!(table.len(), size_of::<Ops>());
        // SAFETY: the table is as large as the structure, and what it has for functions is 0 or their addresses. They are
        // called by `ops::call` alone, which knows that they are programs.
        let mut ops = unsafe { table.as_ptr().cast::<Ops>().read_unaligned() };
        ops.flags = self.flags.unwrap_or(ops.flags);
        ops.timeout_ms = program.decisions.timeout_ms.unwrap_or(ops.timeout_ms);
        ops
    }
}
