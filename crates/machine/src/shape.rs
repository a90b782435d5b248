//! The section `[topology]` of a profile file.
//!
//! A regular machine is four numbers and a numbering; any other one is a list of its CPUs.

use serde::{Deserialize, Serialize};

use crate::Topology;
use crate::topology::{LOCAL_DISTANCE, Numbering};

/// More CPUs than any machine of today: Linux's NR_CPUS on x86 ends at 8,192.
const CPUS_MAX: usize = 8_192;

/// More nodes than any machine of today (`MAX_NUMNODES` of Linux, `CONFIG_NODES_SHIFT` being 10).
const NODES_MAX: usize = 1_024;

/// Either the four numbers of a regular machine, or one `[core, llc, node]` for each CPU; and what is known besides.
#[derive(Deserialize, Serialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopologyFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    llcs_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores_per_llc: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads_per_core: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    numbering: Option<Numbering>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<Vec<[u32; 3]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    llc_bytes: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    distances: Option<Vec<Vec<u32>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes_without_memory: Option<Vec<u32>>,
}

/// The topology that a file describes, or what is wrong and what to do.
pub(crate) fn topology(file: &TopologyFile) -> Result<Topology, String> {
    let mut topology = cpus(file)?;
    if let Some(distances) = &file.distances {
        check_distances(distances, topology.nr_nodes() as usize)?;
        topology.distances.clone_from(distances);
    }
    if let Some(nodes) = &file.nodes_without_memory {
        let nr_nodes = topology.nr_nodes();
        if let Some(node) = nodes.iter().find(|&&node| node >= nr_nodes) {
            return Err(format!(
                "topology.nodes_without_memory: there is no node {node}, nodes are 0 to {}",
                nr_nodes - 1
            ));
        }
        topology.nodes_without_memory.clone_from(nodes);
        if (0..nr_nodes).all(|node| !topology.has_memory(node)) {
            return Err("topology.nodes_without_memory: one node must have memory".to_owned());
        }
    }
    if let Some(bytes) = &file.llc_bytes {
        if bytes.len() != 1 && bytes.len() < topology.nr_llcs() as usize {
            return Err(format!(
                "topology.llc_bytes has {} numbers: write one for all, or one for each of {} last-level caches",
                bytes.len(),
                topology.nr_llcs()
            ));
        }
        if bytes.contains(&0) {
            return Err("topology.llc_bytes: a cache has 1 byte or more".to_owned());
        }
        topology.llc_bytes.clone_from(bytes);
    }
    Ok(topology)
}

fn cpus(file: &TopologyFile) -> Result<Topology, String> {
    let regular = [
        file.nodes,
        file.llcs_per_node,
        file.cores_per_llc,
        file.threads_per_core,
    ];
    match (&file.cpus, regular) {
        (Some(_), [None, None, None, None]) if file.numbering.is_some() => {
            Err("topology.numbering: a list of cpus is a numbering already".to_owned())
        }
        (Some(cpus), [None, None, None, None]) => {
            if cpus.is_empty() || cpus.len() > CPUS_MAX {
                return Err(format!(
                    "topology.cpus lists {} CPUs: must be 1 to {CPUS_MAX}",
                    cpus.len()
                ));
            }
            Topology::irregular(cpus)
        }
        (None, [Some(nodes), Some(llcs), Some(cores), Some(threads)]) => {
            let shape = [nodes, llcs, cores, threads];
            let product = shape
                .iter()
                .try_fold(1usize, |product, &n| product.checked_mul(n as usize));
            match product {
                Some(1..=CPUS_MAX) => {
                    let numbering = file.numbering.unwrap_or_default();
                    Ok(Topology::numbered(shape, numbering))
                }
                _ => Err(format!(
                    "topology: {nodes} × {llcs} × {cores} × {threads} CPUs: must be 1 to {CPUS_MAX}"
                )),
            }
        }
        _ => Err(
            "topology: give nodes, llcs_per_node, cores_per_llc and threads_per_core, \
             or cpus = a list of [core, llc, node]"
                .to_owned(),
        ),
    }
}

/// A table of distances is square, has the nodes of the CPUs and is [`LOCAL_DISTANCE`] on its diagonal alone, as ACPI's
/// SLIT is (`slit_valid()`).
fn check_distances(distances: &[Vec<u32>], nr_nodes: usize) -> Result<(), String> {
    let nr = distances.len();
    if nr < nr_nodes || nr > NODES_MAX {
        return Err(format!(
            "topology.distances has {nr} rows: write one for each node, {nr_nodes} to {NODES_MAX}"
        ));
    }
    for (a, row) in distances.iter().enumerate() {
        if row.len() != nr {
            return Err(format!(
                "topology.distances: row {a} has {} numbers, not {nr}",
                row.len()
            ));
        }
        for (b, &far) in row.iter().enumerate() {
            let is_valid = match a == b {
                true => far == LOCAL_DISTANCE,
                false => (LOCAL_DISTANCE + 1..=254).contains(&far),
            };
            if !is_valid {
                return Err(format!(
                    "topology.distances: {far} from node {a} to node {b}: must be {LOCAL_DISTANCE} to itself, and more, \
                     at most 254, to another one"
                ));
            }
        }
    }
    Ok(())
}

impl From<&Topology> for TopologyFile {
    fn from(topology: &Topology) -> Self {
        fn some<T: Clone>(list: &[T]) -> Option<Vec<T>> {
            (!list.is_empty()).then(|| list.to_vec())
        }
        let besides = TopologyFile {
            llc_bytes: some(&topology.llc_bytes),
            distances: some(&topology.distances),
            nodes_without_memory: some(&topology.nodes_without_memory),
            ..TopologyFile::default()
        };
        match topology.regular() {
            Some(([nodes, llcs, cores, threads], numbering)) => TopologyFile {
                nodes: Some(nodes),
                llcs_per_node: Some(llcs),
                cores_per_llc: Some(cores),
                threads_per_core: Some(threads),
                numbering: (numbering != Numbering::default()).then_some(numbering),
                ..besides
            },
            None => TopologyFile {
                cpus: Some(topology.triples()),
                ..besides
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Machine, Numbering, Topology};

    /// The laptop with another section `[topology]`.
    fn with(topology: &[(&str, &str)]) -> Result<Machine, String> {
        let text = Machine::builtin("laptop").unwrap().to_toml();
        let start = text.find("[topology]").unwrap();
        let end = start + text[start..].find("\n\n").unwrap();
        let fields = topology
            .iter()
            .map(|(field, value)| format!("{field} = {{ value = {value}, source = \"guess\" }}\n"));
        let section = format!("[topology]\n{}", fields.collect::<String>());
        let text = format!("{}{section}{}", &text[..start], &text[end..]);
        Machine::from_toml("x.toml", &text).map_err(|error| error.to_string())
    }

    const TWO: (&str, &str) = ("cpus", "[[0, 0, 0], [1, 1, 1]]");

    #[test]
    fn numbering_distances_memory_and_sizes_are_read_and_written() {
        let regular = [
            ("nodes", "1"),
            ("llcs_per_node", "2"),
            ("cores_per_llc", "1"),
            ("threads_per_core", "4"),
            ("numbering", "\"core-by-core\""),
            ("llc_bytes", "[3_000, 1_000]"),
        ];
        let machine = with(&regular).unwrap();
        let expected = Topology::numbered([1, 2, 1, 4], Numbering::CoreByCore);
        assert_eq!(machine.topology.triples(), expected.triples());
        assert_eq!(machine.topology.llc_bytes(1), Some(1_000));
        let again = Machine::from_toml("again", &machine.to_toml());
        assert_eq!(again.unwrap().topology, machine.topology);
        let list = machine.provenance().iter();
        let list = list.filter(|one| one.field == "topology.llc_bytes");
        assert_eq!(
            list.map(|one| &one.value).collect::<Vec<_>>(),
            ["[3000, 1000]"]
        );

        // The third node has neither CPUs nor, as the first one, anything but distances.
        let distances = "[[10, 16, 28], [16, 10, 20], [28, 20, 10]]";
        let machine = with(&[
            TWO,
            ("distances", distances),
            ("nodes_without_memory", "[1]"),
        ]);
        let machine = machine.unwrap();
        assert_eq!(machine.topology.nr_nodes(), 3);
        assert_eq!(machine.topology.memory_of(1), 0);
        let again = Machine::from_toml("again", &machine.to_toml());
        assert_eq!(again.unwrap().topology, machine.topology);
    }

    #[test]
    fn a_topology_that_cannot_be_is_refused_in_one_line() {
        for (fields, what) in [
            (
                vec![TWO, ("numbering", "\"core-by-core\"")],
                "a numbering already",
            ),
            (vec![TWO, ("numbering", "\"odd\"")], "odd"),
            (vec![TWO, ("distances", "[[10]]")], "has 1 rows"),
            (
                vec![TWO, ("distances", "[[10, 20], [20]]")],
                "row 1 has 1 numbers, not 2",
            ),
            (
                vec![TWO, ("distances", "[[10, 10], [20, 10]]")],
                "10 from node 0 to node 1",
            ),
            (
                vec![TWO, ("distances", "[[11, 20], [20, 10]]")],
                "11 from node 0 to node 0",
            ),
            (
                vec![TWO, ("distances", "[[10, 255], [20, 10]]")],
                "at most 254",
            ),
            (
                vec![TWO, ("nodes_without_memory", "[2]")],
                "there is no node 2",
            ),
            (
                vec![TWO, ("nodes_without_memory", "[0, 1]")],
                "one node must have memory",
            ),
            (vec![TWO, ("llc_bytes", "[]")], "has 0 numbers"),
            (vec![TWO, ("llc_bytes", "[1, 0]")], "1 byte or more"),
        ] {
            let error = with(&fields).unwrap_err();
            assert!(error.contains(what), "{fields:?}: {error}");
            assert!(
                error.starts_with("x.toml:") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
