//! Why an object is no policy that can be simulated.

use std::fmt;

/// Lists the faults of an object, at least one.
#[derive(Debug)]
pub struct ObjectErrors(pub Vec<ObjectError>);

impl fmt::Display for ObjectErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ObjectError::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for ObjectErrors {}

/// Why an object is no policy that can be simulated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Not an ELF object of this machine with debug information.
    #[error("{policy}: the compiled policy cannot be read: {reason}")]
    Unreadable {
        /// The policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// A decision of a loader, in a file beside it, that does not fit.
    #[error("{text}")]
    Decision {
        /// File, line, and what is wrong.
        text: String,
    },
    /// It calls what is neither a kfunc nor a helper.
    #[error("{policy}: {function}() is not in the virtual kernel")]
    Foreign {
        /// The policy.
        policy: String,
        /// The called function.
        function: String,
    },
    /// It has code that would run while it is loaded, outside of the simulation.
    #[error(
        "{policy}: it has {what}, which would run while it is loaded, and BPF has nothing of the kind: call it from ops.init()"
    )]
    Constructor {
        /// The policy.
        policy: String,
        /// The missing feature.
        what: &'static str,
    },
    /// No ops table, or several.
    #[error("{policy}: {found}; a policy defines exactly one with SCX_OPS_DEFINE()")]
    Ops {
        /// The policy.
        policy: String,
        /// The found value.
        found: String,
    },
    /// An op that the kernel could not call, or that is no program of its own.
    #[error("{policy}: {place}: {what}")]
    Op {
        /// The policy.
        policy: String,
        /// `file:line` of the function.
        place: String,
        /// The fault.
        what: String,
    },
    /// The verifier takes struct_ops programs under the GPL only (`check_struct_ops_btf_id()`).
    #[error(
        "{policy}: {found}, and the kernel takes schedulers under the GPL only; write: char _license[] SEC(\"license\") = \"GPL\";"
    )]
    License {
        /// The policy.
        policy: String,
        /// The found value.
        found: String,
    },
    /// Reports a variable of the kernel's configuration that has no value in the virtual kernel.
    #[error("{policy}: {}", crate::kconfig::unknown(.variable))]
    Kconfig {
        /// The policy.
        policy: String,
        /// Names the variable.
        variable: String,
    },
    /// Reports a variable of the kernel's configuration that is declared with a type that libbpf refuses.
    #[error(
        "{policy}: {place}: extern (kcfg) '{variable}': type is unsupported: libbpf takes bool, integers of 1, 2, 4 or 8 bytes, enum libbpf_tristate and arrays of char"
    )]
    KconfigType {
        /// The policy.
        policy: String,
        /// Is `file:line` of its declaration.
        place: String,
        /// Names the variable.
        variable: String,
    },
    /// A map that the virtual kernel does not have.
    #[error("{policy}: {place}: map `{map}`: {reason}")]
    Map {
        /// The policy.
        policy: String,
        /// Is `file:line` of its definition.
        place: String,
        /// The map.
        map: String,
        /// Why.
        reason: String,
    },
}

impl ObjectError {
    /// Returns `file:line` of the fault, if the object says it.
    pub fn place(&self) -> Option<&str> {
        match self {
            ObjectError::Op { place, .. }
            | ObjectError::Map { place, .. }
            | ObjectError::KconfigType { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Returns the undefined symbol, if that is the fault.
    pub fn symbol(&self) -> Option<&str> {
        match self {
            ObjectError::Foreign { function, .. } => Some(function),
            ObjectError::Kconfig { variable, .. } => Some(variable),
            _ => None,
        }
    }
}
