//! The XML of hwloc (`lstopo --of xml`), of its versions 1 and 2.
//!
//! Objects contain each other: machine, packages, caches, cores, processing units (PU). The nodes of version 2 stand beside
//! what they are near, and name their CPUs by a mask; those of version 1 have masks, too.

use roxmltree::{Document, Node, ParsingOptions};

use super::cpuset::numbers;
use super::error::FromError;
use super::found::{Found, FoundCpu, Private};

/// How to make the file.
const HOW: &str = "write it by lstopo --of xml FILE";

/// A cache above a PU, from the core outwards.
struct Cache {
    level: u32,
    /// Its first PU, which with the level names it.
    name: String,
    bytes: u64,
    ways: u32,
    line_bytes: u32,
    /// All of its PUs are of one core.
    is_private: bool,
}

/// Reads it; `file` names it in messages.
pub(super) fn read(file: &str, text: &str) -> Result<Found, FromError> {
    let options = ParsingOptions {
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        // Where the text ends too early, the parser names no place.
        let is_cut = matches!(
            error,
            roxmltree::Error::UnexpectedEndOfStream | roxmltree::Error::UnclosedRootNode
        );
        let line = match is_cut {
            true => text.lines().count().max(1),
            false => error.pos().row as usize,
        };
        let message = error.to_string();
        // The message has the position already.
        let message = message.split(" at ").next().unwrap_or_default().to_owned();
        FromError::wrong(
            file,
            line,
            format!("no XML, or cut short ({message}): {HOW}"),
        )
    })?;
    let root = document.root_element();
    let line = |node: Node<'_, '_>| document.text_pos_at(node.range().start).row as usize;
    if root.tag_name().name() != "topology" {
        let message = format!(
            "the outermost element is <{}>, not <topology>: {HOW}",
            root.tag_name().name()
        );
        return Err(FromError::wrong(file, line(root), message));
    }
    let mut found = Found {
        told_by: "lstopo's XML",
        ..Found::default()
    };
    let nodes = numa_nodes(file, root, &line, &mut found)?;
    let pus = root.descendants().filter(|node| is_object(*node, "PU"));
    for pu in pus {
        let number = required(file, pu, "os_index", &line)?;
        if found.cpus.iter().any(|known| known.number == number) {
            let message = format!("PU {number} is there twice: {HOW}");
            return Err(FromError::wrong(file, line(pu), message));
        }
        let core = pu.ancestors().find(|node| is_object(*node, "Core"));
        let caches = caches(pu, core);
        let package = pu
            .ancestors()
            .find(|node| is_object(*node, "Package") || is_object(*node, "Socket"));
        let place = |node: Option<Node<'_, '_>>| node.map_or(0, |node| node.range().start);
        let last = caches.last();
        if let Some(last) = last
            && last.bytes > 0
            && !found.llc_bytes.iter().any(|(name, _)| *name == last.name)
        {
            found.llc_bytes.push((last.name.clone(), last.bytes));
        }
        let private = caches
            .iter()
            .rfind(|cache| cache.is_private && Some(&cache.name) != last.map(|last| &last.name));
        // A core whose only private cache is the last one.
        let private = private.or_else(|| caches.iter().rfind(|cache| cache.is_private));
        if found.private.is_none() {
            found.private = private
                .filter(|cache| cache.bytes > 0)
                .map(|cache| Private {
                    bytes: cache.bytes,
                    ways: cache.ways,
                    line_bytes: cache.line_bytes,
                });
        }
        found.cpus.push(FoundCpu {
            number,
            core: core.map_or_else(
                || format!("pu {number}"),
                |core| core.range().start.to_string(),
            ),
            llc: last.map_or_else(
                || format!("package {}", place(package)),
                |last| last.name.clone(),
            ),
            node: nodes
                .iter()
                .find(|(_, cpus)| cpus.contains(&number))
                .map_or(0, |(node, _)| *node),
            cache_bytes: private.map(|cache| cache.bytes).filter(|&bytes| bytes > 0),
            capacity: None,
        });
    }
    if found.cpus.is_empty() {
        let message = format!("no PU, that is no CPU, is in it: {HOW}");
        return Err(FromError::wrong(file, line(root), message));
    }
    found.cpus.sort_by_key(|cpu| cpu.number);
    capacities(root, &mut found);
    let infos = root.descendants().filter(|node| node.has_tag_name("info"));
    found.processor = infos
        .filter(|info| info.attribute("name") == Some("CPUModel"))
        .find_map(|info| Some(info.attribute("value")?.trim().to_owned()));
    Ok(found)
}

fn is_object(node: Node<'_, '_>, kind: &str) -> bool {
    node.has_tag_name("object") && node.attribute("type") == Some(kind)
}

/// An attribute that is a number.
fn number(node: Node<'_, '_>, name: &str) -> Option<u64> {
    node.attribute(name)?.trim().parse().ok()
}

fn required(
    file: &str,
    node: Node<'_, '_>,
    name: &str,
    line: &impl Fn(Node<'_, '_>) -> usize,
) -> Result<usize, FromError> {
    let kind = node.attribute("type").unwrap_or("?");
    match node.attribute(name).map(str::parse::<usize>) {
        Some(Ok(number)) if number < 65_536 => Ok(number),
        told => {
            let told = match told {
                None => "no".to_owned(),
                Some(_) => format!("`{}` as", node.attribute(name).unwrap_or_default()),
            };
            let message = format!("a {kind} has {told} {name}: {HOW}");
            Err(FromError::wrong(file, line(node), message))
        }
    }
}

/// The data and unified caches above a PU, from the core outwards.
fn caches(pu: Node<'_, '_>, core: Option<Node<'_, '_>>) -> Vec<Cache> {
    let mut found: Vec<Cache> = pu
        .ancestors()
        .filter(|node| node.has_tag_name("object"))
        .filter_map(|node| {
            let kind = node.attribute("type")?;
            // Version 1: type="Cache" depth="3"; version 2: type="L3Cache". Type 2 is one of instructions.
            let level = match kind {
                "Cache" => number(node, "depth")? as u32,
                _ => kind
                    .strip_prefix('L')?
                    .strip_suffix("Cache")?
                    .parse()
                    .ok()?,
            };
            if number(node, "cache_type") == Some(2) {
                return None;
            }
            let mut cores = node.descendants().filter(|inner| is_object(*inner, "Core"));
            let is_private = core.is_some_and(|core| node.ancestors().any(|outer| outer == core))
                || cores.clone().count() <= 1 && cores.next() == core;
            // hwloc writes -1 for a cache that is fully associative.
            let small = |name| {
                number(node, name)
                    .and_then(|value| u32::try_from(value).ok())
                    .unwrap_or(0)
            };
            Some(Cache {
                level,
                name: format!("L{level} at {}", node.range().start),
                bytes: number(node, "cache_size").unwrap_or(0),
                ways: small("cache_associativity"),
                line_bytes: small("cache_linesize"),
                is_private,
            })
        })
        .collect();
    found.sort_by_key(|cache| cache.level);
    found
}

/// Notes the nodes, their memory and distances. Returns those with CPUs, and which: of several nodes of the same CPUs the
/// first one, the others (memory on cards or packages) have none.
fn numa_nodes(
    file: &str,
    root: Node<'_, '_>,
    line: &impl Fn(Node<'_, '_>) -> usize,
    found: &mut Found,
) -> Result<Vec<(usize, Vec<usize>)>, FromError> {
    let mut all = Vec::new();
    for node in root
        .descendants()
        .filter(|node| is_object(*node, "NUMANode"))
    {
        let index = required(file, node, "os_index", line)?;
        let mask = node.attribute("cpuset").unwrap_or("0x0");
        let Some(cpus) = numbers(mask) else {
            let message = format!("NUMANode {index}: the cpuset `{mask}` is no mask: {HOW}");
            return Err(FromError::wrong(file, line(node), message));
        };
        if number(node, "local_memory").unwrap_or(0) == 0 {
            found.nodes_without_memory.push(index);
        }
        all.push((index, cpus));
    }
    all.sort();
    found.nodes = all.iter().map(|(index, _)| *index).collect();
    found.nodes.dedup();
    if found.nodes.is_empty() {
        found.nodes = vec![0];
    }
    found.nodes_without_memory.sort_unstable();
    if found.nodes_without_memory.len() == found.nodes.len() {
        // The XML of synthetic topologies and of some containers tells no memory at all.
        found.nodes_without_memory.clear();
    }
    found.distances = distances(file, root, line, &found.nodes)?;
    Ok(all)
}

/// `<distances2 type="NUMANode" …>` with the indexes and the numbers row by row.
fn distances(
    file: &str,
    root: Node<'_, '_>,
    line: &impl Fn(Node<'_, '_>) -> usize,
    nodes: &[usize],
) -> Result<Option<Vec<Vec<u32>>>, FromError> {
    let mut tables = root
        .children()
        .filter(|node| node.has_tag_name("distances2"));
    let table = tables.find(|table| {
        table.attribute("type") == Some("NUMANode")
            && table.attribute("indexing") == Some("os")
            && table
                .attribute("name")
                .is_none_or(|name| name == "NUMALatency")
    });
    let Some(table) = table else { return Ok(None) };
    let list = |tag: &str| -> Vec<u64> {
        let parts = table.children().filter(|node| node.has_tag_name(tag));
        let text: String = parts
            .filter_map(|node| node.text())
            .collect::<Vec<_>>()
            .join(" ");
        text.split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    let (indexes, values) = (list("indexes"), list("u64values"));
    let n = indexes.len();
    let fits = n == nodes.len()
        && values.len() == n * n
        && nodes.iter().all(|&node| indexes.contains(&(node as u64)));
    if !fits {
        let message = format!(
            "distances of {n} nodes and {} numbers, where there are {} nodes: the file is cut short or edited; {HOW}",
            values.len(),
            nodes.len()
        );
        return Err(FromError::wrong(file, line(table), message));
    }
    let place = |node: usize| {
        indexes
            .iter()
            .position(|&index| index == node as u64)
            .unwrap_or(0)
    };
    let row = |&from: &usize| {
        let row = nodes.iter().map(|&to| values[place(from) * n + place(to)]);
        row.map(|far| u32::try_from(far).unwrap_or(u32::MAX))
            .collect()
    };
    Ok(Some(nodes.iter().map(row).collect()))
}

/// `<cpukind cpuset=…>` with the kernel's capacity, or else the highest clock.
fn capacities(root: Node<'_, '_>, found: &mut Found) {
    let kinds: Vec<_> = root
        .children()
        .filter(|node| node.has_tag_name("cpukind"))
        .collect();
    let value = |kind: Node<'_, '_>, name: &str| {
        let mut infos = kind.children().filter(|node| node.has_tag_name("info"));
        let info = infos.find(|info| info.attribute("name") == Some(name))?;
        info.attribute("value")?.trim().parse::<u64>().ok()
    };
    for (name, source) in [
        ("LinuxCapacity", None),
        (
            "FrequencyMaxMHz",
            Some("guess: the highest clock of these cores by that of the fastest ones"),
        ),
    ] {
        let known: Option<Vec<_>> = kinds
            .iter()
            .map(|&kind| Some((numbers(kind.attribute("cpuset")?)?, value(kind, name)?)))
            .collect();
        let Some(known) = known.filter(|known| known.len() > 1) else {
            continue;
        };
        for cpu in &mut found.cpus {
            let kind = known.iter().find(|(cpus, _)| cpus.contains(&cpu.number));
            cpu.capacity = kind.map(|&(_, capacity)| capacity);
        }
        found.capacity_source = source;
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n";

    /// A core with its own L2 and L1, at the line after what precedes it.
    fn core(pus: &[usize], l2_kb: u32) -> String {
        let pus: String = pus
            .iter()
            .map(|pu| format!("<object type=\"PU\" os_index=\"{pu}\"/>\n"))
            .collect();
        format!(
            "<object type=\"L2Cache\" cache_size=\"{}\" cache_linesize=\"64\" cache_associativity=\"8\" cache_type=\"0\">\
             <object type=\"L1Cache\" cache_size=\"32768\" cache_linesize=\"64\" cache_associativity=\"8\" cache_type=\"1\">\
             <object type=\"L1iCache\" cache_size=\"32768\" cache_type=\"2\">\
             <object type=\"Core\" os_index=\"0\">\n{pus}</object></object></object></object>\n",
            l2_kb << 10
        )
    }

    fn l3(mb: u32, inner: &str) -> String {
        format!(
            "<object type=\"L3Cache\" cache_size=\"{}\" cache_type=\"0\">\n{inner}</object>\n",
            mb << 20
        )
    }

    fn node(index: usize, cpus: &str, bytes: u64) -> String {
        format!(
            "<object type=\"NUMANode\" os_index=\"{index}\" cpuset=\"{cpus}\" local_memory=\"{bytes}\"/>\n"
        )
    }

    fn topology(inner: &str, after: &str) -> String {
        format!(
            "{HEAD}<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\">\n{inner}</object>\n{after}</topology>\n"
        )
    }

    #[test]
    fn caches_nodes_and_distances_are_told() {
        let first = node(0, "0x00000005", 1 << 30) + &l3(32, &core(&[0, 2], 1_024));
        let second = node(1, "0x0000000a", 0) + &l3(96, &core(&[1, 3], 1_024));
        let card = node(4, "0x0", 1 << 30);
        let far = "<distances2 type=\"NUMANode\" nbobjs=\"3\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">\n\
             <indexes length=\"6\">0 1 4 </indexes><u64values length=\"27\">10 21 17 21 10 28 17 28 10 </u64values></distances2>\n";
        let found = read("x", &topology(&(first + &second + &card), far)).unwrap();
        let numbers: Vec<_> = found
            .cpus
            .iter()
            .map(|cpu| (cpu.number, cpu.node))
            .collect();
        assert_eq!(numbers, [(0, 0), (1, 1), (2, 0), (3, 1)]);
        let same = |a: usize, b: usize| {
            (
                found.cpus[a].core == found.cpus[b].core,
                found.cpus[a].llc == found.cpus[b].llc,
            )
        };
        assert_eq!((same(0, 2), same(0, 1)), ((true, true), (false, false)));
        let bytes: Vec<u64> = found.llc_bytes.iter().map(|(_, bytes)| *bytes).collect();
        assert_eq!(bytes, [32 << 20, 96 << 20]);
        let private = Private {
            bytes: 1 << 20,
            ways: 8,
            line_bytes: 64,
        };
        assert_eq!(found.private, Some(private));
        assert_eq!(
            (found.nodes, found.nodes_without_memory),
            (vec![0, 1, 4], vec![1])
        );
        let rows = vec![vec![10, 21, 17], vec![21, 10, 28], vec![17, 28, 10]];
        assert_eq!(found.distances, Some(rows));
    }

    #[test]
    fn capacities_are_those_of_the_kinds() {
        let cores = core(&[0], 2_048) + &core(&[1], 512);
        let kinds = |info: &str| {
            format!(
                "<cpukind cpuset=\"0x1\"><info name=\"{info}\" value=\"1024\"/></cpukind>\n\
                 <cpukind cpuset=\"0x2\"><info name=\"{info}\" value=\"640\"/></cpukind>\n"
            )
        };
        let of = |info: &str| {
            let found = read("x", &topology(&l3(8, &cores), &kinds(info))).unwrap();
            let capacities: Vec<_> = found.cpus.iter().map(|cpu| cpu.capacity).collect();
            (capacities, found.capacity_source.is_some())
        };
        assert_eq!(of("LinuxCapacity"), (vec![Some(1_024), Some(640)], false));
        assert_eq!(of("FrequencyMaxMHz"), (vec![Some(1_024), Some(640)], true));
        assert_eq!(of("CoreType"), (vec![None, None], false));
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_told_with_its_line() {
        let whole = topology(&l3(32, &core(&[0, 2], 1_024)), "");
        let cut = &whole[..whole.find("os_index=\"2\"").unwrap()];
        let cut_line = cut.lines().count();
        let far = "<distances2 type=\"NUMANode\" indexing=\"os\"><indexes>0</indexes><u64values>10 21</u64values></distances2>\n";
        for (text, what) in [
            (
                cut.to_owned(),
                format!("x:{cut_line}: no XML, or cut short"),
            ),
            (
                format!("{HEAD}<svg>\n</svg>"),
                "x:3: the outermost element is <svg>".to_owned(),
            ),
            (topology("", ""), "x:3: no PU".to_owned()),
            (
                topology(&core(&[7, 7], 1), ""),
                "x:7: PU 7 is there twice".to_owned(),
            ),
            (
                whole.replace("os_index=\"2\"", "os_index=\"two\""),
                "x:8: a PU has `two` as os_index".to_owned(),
            ),
            (
                topology(&(node(0, "0xf...f", 1) + &core(&[0], 1)), ""),
                "x:5: NUMANode 0: the cpuset".to_owned(),
            ),
            (
                topology(&core(&[0], 1), far),
                "x:9: distances of 1 nodes and 2 numbers".to_owned(),
            ),
        ] {
            let error = read("x", &text).unwrap_err().to_string();
            assert!(error.starts_with(&what), "{error} is not {what}:\n{text}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
