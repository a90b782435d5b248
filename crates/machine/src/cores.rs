//! Kinds of core: what a machine's CPUs differ in, looked up by CPU.

use std::collections::BTreeMap;

use schedlab_trace::{CpuId, CpuListError, CpuSet};

use crate::Machine;
use crate::profile::{CAPACITY_SCALE, CoreKind};

impl CoreKind {
    /// Its cores.
    ///
    /// # Errors
    /// If `cores` is no list.
    pub fn core_set(&self) -> Result<CpuSet, CpuListError> {
        self.cores.parse()
    }
}

/// The traits of a CPU.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreTraits {
    /// See [`CoreKind::capacity`].
    pub capacity: u32,
    /// See [`CoreKind::cache_bytes`].
    pub cache_bytes: u64,
    /// Throughput of one hardware thread, in percent, by how many others of its core run: 100, then
    /// [`CoreKind::smt_shares_pct`].
    pub shares_pct: Vec<u32>,
}

impl CoreTraits {
    /// Throughput of a hardware thread, in percent, while `others` of its core run.
    pub fn share_pct(&self, others: usize) -> u32 {
        self.shares_pct[others.min(self.shares_pct.len() - 1)]
    }
}

impl Machine {
    /// Returns the traits of each CPU, by its number.
    pub fn core_traits(&self) -> Vec<CoreTraits> {
        let kinds: Vec<(CpuSet, &CoreKind)> = self
            .core_kinds
            .values()
            // The reader of profiles has seen the lists.
            .map(|kind| (kind.core_set().unwrap_or_default(), kind))
            .collect();
        let nr_cpus = self.topology.nr_cpus() as u32;
        let of_cpu = |cpu: u32| {
            let core = CpuId(self.topology.cpu(CpuId(cpu)).core);
            let found = kinds.iter().find(|(cores, _)| cores.contains(core));
            let kind = found.map(|&(_, kind)| kind);
            let shares = kind.and_then(|kind| kind.smt_shares_pct.clone());
            let shares = shares.unwrap_or_else(|| vec![self.interference.smt_share_pct]);
            CoreTraits {
                capacity: kind
                    .and_then(|kind| kind.capacity)
                    .unwrap_or(CAPACITY_SCALE),
                cache_bytes: kind
                    .and_then(|kind| kind.cache_bytes)
                    .unwrap_or(self.memory.cache_bytes),
                shares_pct: [100].into_iter().chain(shares).collect(),
            }
        };
        (0..nr_cpus).map(of_cpu).collect()
    }

    /// How much longer a computation takes under the last-level cache `llc` because its working set does not fit there,
    /// as a fraction: `(more, of)`, (0, 1) if nothing. The share of the working set that is beyond the cache comes from
    /// memory at each use, as under random accesses, and all of it costs [`beyond_llc_pct`].
    ///
    /// Model: tasks that run below the same cache do not take room there from each other.
    ///
    /// [`beyond_llc_pct`]: crate::profile::Interference::beyond_llc_pct
    pub fn overflow(&self, working_set_bytes: u64, llc: u32) -> (u128, u128) {
        let (Some(pct), Some(bytes)) = (
            self.interference.beyond_llc_pct,
            self.topology.llc_bytes(llc),
        ) else {
            return (0, 1);
        };
        let beyond = working_set_bytes.saturating_sub(bytes);
        match beyond {
            0 => (0, 1),
            _ => (
                u128::from(beyond) * u128::from(pct),
                u128::from(working_set_bytes) * 100,
            ),
        }
    }
}

/// Returns the fault in a machine's kinds of core: the field and the remedy.
pub(crate) fn complaint(
    kinds: &BTreeMap<String, CoreKind>,
    machine: &Machine,
) -> Option<(String, String)> {
    let nr_cpus = machine.topology.nr_cpus() as u32;
    let mut seen: Vec<(&str, CpuSet)> = Vec::new();
    for (name, kind) in kinds {
        let field = |field: &str| format!("core_kinds.{name}.{field}");
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_bare) {
            let message = "the name of a kind has letters, digits, - and _ alone".to_owned();
            return Some((field("cores"), message));
        }
        let cores = match kind.core_set() {
            Ok(cores) => cores,
            Err(error) => return Some((field("cores"), error.to_string())),
        };
        if cores.is_empty() {
            let message = "must name a core, as in \"0-3,8\"".to_owned();
            return Some((field("cores"), message));
        }
        for (other, theirs) in &seen {
            if let Some(both) = cores.first_and(theirs) {
                let message = format!("core {both} is of the kind {other} already");
                return Some((field("cores"), message));
            }
        }
        if kind
            .capacity
            .is_some_and(|capacity| !(1..=CAPACITY_SCALE).contains(&capacity))
        {
            return Some((field("capacity"), format!("must be 1 to {CAPACITY_SCALE}")));
        }
        let shares = kind.smt_shares_pct.as_deref();
        if shares
            .is_some_and(|all| all.is_empty() || !all.iter().all(|pct| (1..=100).contains(pct)))
        {
            let message = "must be a list of numbers from 1 to 100, for 2, 3 … threads".to_owned();
            return Some((field("smt_shares_pct"), message));
        }
        if shares.is_some_and(|all| !all.is_sorted_by(|a, b| a >= b)) {
            let message = "must not rise: more threads leave each of them less".to_owned();
            return Some((field("smt_shares_pct"), message));
        }
        seen.push((name, cores));
    }
    if kinds.is_empty() {
        return None;
    }
    let missing = (0..nr_cpus)
        .map(|cpu| CpuId(machine.topology.cpu(CpuId(cpu)).core))
        .find(|&core| seen.iter().all(|(_, cores)| !cores.contains(core)));
    missing.map(|core| {
        let name = kinds.keys().next().map_or("", String::as_str);
        (
            format!("core_kinds.{name}.cores"),
            format!("core {core} of the topology is of no kind: each must be of one"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(sections: &str) -> Result<Machine, String> {
        let text = Machine::builtin("laptop").unwrap().to_toml() + sections;
        Machine::from_toml("x.toml", &text).map_err(|error| error.to_string())
    }

    fn kind(name: &str, fields: &[(&str, &str)]) -> String {
        let fields = fields
            .iter()
            .map(|(field, value)| format!("{field} = {{ value = {value}, source = \"guess\" }}\n"));
        format!("\n[core_kinds.{name}]\n{}", fields.collect::<String>())
    }

    #[test]
    fn cpus_have_the_traits_of_their_core() {
        let big = kind(
            "big",
            &[("cores", "\"0-1\""), ("smt_shares_pct", "[70, 50]")],
        );
        let little = kind(
            "little",
            &[
                ("cores", "\"2-7\""),
                ("capacity", "400"),
                ("cache_bytes", "131072"),
            ],
        );
        let machine = with(&(big + &little)).unwrap();
        let traits = machine.core_traits();
        let of = |cpu: usize| (traits[cpu].capacity, traits[cpu].cache_bytes);
        assert_eq!([of(0), of(9)], [(1_024, 524_288); 2]);
        assert_eq!([of(2), of(15)], [(400, 131_072); 2]);
        let shares = |cpu: usize| [0, 1, 2, 5].map(|others| traits[cpu].share_pct(others));
        assert_eq!(shares(8), [100, 70, 50, 50]);
        assert_eq!(shares(3), [100, 60, 60, 60]);
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again.core_kinds, machine.core_kinds);
        let limited = machine.with_cpus(3).unwrap();
        let again = Machine::from_toml("again", &limited.to_toml()).unwrap();
        assert_eq!(again.core_traits(), limited.core_traits());
    }

    #[test]
    fn kinds_that_contradict_are_refused_with_their_line() {
        let all = ("cores", "\"0-7\"");
        for (sections, what) in [
            (
                kind("a", &[("cores", "\"0-6\"")]),
                "core 7 of the topology is of no kind",
            ),
            (kind("a", &[("cores", "\"x\"")]), "`x` is not a CPU list"),
            (kind("a", &[("cores", "\"\"")]), "core_kinds.a.cores"),
            (
                kind("a", &[all]) + &kind("b", &[("cores", "\"3\"")]),
                "core 3 is of the kind a already",
            ),
            (
                kind("a", &[all, ("capacity", "0")]),
                "core_kinds.a.capacity: must be 1 to 1024",
            ),
            (kind("a", &[all, ("capacity", "1025")]), "must be 1 to 1024"),
            (kind("a", &[all, ("smt_shares_pct", "[]")]), "1 to 100"),
            (kind("a", &[all, ("smt_shares_pct", "[101]")]), "1 to 100"),
            (
                kind("a", &[all, ("smt_shares_pct", "[40, 60]")]),
                "must not rise",
            ),
            (kind("a", &[all, ("speed", "3")]), "speed"),
            (kind("\"a b\"", &[all]), "letters, digits"),
            (
                "\n[core_kinds.a]\ncores = \"0-7\"\n".to_owned(),
                "has no source",
            ),
        ] {
            let error = with(&sections).unwrap_err();
            assert!(error.contains(what), "{sections}: {error}");
            assert!(!error.contains('\n'), "{error}");
            let line: usize = error.split(':').nth(1).unwrap().parse().unwrap();
            assert!(line > 60, "{error}");
        }
    }

    #[test]
    fn what_does_not_fit_into_the_last_level_cache_is_slower() {
        let mut machine = Machine::builtin("laptop").unwrap();
        assert_eq!(machine.overflow(1 << 40, 0), (0, 1));
        machine.topology.llc_bytes = vec![32 << 20];
        assert_eq!(machine.overflow(1 << 40, 0), (0, 1));
        machine.interference.beyond_llc_pct = Some(100);
        assert_eq!(machine.overflow(32 << 20, 0), (0, 1));
        // Half of it is beyond, and each access there costs once more: half as much again.
        let (more, of) = machine.overflow(64 << 20, 0);
        assert_eq!(2 * more, of);
    }
}
