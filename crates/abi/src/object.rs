//! A compiled policy: what is in it, read once, before any copy of it is loaded.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use schedlab_bpf::transcript::Transcript;

use crate::bpf::{self, KernelTypes, LeftOut, decisions::Decisions};
use crate::dwarf::{Shape, Types, Variable};
use crate::kconfig::{self, Declared, Relocation};
use crate::map_def::{self, MapDef};
use crate::options::{self, OptionError, OptionKind, PolicyOption, Settings};
use crate::placed::{Placed, place, place_globals};
use crate::signature;
use crate::{ObjectError, ObjectErrors};

/// A policy compiled for the virtual kernel. Cheap to share; each run loads a copy of its own.
#[derive(Debug)]
pub struct NativeObject {
    name: String,
    elf: Vec<u8>,
    /// The part of the file that is mapped; the rest is debug information.
    pub(crate) image_bytes: usize,
    /// Bytes from the lowest to the highest mapped address.
    pub(crate) span: u64,
    /// Where its code lies.
    pub(crate) code: Range<u64>,
    pub(crate) host_pointer: u64,
    pub(crate) ops: u64,
    ops_name: String,
    /// The source that defines it: the policy's own file.
    file: String,
    maps: Vec<MapDef>,
    options: Vec<PolicyOption>,
    pub(crate) placed: Vec<Placed>,
    /// Where the code of sleepable ops lies.
    sleepable: Vec<Range<u64>>,
    globals: Vec<(String, u64, usize)>,
    /// Lists the relocations whose symbols the loader provides.
    pub(crate) relocations: Vec<Relocation>,
    /// The variables of the kernel's configuration as it declares them.
    pub(crate) kconfig: Vec<Declared>,
    left_out: Vec<LeftOut>,
    /// Its instructions, if it is an object compiled for BPF.
    pub(crate) program: Option<Box<bpf::Program>>,
}

/// Functions that compilers call where the source calls none: copies and comparisons of structures.
const OF_THE_COMPILER: [&[u8]; 4] = [b"memcpy", b"memmove", b"memset", b"memcmp"];

/// Refuses undefined symbols, and functions of the C library: these link here, but a kernel does not have them.
fn check_calls<'a>(
    policy: &'a str,
    file: &'a object::File<'_>,
) -> impl Iterator<Item = ObjectError> {
    file.dynamic_symbols()
        // A weak one may be missing: called all the same, it is a fault of the policy.
        .filter(|symbol| symbol.is_undefined() && !symbol.is_weak())
        .filter_map(|symbol| symbol.name_bytes().ok())
        .filter(|name| !name.is_empty() && !OF_THE_COMPILER.contains(name))
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .filter(|name| !kconfig::is_known(name))
        .map(|name| match kconfig::is_variable(&name) {
            true => ObjectError::Kconfig {
                policy: policy.to_owned(),
                variable: name,
            },
            false => ObjectError::Foreign {
                policy: policy.to_owned(),
                function: name,
            },
        })
}

/// Refuses what the dynamic linker calls: it would run in no simulation, where nothing ends it.
fn check_constructors(policy: &str, file: &object::File<'_>) -> Result<(), ObjectError> {
    /// `STT_GNU_IFUNC`: a function that chooses another one.
    const IFUNC: u8 = 10;
    let refused = |what| {
        Err(ObjectError::Constructor {
            policy: policy.to_owned(),
            what,
        })
    };
    let instrumented = is_instrumented(file);
    for section in file.sections() {
        match section.name().unwrap_or_default() {
            ".init_array" if instrumented => {}
            ".init" | ".init_array" | ".preinit_array" | ".ctors" => {
                return refused("a constructor");
            }
            ".fini" | ".fini_array" | ".dtors" => return refused("a destructor"),
            _ => {}
        }
    }
    // Linkers enter functions of certain names there, too.
    let dynamic = file.section_by_name(".dynamic");
    let dynamic = dynamic.and_then(|section| section.data().ok());
    let mut entries = dynamic.unwrap_or_default().chunks_exact(16);
    let call = entries.find_map(|entry| dynamic_call(entry, instrumented));
    if let Some(what) = call {
        return refused(what);
    }
    let mut symbols = file.symbols();
    let is_ifunc = |flags| matches!(flags, object::SymbolFlags::Elf { st_info, .. } if st_info.0 & 15 == IFUNC);
    match symbols.any(|symbol| is_ifunc(symbol.flags())) {
        true => refused("an indirect function"),
        false => Ok(()),
    }
}

/// Whether its one constructor belongs to ThreadSanitizer's instrumentation. It calls `__tsan_init()` of
/// include/native/scx/audit.h and does nothing.
fn is_instrumented(file: &object::File<'_>) -> bool {
    let one = |section: object::Section<'_, '_>| section.size() == 8;
    file.section_by_name(".init_array").is_some_and(one)
        && file
            .symbols()
            .any(|symbol| symbol.name() == Ok("tsan.module_ctor"))
}

/// The function that an entry of the dynamic section makes the dynamic linker call (`DT_INIT` and its kin).
fn dynamic_call(entry: &[u8], instrumented: bool) -> Option<&'static str> {
    const DT_INIT_ARRAY: u64 = 25;
    let tag = entry.first_chunk().map(|tag| u64::from_le_bytes(*tag));
    match tag? {
        DT_INIT_ARRAY if instrumented => None,
        12 | 25 | 32 => Some("a constructor"),
        13 | 26 => Some("a destructor"),
        _ => None,
    }
}

impl NativeObject {
    /// Reads a compiled policy.
    ///
    /// # Errors
    /// Returns all faults that it finds: no ELF object with debug information, a symbol that the virtual kernel does not
    /// have, a constructor, not exactly one ops table, an op that the kernel could not call, a licence that it does not
    /// accept, or a map of an unknown kind.
    pub fn from_elf(
        name: &str,
        source: &str,
        elf: Vec<u8>,
    ) -> Result<Arc<NativeObject>, ObjectErrors> {
        let mut errors = Vec::new();
        match NativeObject::read(name, source, elf, &mut errors) {
            Ok(object) if errors.is_empty() => Ok(Arc::new(object)),
            Ok(_) => Err(ObjectErrors(errors)),
            Err(error) => {
                errors.insert(0, error);
                Err(ObjectErrors(errors))
            }
        }
    }

    /// Adds the faults that it finds to `errors`. Returns an error itself where no object remains to be read.
    fn read(
        name: &str,
        source: &str,
        mut elf: Vec<u8>,
        errors: &mut Vec<ObjectError>,
    ) -> Result<NativeObject, ObjectError> {
        let unreadable = |reason: String| ObjectError::Unreadable {
            policy: name.to_owned(),
            reason,
        };
        let file = object::File::parse(&*elf).map_err(|error| unreadable(error.to_string()))?;
        let types = Types::read(&elf).map_err(|error| unreadable(error.to_string()))?;
        let variables = types.variables();

        let mut image_bytes = 0;
        let mut span = 0;
        for segment in file.segments() {
            let (offset, bytes) = segment.file_range();
            image_bytes = image_bytes.max(offset + bytes);
            span = span.max(segment.address() + segment.size());
        }
        let find = |wanted: &str| variables.iter().find(|variable| variable.name == wanted);
        let host_pointer = find("lab_host").map(|variable| variable.address);
        // Without the header there is no ops table either, and a file that is no policy has neither.
        let ops = ops_table(name, &types, &variables, host_pointer.is_some());
        if host_pointer.is_some() {
            errors.extend(check_calls(name, &file));
            errors.extend(check_constructors(name, &file).err());
            errors.extend(check_license(name, &file).err());
        }
        let mut kconfig = Vec::new();
        let ops_file = ops.as_ref().map_or(name, |ops| ops.file.as_str());
        for declared in kconfig::declared(&file, &types, (ops_file, source)) {
            match declared {
                Ok(declared) => kconfig.push(declared),
                Err((place, variable)) => errors.push(ObjectError::KconfigType {
                    policy: name.to_owned(),
                    place,
                    variable,
                }),
            }
        }
        let mut maps = Vec::new();
        for map in map_def::read(name, &file, &types, &variables) {
            match map {
                Ok(map) => maps.push(map),
                Err(error) => errors.push(error),
            }
        }
        let ops = ops?;
        let host_pointer = host_pointer.ok_or_else(|| {
            unreadable("it was not compiled against include/native, or without -g".to_owned())
        })?;
        if let Shape::Struct(structure) = types.shape(ops.type_at) {
            errors.extend(signature::check(
                name,
                &file,
                &types,
                ops.address,
                structure,
            ));
        }
        let options = policy_options(&file, &types, &variables, source);
        let placed = place(&types, &variables);
        let global = |variable: &Variable| {
            let bytes = types.size(variable.type_at) as usize;
            (variable.name.clone(), variable.address, bytes)
        };
        let globals = variables.iter().map(global).collect();
        let (code, sleepable) = (code(&file), sleepable(&file));
        let (relocations, left_out) = (kconfig::relocations(&file), left_out(&file, &types));
        let bindings = kconfig::bindings(&file);
        kconfig::make_weak(&mut elf, &bindings);
        Ok(NativeObject {
            name: name.to_owned(),
            image_bytes: image_bytes as usize,
            span,
            code,
            host_pointer,
            ops: ops.address,
            ops_name: ops.name.clone(),
            file: ops.file.clone(),
            maps,
            options,
            placed,
            sleepable,
            globals,
            relocations,
            kconfig,
            left_out,
            program: None,
            elf,
        })
    }

    /// Reads an object that was compiled for BPF. `types` are the virtual kernel's.
    ///
    /// # Errors
    /// As [`NativeObject::from_elf`].
    pub fn from_bpf(
        name: &str,
        elf: Vec<u8>,
        types: &Arc<KernelTypes>,
    ) -> Result<Arc<NativeObject>, ObjectErrors> {
        let parts = vec![(name.to_owned(), elf)];
        NativeObject::from_joined(name, parts, &Decisions::default(), types)
    }

    /// Joins objects that were compiled for BPF, each with its name, and checks the decisions of a loader.
    ///
    /// # Errors
    /// As [`NativeObject::from_elf`], or if they cannot be joined or a decision does not fit.
    pub fn from_joined(
        name: &str,
        mut parts: Vec<(String, Vec<u8>)>,
        decisions: &Decisions,
        types: &Arc<KernelTypes>,
    ) -> Result<Arc<NativeObject>, ObjectErrors> {
        let mut errors = Vec::new();
        match bpf::read(name, &parts, decisions, types, &mut errors) {
            Ok(facts) => {
                errors.extend(check_license_text(name, &facts.program.elf.license).err());
                match errors.is_empty() {
                    true => Ok(Arc::new(NativeObject::of_facts(
                        name,
                        parts.remove(0).1,
                        facts,
                    ))),
                    false => Err(ObjectErrors(errors)),
                }
            }
            Err(error) => {
                errors.insert(0, error);
                Err(ObjectErrors(errors))
            }
        }
    }

    /// Makes an object of what a scheduler's own loader has loaded.
    ///
    /// # Errors
    /// As [`NativeObject::from_elf`].
    pub fn from_transcript(
        name: &str,
        transcript: &Transcript,
        types: &Arc<KernelTypes>,
    ) -> Result<Arc<NativeObject>, ObjectErrors> {
        let mut errors = Vec::new();
        match bpf::recorded(name, transcript, types, &mut errors) {
            Ok(facts) if errors.is_empty() => {
                Ok(Arc::new(NativeObject::of_facts(name, Vec::new(), facts)))
            }
            Ok(_) => Err(ObjectErrors(errors)),
            Err(error) => {
                errors.insert(0, error);
                Err(ObjectErrors(errors))
            }
        }
    }

    fn of_facts(name: &str, elf: Vec<u8>, facts: bpf::Facts) -> NativeObject {
        NativeObject {
            name: name.to_owned(),
            image_bytes: 0,
            span: facts.program.placement.bytes,
            code: 0..0,
            host_pointer: 0,
            ops: 0,
            ops_name: facts.ops_name,
            file: facts.file,
            maps: facts.maps,
            options: facts.options,
            placed: place_globals(&facts.globals),
            sleepable: Vec::new(),
            globals: facts.globals,
            relocations: Vec::new(),
            left_out: facts.program.left_out(),
            kconfig: Vec::new(),
            program: Some(Box::new(facts.program)),
            elf,
        }
    }

    /// The name it was asked for with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variable of its ops table.
    pub fn ops_name(&self) -> &str {
        &self.ops_name
    }

    /// Its options: the `const volatile` globals, in the order of the source.
    pub fn options(&self) -> &[PolicyOption] {
        &self.options
    }

    /// Returns the programs beside its ops, which a simulation leaves out.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Its maps.
    pub fn maps(&self) -> &[MapDef] {
        &self.maps
    }

    /// Reads values against the policy's options.
    ///
    /// # Errors
    /// If an option is unknown, given twice, or does not take the value.
    pub fn settings(&self, given: &[(String, String)]) -> Result<Settings, OptionError> {
        options::read(&self.name, &self.options, given)
    }

    /// The whole file, debug information included.
    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// The source line of an address in the object and those that it is called from, the innermost first, as
    /// `file:line (function)`: the first of the policy's own file. Without one, the first.
    pub fn line_of(&self, addresses: &[u64]) -> Option<String> {
        let frames = self.frames_of(addresses);
        let own = frames.iter().find(|(file, _)| self.is_own(file));
        let (_, line) = own.or(frames.first())?;
        Some(line.clone())
    }

    /// The same, and in which line of a header that is.
    pub(crate) fn lines_of(&self, addresses: &[u64]) -> Option<String> {
        let frames = self.frames_of(addresses);
        let (file, innermost) = frames.first()?;
        let line = self.line_of(addresses)?;
        Some(match self.is_own(file) || line == *innermost {
            true => line,
            false => format!("{line}, in {innermost}"),
        })
    }

    /// Whether a file is the one that defines the ops table.
    fn is_own(&self, file: &str) -> bool {
        Path::new(file).file_name() == Path::new(&self.file).file_name()
    }

    fn frames_of(&self, addresses: &[u64]) -> Vec<(String, String)> {
        let frames = addresses.iter().filter_map(|at| self.frames(*at));
        frames.flatten().collect()
    }

    /// Returns the source line of an address in the object as the policy's author knows it: the line of the innermost
    /// function which is not in a header, and of the functions inlined there.
    pub(crate) fn line_in_policy(&self, address: u64) -> Option<String> {
        let place = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let frames = self.frames(address)?;
        let (_, innermost) = frames.first()?;
        let own = frames.iter().find(|(file, _)| !file.ends_with(".h"));
        Some(match own {
            Some((_, text)) if text != innermost => {
                format!("{} (in {})", place(text), place(innermost))
            }
            _ => place(innermost),
        })
    }

    /// The source lines of an address in the object, from the innermost inlined function to the outermost: each its
    /// file, and `file:line (function)`.
    fn frames(&self, address: u64) -> Option<Vec<(String, String)>> {
        if let Some(program) = &self.program {
            return Some(vec![program.frame(address)?]);
        }
        let file = object::File::parse(&*self.elf).ok()?;
        let section = |id: gimli::SectionId| -> Result<_, gimli::Error> {
            let data = file
                .section_by_name(id.name())
                .and_then(|section| section.data().ok())
                .unwrap_or_default();
            Ok(gimli::EndianSlice::new(data, gimli::LittleEndian))
        };
        let context = addr2line::Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()?;
        let mut frames = context.find_frames(address).skip_all_loads().ok()?;
        // Inlined frames of the shadow headers help no reader, unless there are no others.
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else {
                continue;
            };
            let (Some(path), Some(line)) = (location.file, location.line) else {
                continue;
            };
            let function = frame
                .function
                .and_then(|name| name.raw_name().ok().map(String::from));
            let path = path.trim_start_matches("./");
            let text = match function {
                Some(function) => format!("{path}:{line} ({function})"),
                None => format!("{path}:{line}"),
            };
            let found = match path.contains("/native/") {
                true => &mut ours,
                false => &mut others,
            };
            found.push((path.to_owned(), text));
        }
        others.extend(ours);
        Some(others)
    }

    /// The global variable at an address of the object, and the offset in it.
    pub(crate) fn global_at(&self, at: u64) -> Option<(&str, u64)> {
        self.globals.iter().find_map(|(name, address, bytes)| {
            let offset = at.checked_sub(*address)?;
            (offset < *bytes as u64).then_some((name.as_str(), offset))
        })
    }

    /// The types that the object's debug information has.
    pub(crate) fn types(&self) -> Option<Types> {
        Types::read(&self.elf).ok()
    }

    /// The field at an offset of a structure or of what a typedef means, as C writes it.
    pub(crate) fn field_of(&self, name: &str, offset: u64) -> Option<String> {
        let types = Types::read(&self.elf).ok()?;
        let field = types.field_at(types.named(name)?, offset);
        (!field.is_empty()).then_some(field)
    }

    /// The field at an offset of a global variable, with what comes before it: `.list.head`, `[3].lock`.
    pub(crate) fn field_of_variable(&self, name: &str, offset: u64) -> Option<String> {
        let types = Types::read(&self.elf).ok()?;
        let variables = types.variables();
        let variable = variables.iter().find(|variable| variable.name == name)?;
        let field = types.field_at(variable.type_at, offset);
        match field.is_empty() || field.starts_with('[') {
            true => Some(field),
            false => Some(format!(".{field}")),
        }
    }

    /// The field at an offset of a map's value.
    pub(crate) fn field_of_value(&self, map: &str, offset: u64) -> Option<String> {
        let types = Types::read(&self.elf).ok()?;
        let variables = types.variables();
        let variable = variables.iter().find(|variable| variable.name == map)?;
        let Shape::Struct(structure) = types.shape(variable.type_at) else {
            return None;
        };
        let members = types.members(structure);
        let (_, _, pointer) = *members.iter().find(|(name, ..)| *name == "value")?;
        let Shape::Pointer(Some(value)) = types.shape(pointer) else {
            return None;
        };
        let field = types.field_at(value, offset);
        (!field.is_empty()).then_some(field)
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        let file = object::File::parse(&*self.elf).ok()?;
        let mut symbols = file.symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name))?;
        Some(symbol.address())
    }

    /// Whether a sleepable op begins at an address of the object.
    pub(crate) fn is_sleepable(&self, address: u64) -> bool {
        match &self.program {
            Some(program) => program.is_sleepable(address),
            None => self.sleepable.iter().any(|code| code.contains(&address)),
        }
    }

    /// Address and size of a global variable.
    pub(crate) fn global(&self, name: &str) -> Option<(u64, usize)> {
        let mut globals = self.globals.iter();
        let (_, address, bytes) = globals.find(|(known, ..)| known == name)?;
        Some((*address, *bytes))
    }

    /// The modelled address of a place in the object, if a global variable lies there.
    pub(crate) fn modelled(&self, offset: u64) -> Option<u64> {
        let after = self
            .placed
            .partition_point(|placed| placed.address <= offset);
        let placed = self.placed.get(after.checked_sub(1)?)?;
        let within = offset - placed.address;
        (within < placed.bytes).then(|| placed.modelled + within)
    }
}

/// Finds the programs that a kernel or a loader would call and the virtual kernel does not. Leaves out sections that
/// begin with `?`: libbpf loads these on demand only.
fn left_out(file: &object::File<'_>, types: &Types) -> Vec<LeftOut> {
    let is_program = |name: &str| !name.starts_with(['.', '?']) && !name.starts_with("struct_ops");
    let functions = types.functions();
    let mut found = Vec::new();
    for section in file.sections() {
        let Some(name) = section.name().ok().filter(|name| is_program(name)) else {
            continue;
        };
        let inside = file.symbols().filter(|symbol| {
            symbol.kind() == object::SymbolKind::Text
                && symbol.section_index() == Some(section.index())
        });
        for symbol in inside {
            let program = symbol.name().unwrap_or_default();
            let source = functions.iter().find(|it| it.name == program);
            let place =
                source.map(|it| format!("{}:{}", it.file.trim_start_matches("./"), it.line));
            let line = source.map_or(0, |it| it.line);
            found.push((
                line,
                LeftOut {
                    program: program.to_owned(),
                    section: name.to_owned(),
                    place: place.unwrap_or_default(),
                },
            ));
        }
    }
    found.sort_by(|(a, one), (b, other)| (a, &one.place).cmp(&(b, &other.place)));
    found.into_iter().map(|(_, program)| program).collect()
}

/// From the first to the last address of what is code.
fn code(file: &object::File<'_>) -> Range<u64> {
    let sections = file.sections();
    let code = sections.filter(|section| section.kind() == object::SectionKind::Text);
    let ranges = code.map(|section| section.address()..section.address() + section.size());
    ranges
        .reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
        .unwrap_or_default()
}

/// The sections that `BPF_STRUCT_OPS_SLEEPABLE()` makes.
fn sleepable(file: &object::File<'_>) -> Vec<Range<u64>> {
    let is_sleepable = |section: &object::Section<'_, '_>| {
        section
            .name()
            .is_ok_and(|name| name == "struct_ops.s" || name.starts_with("struct_ops.s/"))
    };
    file.sections()
        .filter(is_sleepable)
        .map(|section| section.address()..section.address() + section.size())
        .collect()
}

/// Licences that `license_is_gpl_compatible()` takes (include/linux/license.h).
const GPL_COMPATIBLE: [&str; 6] = [
    "GPL",
    "GPL v2",
    "GPL and additional rights",
    "Dual BSD/GPL",
    "Dual MIT/GPL",
    "Dual MPL/GPL",
];

fn check_license(policy: &str, file: &object::File<'_>) -> Result<(), ObjectError> {
    let section = file.section_by_name("license");
    let bytes = section
        .and_then(|section| section.data().ok())
        .unwrap_or_default();
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    check_license_text(policy, &String::from_utf8_lossy(text))
}

fn check_license_text(policy: &str, license: &str) -> Result<(), ObjectError> {
    if GPL_COMPATIBLE.contains(&license) {
        return Ok(());
    }
    Err(ObjectError::License {
        policy: policy.to_owned(),
        found: if license.is_empty() {
            "it names no licence".to_owned()
        } else {
            format!("its licence is '{license}'")
        },
    })
}

fn ops_table<'a>(
    policy: &str,
    types: &Types,
    variables: &'a [Variable],
    has_header: bool,
) -> Result<&'a Variable, ObjectError> {
    let of_struct = |name: &str| -> Vec<&'a Variable> {
        let matching = variables.iter().filter(|variable| {
            matches!(types.shape(variable.type_at), Shape::Struct(at)
                if types.entry(at).name.as_deref() == Some(name))
        });
        matching.collect()
    };
    match of_struct("sched_ext_ops").as_slice() {
        [ops] => Ok(ops),
        [] => Err(ObjectError::Ops {
            policy: policy.to_owned(),
            found: match has_header {
                true => "there is no `struct sched_ext_ops`".to_owned(),
                false => {
                    "there is no `struct sched_ext_ops`: begin with #include <scx/common.bpf.h>"
                        .to_owned()
                }
            },
        }),
        several => Err(ObjectError::Ops {
            policy: policy.to_owned(),
            found: format!(
                "there are {} tables: {}",
                several.len(),
                several
                    .iter()
                    .map(|ops| ops.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        }),
    }
}

fn policy_options(
    file: &object::File<'_>,
    types: &Types,
    variables: &[Variable],
    source: &str,
) -> Vec<PolicyOption> {
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for variable in variables {
        if !types.is_const_volatile(variable.type_at) {
            continue;
        }
        let bytes = types.size(variable.type_at) as u8;
        let kind = match types.shape(variable.type_at) {
            Shape::Bool => OptionKind::Bool,
            Shape::Integer { bytes, signed } => {
                let bits = u32::from(bytes) * 8;
                let (min, max) = if signed {
                    (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
                } else {
                    (0, (1i128 << bits) - 1)
                };
                OptionKind::Integer { min, max }
            }
            Shape::Enum(at) => {
                OptionKind::Choice(schedlab_trace::options::words(&types.enumerators(at)))
            }
            _ => continue,
        };
        let raw = bytes_at(file, variable.address, bytes);
        let signed = matches!(kind, OptionKind::Integer { min, .. } if min < 0);
        let (default, doc) = (number(raw, bytes, signed), comment(&lines, variable));
        found.push(PolicyOption {
            name: variable.name.clone(),
            default,
            kind: options::documented(kind, doc.as_deref(), default),
            doc,
            address: variable.address,
            bytes,
        });
    }
    found
}

/// The little-endian number that the object has at an address; what no section has is zero.
fn bytes_at(file: &object::File<'_>, address: u64, bytes: u8) -> u64 {
    let mut raw = [0u8; 8];
    // Sections that are not loaded (debug information) have address 0 and would match any small address.
    for section in file.sections().filter(|section| section.address() != 0) {
        if let Ok(Some(data)) = section.data_range(address, bytes.into()) {
            raw[..data.len()].copy_from_slice(data);
        }
    }
    u64::from_le_bytes(raw)
}

fn number(raw: u64, bytes: u8, signed: bool) -> i128 {
    let unused = 64 - u32::from(bytes) * 8;
    if signed {
        i128::from(((raw << unused) as i64) >> unused)
    } else {
        i128::from(raw)
    }
}

/// The comment at the end of the variable's line, or else the block right above it.
fn comment(lines: &[&str], variable: &Variable) -> Option<String> {
    let index = (variable.line as usize).checked_sub(1)?;
    let line = lines.get(index)?;
    if !line.contains(&variable.name) {
        return None;
    }
    let strip = |text: &str| {
        let text = text.trim().trim_start_matches("/*").trim_end_matches("*/");
        text.trim().trim_start_matches('*').trim().to_owned()
    };
    if let Some(at) = line.find("/*") {
        return Some(strip(&line[at..])).filter(|text| !text.is_empty());
    }
    if !lines.get(index.checked_sub(1)?)?.trim_end().ends_with("*/") {
        return None;
    }
    let mut block: Vec<String> = Vec::new();
    for above in lines[..index].iter().rev() {
        block.push(strip(above));
        if above.trim_start().starts_with("/*") {
            break;
        }
    }
    block.reverse();
    let text = block.join(" ").trim().to_owned();
    (!text.is_empty()).then_some(text)
}
