//! Puts a policy into the running kernel and takes it out again.
//!
//! The kernel's own safety net stays in place: whatever ends this process closes the link, and
//! with the link the kernel goes back to its own scheduler. What was loaded before is refused,
//! never replaced.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Enum64};
use libbpf_rs::{Link, MapCore as _, MapFlags, MapType, ObjectBuilder, OpenObject};
use schedlab_trace::options::{self, OptionKind};

use crate::bpf_policy::BpfObject;
use crate::error::{Doing as _, Error, Result};
use crate::exit::PolicyExit;
use crate::places;
use crate::scx::{self, State};
use crate::vars::{self, Kind, Variable};
use crate::verdict;
use crate::vm;

/// How long the kernel may take to go back to its own scheduler.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of the kernel's debug dump that are kept (`UEI_DUMP_DFL_LEN` of the scx headers).
const DUMP_LEN: usize = 32_768;

/// Returns whether this process can load a policy into this kernel now.
///
/// # Errors
/// The kernel has no sched_ext, another policy is loaded, or the right to load one is missing.
pub fn ready() -> Result<()> {
    match scx::state() {
        State::Disabled => {}
        State::Absent => {
            return Err(Error::Kernel {
                reason: "there is no /sys/kernel/sched_ext".to_owned(),
            });
        }
        State::Loaded { name, .. } => return Err(Error::AlreadyLoaded { name }),
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Missing {
            what: "the right to load BPF programs".to_owned(),
            remedy: "run as root, for example with sudo".to_owned(),
        });
    }
    Ok(())
}

/// A policy that schedules this machine until it is dropped.
pub struct Loaded {
    name: String,
    ops_name: String,
    object: libbpf_rs::Object,
    link: Option<Link>,
    /// Its object file, for the names in its types.
    types: Vec<u8>,
    exit_info: Option<(Variable, ExitLayout)>,
}

/// Offsets in `struct user_exit_info` of the scx headers.
#[derive(Clone, Copy)]
struct ExitLayout {
    kind: usize,
    code: usize,
    reason: usize,
    message: usize,
}

/// Returns the options of a policy: name, type and default as text.
///
/// # Errors
/// The object is no BPF object.
pub fn options(object: &BpfObject) -> Result<Vec<Variable>> {
    let btf = btf_of(object)?;
    Ok(vars::of_section(&btf, ".rodata")
        .into_iter()
        .filter(is_option)
        .collect())
}

fn is_option(variable: &Variable) -> bool {
    // These names are the scx headers' own.
    !variable.name.starts_with("__")
        && !variable.name.starts_with("scx_")
        && !variable.name.ends_with("_dump_len")
        && variable.option_kind().is_some()
}

fn btf_of(object: &BpfObject) -> Result<Btf<'_>> {
    Btf::from_raw("policy", &object.bytes)
        .doing(&format!("reading the types of {}", object.name))?
        .ok_or_else(|| Error::Option {
            policy: object.name.clone(),
            problem: "has no type information: compile it with -g".to_owned(),
        })
}

/// Which tasks a policy schedules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tasks {
    /// All tasks but the ones of higher classes.
    #[default]
    All,
    /// Those that ask for it (`SCHED_EXT`). The others stay with the kernel's own scheduler, above
    /// the policy: it never sees them (`SCX_OPS_SWITCH_PARTIAL`).
    Asking,
}

/// On which terms a policy is loaded, where they are not its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Terms {
    /// Which tasks it schedules.
    pub tasks: Tasks,
    /// How long a runnable task may wait before the policy is ejected, in ms (`timeout_ms`, at most
    /// 30,000); `None`: what the policy says.
    pub timeout_ms: Option<u32>,
}

impl Loaded {
    /// Loads and attaches a policy with its options, and makes sure that it really schedules.
    ///
    /// # Errors
    /// No sched_ext here, no permission, another scheduler is loaded, a wrong option, or the
    /// kernel's refusal with the one line that explains it.
    pub fn load(policy: &BpfObject, settings: &[(String, String)]) -> Result<Loaded> {
        Self::load_on(policy, settings, Terms::default())
    }

    /// As [`Loaded::load`], on other terms.
    ///
    /// # Errors
    /// As [`Loaded::load`].
    pub fn load_on(
        policy: &BpfObject,
        settings: &[(String, String)],
        terms: Terms,
    ) -> Result<Loaded> {
        ready()?;
        vm::doing(&format!("loading the scheduler '{}'", policy.name));
        verdict::listen(|| Self::load_logged(policy, settings, terms))
    }

    fn load_logged(
        policy: &BpfObject,
        settings: &[(String, String)],
        terms: Terms,
    ) -> Result<Loaded> {
        let btf = btf_of(policy)?;
        let mut open = ObjectBuilder::default()
            .name("policy")
            .and_then(|builder| builder.open_memory(&policy.bytes))
            .map_err(|error| verdict::rejected(&policy.name, &format!("{error:#}")))?;
        configure(policy, &btf, &mut open, settings)?;
        if terms.tasks == Tasks::Asking {
            let partial = constant(policy, "SCX_OPS_SWITCH_PARTIAL")?;
            change_ops(policy, &btf, &mut open, "flags", |flags| flags | partial)?;
        }
        if let Some(ms) = terms.timeout_ms {
            change_ops(policy, &btf, &mut open, "timeout_ms", |_| ms.into())?;
        }

        let exit_info = vars::of_section(&btf, ".data")
            .into_iter()
            .find(|v| v.kind == Kind::Struct("user_exit_info".to_owned()))
            .and_then(|variable| {
                let at = |name| vars::member(&btf, "user_exit_info", name).map(|(o, _)| o);
                let layout = ExitLayout {
                    kind: at("kind")?,
                    code: at("exit_code")?,
                    reason: at("reason")?,
                    message: at("msg")?,
                };
                Some((variable, layout))
            });
        let ops_name = ops_name(&btf, &open);

        let object = open
            .load()
            .map_err(|error| verdict::rejected(&policy.name, &format!("{error:#}")))?;
        let mut loaded = Loaded {
            name: policy.name.clone(),
            ops_name,
            object,
            link: None,
            types: policy.bytes.clone(),
            exit_info,
        };
        loaded.attach(policy)?;
        Ok(loaded)
    }

    fn attach(&mut self, policy: &BpfObject) -> Result<()> {
        let seq = scx::enable_seq();
        let mut ops = self
            .object
            .maps_mut()
            .find(|map| map.map_type() == MapType::StructOps)
            .ok_or_else(|| Error::Option {
                policy: policy.name.clone(),
                problem: "defines no sched_ext_ops (SCX_OPS_DEFINE)".to_owned(),
            })?;
        match ops.attach_struct_ops() {
            Ok(link) => self.link = Some(link),
            Err(error) => {
                return Err(self
                    .ejected()
                    .unwrap_or_else(|| verdict::rejected(&policy.name, &format!("{error:#}"))));
            }
        }
        match scx::state() {
            State::Loaded { state, name } if state == "enabled" && name == self.ops_name => {}
            mut other => {
                // Where it is being thrown out, the reason is known when that is over.
                let deadline = Instant::now() + UNLOAD_TIMEOUT;
                while matches!(&other, State::Loaded { state, .. } if state == "disabling")
                    && Instant::now() < deadline
                {
                    thread::sleep(Duration::from_millis(5));
                    other = scx::state();
                }
                return Err(self.ejected().unwrap_or_else(|| match other {
                    State::Loaded { state, name } => Error::NotAttached {
                        policy: policy.name.clone(),
                        problem: format!("the kernel is '{state}' with '{name}'"),
                    },
                    // It went in, is out again and left no word: one without UEI_RECORD.
                    _ => Error::Ejected {
                        policy: policy.name.clone(),
                        exit: Box::default(),
                    },
                }));
            }
        }
        if seq.is_some() && scx::enable_seq() == seq {
            return Err(Error::NotAttached {
                policy: policy.name.clone(),
                problem: "the kernel did not count a new scheduler".to_owned(),
            });
        }
        Ok(())
    }

    /// Returns the policy's name, as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its `ops.name`, under which the kernel knows it.
    pub fn ops_name(&self) -> &str {
        &self.ops_name
    }

    /// Returns the error of a policy that has ended while it was loaded.
    fn ejected(&self) -> Option<Error> {
        let exit = self.exit();
        (exit.kind != 0).then(|| Error::Ejected {
            policy: self.name.clone(),
            exit: Box::new(exit),
        })
    }

    /// Why it ended; kind 0 while it runs.
    pub fn exit(&self) -> PolicyExit {
        let Some((variable, layout)) = &self.exit_info else {
            return PolicyExit::default();
        };
        let Some(data) = self.section(".data") else {
            return PolicyExit::default();
        };
        let Some(info) = data.get(variable.offset..variable.offset + variable.size) else {
            return PolicyExit::default();
        };
        let dump = self
            .object
            .maps()
            .find(|map| {
                map.name().to_string_lossy().starts_with(".data.") && ends_with(map.name(), "_dump")
            })
            .and_then(|map| {
                map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
                    .ok()
                    .flatten()
            })
            .map(|bytes| text(&bytes))
            .unwrap_or_default();
        let kind = i32::from_ne_bytes(array(&info[layout.kind..]));
        PolicyExit {
            kind,
            code: i64::from_ne_bytes(array(&info[layout.code..])),
            reason: text(&info[layout.reason..]),
            message: text(&info[layout.message..]),
            place: places::of_dump(&dump, &self.types),
            dump,
        }
    }

    /// Returns the bytes of a global variable as they are now, for tests.
    pub fn global(&self, policy: &BpfObject, name: &str) -> Option<Vec<u8>> {
        let btf = btf_of(policy).ok()?;
        [".bss", ".data"].into_iter().find_map(|section| {
            let variables = vars::of_section(&btf, section);
            let variable = variables.iter().find(|variable| variable.name == name)?;
            let bytes = self.section(section)?;
            let range = variable.offset..variable.offset + variable.size;
            bytes.get(range).map(<[u8]>::to_vec)
        })
    }

    /// Returns whether the kernel still schedules with it.
    pub fn is_running(&self) -> bool {
        matches!(scx::state(), State::Loaded { state, name } if state == "enabled" && name == self.ops_name)
    }

    /// Returns a map of the policy, for programs that look on; `None` where it has no such map.
    pub fn map(&self, name: &str) -> Option<libbpf_rs::Map<'_>> {
        self.object.maps().find(|known| known.name() == name)
    }

    /// Returns the values of a per-CPU array map, `[entry][cpu]`; `None` where the policy has no such map.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn per_cpu(&self, map: &str) -> Result<Option<Vec<Vec<Vec<u8>>>>> {
        per_cpu(&self.object, map)
    }

    /// Sets one entry of a per-CPU array map to zero on every CPU, where the policy has such a map.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn clear_per_cpu(&self, map: &str, entry: u32) -> Result<()> {
        let Some(map) = self.map(map) else {
            return Ok(());
        };
        let zero = vec![0; map.value_size() as usize];
        let cpus = vec![zero; crate::topology::possible_cpus()];
        map.update_percpu(&entry.to_ne_bytes(), &cpus, MapFlags::ANY)
            .doing("clearing a counter of the policy")
    }

    /// Takes the policy out, waits until the kernel is back at its own scheduler, and returns why the policy ended
    /// (by this call, or earlier by ejection).
    ///
    /// # Errors
    /// The kernel does not finish within 20 s.
    pub fn unload(mut self) -> Result<PolicyExit> {
        vm::doing(&format!("taking out the scheduler '{}'", self.name));
        drop(self.link.take());
        let start = Instant::now();
        loop {
            match scx::state() {
                State::Loaded { name, .. } if name == self.ops_name || name == "?" => {}
                _ => return Ok(self.exit()),
            }
            if start.elapsed() > UNLOAD_TIMEOUT {
                return Err(Error::NotAttached {
                    policy: self.name.clone(),
                    problem: format!(
                        "the kernel did not take it out within {} s",
                        UNLOAD_TIMEOUT.as_secs()
                    ),
                });
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn section(&self, section: &str) -> Option<Vec<u8>> {
        self.object
            .maps()
            .find(|map| is_section(map.name(), section))
            .and_then(|map| {
                map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
                    .ok()
                    .flatten()
            })
    }
}

/// See [`Loaded::per_cpu`].
pub(crate) fn per_cpu(object: &libbpf_rs::Object, name: &str) -> Result<Option<Vec<Vec<Vec<u8>>>>> {
    let Some(map) = object.maps().find(|map| map.name() == name) else {
        return Ok(None);
    };
    let mut entries = Vec::new();
    for entry in 0..map.max_entries() {
        let values = map
            .lookup_percpu(&entry.to_ne_bytes(), MapFlags::ANY)
            .doing(&format!("reading the map {name}"))?;
        entries.push(values.unwrap_or_default());
    }
    Ok(Some(entries))
}

/// Returns whether a policy has these options and they may have these values.
///
/// # Errors
/// Names the first that is wrong, and what would be right.
pub fn check_options(policy: &BpfObject, settings: &[(String, String)]) -> Result<()> {
    let btf = btf_of(policy)?;
    encode_options(policy, &vars::of_section(&btf, ".rodata"), settings).map(drop)
}

/// Offsets and bytes of the options' values.
fn encode_options(
    policy: &BpfObject,
    variables: &[Variable],
    settings: &[(String, String)],
) -> Result<Vec<(usize, Vec<u8>)>> {
    let options: Vec<&Variable> = variables.iter().filter(|v| is_option(v)).collect();
    let named: Vec<(&str, &OptionKind)> = options
        .iter()
        .filter_map(|v| Some((v.name.as_str(), v.option_kind()?)))
        .collect();
    let values = options::read(&policy.name, &named, settings).map_err(Error::Options)?;
    let bytes =
        |(index, value): (usize, i128)| (options[index].offset, options[index].encode(value));
    Ok(values.into_iter().map(bytes).collect())
}

/// Sets options, the scx headers' constants, and the room for the kernel's exit dump.
fn configure(
    policy: &BpfObject,
    btf: &Btf<'_>,
    open: &mut OpenObject,
    settings: &[(String, String)],
) -> Result<()> {
    let variables = vars::of_section(btf, ".rodata");
    let mut bytes = encode_options(policy, &variables, settings)?;
    // SCX_* constants differ between kernels; the headers read them from these variables.
    let wanted = variables.iter().filter(|v| v.name.starts_with("__SCX_"));
    let wanted: Vec<&Variable> = wanted.collect();
    if !wanted.is_empty() {
        let kernel = kernel_constants()?;
        for variable in wanted {
            // A constant that this kernel does not have is 0, as the headers expect.
            let value = kernel.get(&variable.name[2..]).copied().unwrap_or(0);
            bytes.push((
                variable.offset,
                value.to_ne_bytes()[..variable.size].to_vec(),
            ));
        }
    }

    for mut map in open.maps_mut() {
        let name = map.name().to_owned();
        let dump = name
            .to_str()
            .and_then(|n| n.strip_prefix(".data."))
            .filter(|n| n.ends_with("_dump"));
        if let Some(dump) = dump
            && let Some(len) = variables.iter().find(|v| v.name == format!("{dump}_len"))
        {
            let value = (DUMP_LEN as u64).to_ne_bytes();
            bytes.push((len.offset, value[..len.size].to_vec()));
            map.set_value_size(DUMP_LEN as u32)
                .doing("making room for the kernel's exit dump")?;
        }
        if map.map_type() == MapType::StructOps {
            let offset = vars::member(btf, "sched_ext_ops", "hotplug_seq");
            if let (Some((offset, 8)), Some(seq)) = (offset, scx::hotplug_seq())
                && let Some(ops) = map.initial_value_mut()
                && let Some(field) = ops.get_mut(offset..offset + 8)
            {
                // A CPU that comes or goes from now on makes the kernel refuse, not guess.
                field.copy_from_slice(&seq.to_ne_bytes());
            }
        }
    }
    if set_rodata(open, &bytes) {
        Ok(())
    } else {
        Err(Error::Option {
            policy: policy.name.clone(),
            problem: "has no read-only data to set options in".to_owned(),
        })
    }
}

/// Returns an enumerator of the running kernel.
fn constant(policy: &BpfObject, name: &str) -> Result<u64> {
    let value = kernel_constants()?.get(name).copied();
    value.ok_or_else(|| Error::Option {
        policy: policy.name.clone(),
        problem: format!("this kernel has no {name}"),
    })
}

/// Changes a number in the policy's `sched_ext_ops`.
fn change_ops(
    policy: &BpfObject,
    btf: &Btf<'_>,
    open: &mut OpenObject,
    member: &str,
    change: impl Fn(u64) -> u64,
) -> Result<()> {
    let place = vars::member(btf, "sched_ext_ops", member);
    let Some((offset, size @ (4 | 8))) = place else {
        return Err(Error::Option {
            policy: policy.name.clone(),
            problem: format!("was compiled with headers that have no number ops.{member}"),
        });
    };
    for mut map in open.maps_mut() {
        if map.map_type() == MapType::StructOps
            && let Some(ops) = map.initial_value_mut()
            && let Some(field) = ops.get_mut(offset..offset + size)
        {
            if size == 8 {
                let value = change(u64::from_ne_bytes(array(field)));
                field.copy_from_slice(&value.to_ne_bytes());
            } else {
                let value = change(u32::from_ne_bytes(array(field)).into()) as u32;
                field.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
    Ok(())
}

/// Writes bytes at offsets of the read-only data; `false` if the object has none.
pub(crate) fn set_rodata(open: &mut OpenObject, bytes: &[(usize, Vec<u8>)]) -> bool {
    for mut map in open.maps_mut() {
        if !ends_with(map.name(), ".rodata") {
            continue;
        }
        if let Some(data) = map.initial_value_mut() {
            for (offset, value) in bytes {
                if let Some(place) = data.get_mut(*offset..*offset + value.len()) {
                    place.copy_from_slice(value);
                }
            }
        }
        return true;
    }
    bytes.is_empty()
}

/// Returns all `SCX_*` enumerators of the running kernel.
fn kernel_constants() -> Result<BTreeMap<String, u64>> {
    let btf = Btf::from_vmlinux().doing("reading the kernel's types (/sys/kernel/btf/vmlinux)")?;
    let mut constants = BTreeMap::new();
    for e in btf.type_by_kind::<Enum<'_>>() {
        for m in e.iter() {
            if let Some(name) = m.name.map(|n| n.to_string_lossy())
                && name.starts_with("SCX_")
            {
                constants.insert(name.into_owned(), m.value as u64);
            }
        }
    }
    for e in btf.type_by_kind::<Enum64<'_>>() {
        for m in e.iter() {
            if let Some(name) = m.name.map(|n| n.to_string_lossy())
                && name.starts_with("SCX_")
            {
                // Two's complement of what BTF says, whether it is signed or not.
                constants.insert(name.into_owned(), m.value as u64);
            }
        }
    }
    Ok(constants)
}

/// `ops.name` as it is written in the object.
fn ops_name(btf: &Btf<'_>, open: &OpenObject) -> String {
    let offset = vars::member(btf, "sched_ext_ops", "name").map(|(offset, _)| offset);
    open.maps()
        .find(|map| map.map_type() == MapType::StructOps)
        .and_then(|map| Some(text(map.initial_value()?.get(offset?..)?)))
        .unwrap_or_default()
}

fn is_section(map: &OsStr, section: &str) -> bool {
    // libbpf puts up to eight letters of the object's name in front.
    map == section || ends_with(map, &format!("policy{section}"))
}

fn ends_with(name: &OsStr, end: &str) -> bool {
    name.to_str().is_some_and(|n| n.ends_with(end))
}

/// Up to the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("checked by the layout")
}
