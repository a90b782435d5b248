//! The types of the virtual kernel as BTF: what objects ask by CO-RE is answered from the structures that are modelled.

use std::collections::BTreeMap;

use schedlab_bpf::btf::{Btf, Kind, Member, TypeId};
use schedlab_bpf::program::{Hooks, HostFn, Layout};
use schedlab_engine::KernelVersion;

use crate::dwarf::{Shape, Types};
use crate::version;

/// Types of this prefix are prototypes of the kernel's functions (crates/policies/src/types/kfuncs.h).
const KFUNC: &str = "kfunc__";

/// Types of this prefix are prototypes of functions to which programs are attached.
const TARGET: &str = "target__";

/// Members that are integers in include/native, whose size is the same with every compiler, and enumerations in the kernel.
const ENUMERATIONS: [(&str, &str, &str); 3] = [
    ("scx_exit_info", "kind", "scx_exit_kind"),
    ("scx_dump_ctx", "kind", "scx_exit_kind"),
    ("scx_cpu_release_args", "reason", "scx_cpu_preempt_reason"),
];

/// The tables of ops.
const OPS: [&str; 2] = ["sched_ext_ops", "sched_ext_ops_cid"];

/// The functions that programs are linked to.
#[derive(Debug)]
pub struct Functions {
    pub kfunc: fn(KernelVersion, &str) -> Option<HostFn>,
    /// A function that the kernel once had under that name.
    pub retired: fn(KernelVersion, &str) -> Option<HostFn>,
    /// Whether the verifier refuses a call of a function in an op of the cid form.
    pub is_of_cpu_form: fn(&str) -> bool,
    /// The helper of a number; the error is its name.
    pub helper: fn(i32) -> Result<HostFn, String>,
    pub hooks: fn() -> Hooks,
    /// The address that stands for a variable that each CPU has.
    pub per_cpu_variable: fn(&str) -> Option<u64>,
    /// The parts of the host that code reaches by itself.
    pub layout: Layout,
}

/// The types of each version, from the debug information of the shadow headers, and the functions that go with them.
#[derive(Clone, Debug)]
pub struct KernelTypes {
    v6_18: Btf,
    v7_2: Btf,
    pub(super) functions: &'static Functions,
}

impl KernelTypes {
    /// Reads them from an ELF object that was compiled with all types of include/native.
    ///
    /// # Errors
    /// If it has no debug information.
    pub(super) fn read(elf: &[u8], functions: &'static Functions) -> Result<KernelTypes, String> {
        let types = Types::read(elf).map_err(|error| error.to_string())?;
        let of = |version| Converter::new(&types, version, functions).convert();
        Ok(KernelTypes {
            v6_18: of(KernelVersion::V6_18),
            v7_2: of(KernelVersion::V7_2),
            functions,
        })
    }

    /// Returns the types of a version.
    pub fn of(&self, version: KernelVersion) -> &Btf {
        match version {
            KernelVersion::V6_18 => &self.v6_18,
            KernelVersion::V7_2 => &self.v7_2,
        }
    }
}

struct Converter<'t> {
    types: &'t Types,
    version: KernelVersion,
    functions: &'static Functions,
    btf: Btf,
    known: BTreeMap<usize, TypeId>,
    integers: BTreeMap<(u8, bool), TypeId>,
}

impl<'t> Converter<'t> {
    fn new(types: &'t Types, version: KernelVersion, functions: &'static Functions) -> Self {
        Converter {
            types,
            version,
            functions,
            btf: Btf::new(),
            known: BTreeMap::new(),
            integers: BTreeMap::new(),
        }
    }

    fn convert(mut self) -> Btf {
        for at in self.types.defined() {
            let name = self.types.entry(at).name.as_deref().unwrap_or_default();
            if version::has(self.version, &format!("struct {name}")) {
                self.id(at);
            }
        }
        for (name, at) in self.types.typedefs() {
            match (name.strip_prefix(KFUNC), name.strip_prefix(TARGET)) {
                (Some(kfunc), _) => self.kfunc(kfunc, at),
                (None, Some(target)) => {
                    let prototype = self.id(at);
                    self.btf.add(target, Kind::Func(prototype), 0);
                }
                (None, None) => {
                    let of = self.id(at);
                    self.btf.add(name, Kind::Typedef(of), 0);
                }
            }
        }
        self.struct_ops();
        for (structure, member, enumeration) in ENUMERATIONS {
            self.enumerate(structure, member, enumeration);
        }
        super::fields::add_types(&mut self.btf);
        self.btf
    }

    /// Gives a member the kernel's own type: libbpf takes no integer for an enumeration.
    fn enumerate(&mut self, structure: &str, member: &str, enumeration: &str) {
        let is_enumeration = |id: &&TypeId| matches!(self.btf.get(**id).kind, Kind::Enum { .. });
        let found = self.btf.named(enumeration).iter().find(is_enumeration);
        if let (Some(&to), Some(&of)) = (found, self.btf.named(structure).first()) {
            let mut members = self.btf.members(of).to_vec();
            for known in &mut members {
                if known.name == member {
                    known.type_id = to;
                }
            }
            self.btf.set_kind(of, Kind::Struct(members));
        }
    }

    /// Adds a function that programs may call, unless the version has none of the name.
    fn kfunc(&mut self, name: &str, at: usize) {
        if (self.functions.kfunc)(self.version, name).is_some() {
            let prototype = self.id(at);
            self.btf.add(name, Kind::Func(prototype), 0);
        }
    }

    /// Adds the types by which a loader finds that the kernel takes tables of ops (`struct bpf_struct_ops_value`).
    fn struct_ops(&mut self) {
        /// Bytes of a cache line, to which the table is aligned.
        const LINE: u32 = 64;
        let word = self.integer(4, false);
        let member = |name: &str, type_id, bytes: u32| Member {
            name: name.to_owned(),
            type_id,
            bit_offset: bytes * 8,
            bits: 0,
        };
        let common = vec![member("refcnt", word, 0), member("state", word, 4)];
        let common = self
            .btf
            .add("bpf_struct_ops_common_value", Kind::Struct(common), 8);
        for name in OPS {
            let Some(&ops) = self.btf.named(name).first() else {
                continue;
            };
            let size = (LINE + self.btf.size(ops)).next_multiple_of(LINE);
            let value = vec![member("common", common, 0), member("data", ops, LINE)];
            let name = format!("bpf_struct_ops_{name}");
            self.btf.add(&name, Kind::Struct(value), size);
        }
    }

    /// Adds the type of a function.
    fn prototype(&mut self, at: usize) -> TypeId {
        let signature = self.types.signature(at);
        let id = self.btf.add("", Kind::Void, 0);
        self.known.insert(at, id);
        let returns = signature.returns.map_or(0, |of| self.id(of));
        let parameters = signature.parameters.iter();
        let parameters = parameters.map(|&of| (String::new(), self.id(of)));
        let parameters = parameters.collect();
        let kind = Kind::FuncProto {
            returns,
            parameters,
        };
        self.btf.set_kind(id, kind);
        id
    }

    fn integer(&mut self, bytes: u8, signed: bool) -> TypeId {
        let btf = &mut self.btf;
        *self.integers.entry((bytes, signed)).or_insert_with(|| {
            let name = format!("{}{}", if signed { "s" } else { "u" }, bytes * 8);
            let kind = Kind::Int {
                signed,
                is_bool: false,
            };
            btf.add(&name, kind, bytes.into())
        })
    }

    fn id(&mut self, type_at: usize) -> TypeId {
        if let Some(&known) = self.known.get(&type_at) {
            return known;
        }
        let id = match self.types.shape(type_at) {
            Shape::Bool => self.integer(1, false),
            Shape::Integer { bytes, signed } => self.integer(bytes, signed),
            Shape::Pointer(target) => {
                let id = self.btf.add("", Kind::Ptr(0), 0);
                self.known.insert(type_at, id);
                let target = target.map_or(0, |target| self.id(target));
                self.btf.set_kind(id, Kind::Ptr(target));
                id
            }
            Shape::Array(at) => {
                let element = self
                    .types
                    .entry(at)
                    .type_at
                    .map_or(0, |element| self.id(element));
                let count = self.types.elements(at) as u32;
                self.btf.add("", Kind::Array { element, count }, 0)
            }
            Shape::Enum(at) => self.enumeration(at),
            Shape::Struct(at) => return self.structure(at),
            Shape::Other => match self.types.bare(type_at) {
                Some(at) if self.types.is_function(at) => {
                    let known = self.known.get(&at).copied();
                    known.unwrap_or_else(|| self.prototype(at))
                }
                _ => 0,
            },
        };
        self.known.insert(type_at, id);
        id
    }

    fn enumeration(&mut self, at: usize) -> TypeId {
        let types = self.types;
        let entry = types.entry(at);
        let values = types.enumerators(at).into_iter();
        let values: Vec<(String, i128)> = values
            .filter(|(name, _)| version::has(self.version, name))
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let signed = values.iter().any(|(_, value)| *value < 0);
        let name = entry.name.as_deref().unwrap_or_default();
        let size = entry.byte_size.unwrap_or(4) as u32;
        self.btf.add(name, Kind::Enum { signed, values }, size)
    }

    fn structure(&mut self, at: usize) -> TypeId {
        if let Some(&known) = self.known.get(&at) {
            return known;
        }
        let types = self.types;
        let entry = types.entry(at);
        let name = entry.name.as_deref().unwrap_or_default();
        let Some(size) = entry.byte_size else {
            let id = self.btf.add(name, Kind::Fwd, 0);
            self.known.insert(at, id);
            return id;
        };
        let id = self.btf.add(name, Kind::Struct(Vec::new()), size as u32);
        self.known.insert(at, id);
        let members = types.members(at).into_iter();
        let members = members.map(|(name, offset, member)| Member {
            name: name.to_owned(),
            type_id: self.id(member),
            bit_offset: offset as u32 * 8,
            bits: 0,
        });
        let members = members.collect();
        self.btf.set_kind(id, Kind::Struct(members));
        id
    }
}
