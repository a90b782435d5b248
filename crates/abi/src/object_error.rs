//! Why an object is no policy that can be simulated.

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
    /// It calls what is neither a kfunc nor a helper.
    #[error("{policy}: {function}() is not in the virtual kernel")]
    Foreign {
        /// The policy.
        policy: String,
        /// What it calls.
        function: String,
    },
    /// It has code that would run while it is loaded, outside of the simulation.
    #[error(
        "{policy}: it has {what}, which would run while it is loaded, and BPF has nothing of the kind: call it from ops.init()"
    )]
    Constructor {
        /// The policy.
        policy: String,
        /// What.
        what: &'static str,
    },
    /// No ops table, or several.
    #[error("{policy}: {found}; a policy defines exactly one with SCX_OPS_DEFINE()")]
    Ops {
        /// The policy.
        policy: String,
        /// What was found.
        found: String,
    },
    /// An op that the kernel could not call, or that is no program of its own.
    #[error("{policy}: {place}: {what}")]
    Op {
        /// The policy.
        policy: String,
        /// `file:line` of the function.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The verifier takes struct_ops programs under the GPL only (`check_struct_ops_btf_id()`).
    #[error(
        "{policy}: {found}, and the kernel takes schedulers under the GPL only; write: char _license[] SEC(\"license\") = \"GPL\";"
    )]
    License {
        /// The policy.
        policy: String,
        /// What was found.
        found: String,
    },
    /// A BPF program that is no op: nothing in the virtual kernel calls it.
    #[error(
        "{policy}: {program}() is a program of its own, SEC(\"{section}\"), and a simulation calls ops alone; leave it out, or run it in a real kernel (schedlab run)"
    )]
    Program {
        /// The policy.
        policy: String,
        /// The function.
        program: String,
        /// Its section.
        section: String,
    },
    /// A map that the virtual kernel does not have.
    #[error("{policy}: map `{map}`: {reason}")]
    Map {
        /// The policy.
        policy: String,
        /// The map.
        map: String,
        /// Why.
        reason: String,
    },
}
