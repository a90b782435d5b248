//! A copy of `/sys/devices/system/cpu` and `/sys/devices/system/node`.
//!
//! A file that a copy lacks is reported with its path: the machine is not at hand to be read again.

use std::fs;
use std::path::Path;

use schedlab_trace::{CpuId, CpuSet};

use super::error::FromError;
use super::found::{Found, FoundCpu, Private};

/// How to make the folder.
const HOW: &str = "copy it by cp -r /sys/devices/system/cpu /sys/devices/system/node FOLDER";

/// Where the folders may lie in what was given.
const PLACES: [&str; 4] = ["sys/devices/system", "devices/system", "system", ""];

/// Reads the copy in `folder`.
pub(super) fn read(folder: &Path) -> Result<Found, FromError> {
    let roots = PLACES.iter().map(|place| folder.join(place));
    let root = roots
        .into_iter()
        .find(|root| root.join("cpu/cpu0").is_dir() || root.join("cpu/online").is_file());
    let Some(root) = root else {
        let message = format!("has neither cpu/online nor cpu/cpu0, nor sys/devices/system: {HOW}");
        return Err(FromError::foreign(&folder.display().to_string(), message));
    };
    let mut found = Found {
        told_by: "a copy of /sys/devices/system",
        ..Found::default()
    };
    let cpus = list(&root.join("cpu/online"))?.filter(|cpus| !cpus.is_empty());
    let Some(cpus) = cpus else {
        let file = root.join("cpu/online").display().to_string();
        return Err(FromError::foreign(&file, format!("names no CPU: {HOW}")));
    };
    let nodes = nodes(&root, &mut found)?;
    for &cpu in &cpus {
        let folder = root.join(format!("cpu/cpu{cpu}"));
        let siblings = ["thread_siblings_list", "core_cpus_list"]
            .into_iter()
            .find_map(|name| list(&folder.join("topology").join(name)).transpose())
            .transpose()?;
        let Some(siblings) = siblings else {
            let file = folder
                .join("topology/thread_siblings_list")
                .display()
                .to_string();
            return Err(FromError::foreign(&file, format!("is not there: {HOW}")));
        };
        let caches = caches(&folder, &siblings)?;
        let last = caches.last();
        let package = text(&folder.join("topology/physical_package_id"))?.unwrap_or_default();
        let llc = last.map_or_else(|| format!("package {package}"), |last| last.name.clone());
        if let Some(last) = last
            && let Some(bytes) = last.bytes
            && !found.llc_bytes.iter().any(|(name, _)| *name == llc)
        {
            found.llc_bytes.push((llc.clone(), bytes));
        }
        let private = caches
            .iter()
            .rfind(|cache| cache.is_private && Some(&cache.name) != last.map(|last| &last.name));
        let private = private.or_else(|| caches.iter().rfind(|cache| cache.is_private));
        if found.private.is_none()
            && let Some(cache) = private
            && let Some(bytes) = cache.bytes
        {
            found.private = Some(Private {
                bytes,
                ways: cache.ways,
                line_bytes: cache.line_bytes,
            });
        }
        let capacity = folder.join("cpu_capacity");
        let capacity = match text(&capacity)? {
            None => None,
            Some(text) => Some(
                text.parse::<u64>()
                    .map_err(|_| not_a_number(&capacity, &text))?,
            ),
        };
        found.cpus.push(FoundCpu {
            number: cpu,
            core: format!("{siblings:?}"),
            llc,
            node: nodes
                .iter()
                .find(|(_, cpus)| cpus.contains(&cpu))
                .map_or(0, |(node, _)| *node),
            cache_bytes: private.and_then(|cache| cache.bytes),
            capacity,
        });
    }
    if found.llc_bytes.is_empty() {
        found.notes.push("the copy describes no cache (virtual machines hide it): the CPUs of a package are taken to share one".to_owned());
    }
    Ok(found)
}

/// A file without the white space around it; none if it is not there or empty.
fn text(path: &Path) -> Result<Option<String>, FromError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FromError::Read {
            file: path.display().to_string(),
            error,
        }),
    }
}

fn not_a_number(path: &Path, text: &str) -> FromError {
    let shown: String = text.chars().take(40).collect();
    FromError::wrong(
        &path.display().to_string(),
        1,
        format!("`{shown}` is not a number: {HOW}"),
    )
}

/// A file with a list of CPUs.
fn list(path: &Path) -> Result<Option<Vec<usize>>, FromError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    match text.parse::<CpuSet>() {
        Ok(cpus) => Ok(Some(cpus.iter().map(CpuId::index).collect())),
        Err(error) => Err(FromError::wrong(
            &path.display().to_string(),
            1,
            error.to_string(),
        )),
    }
}

struct Cache {
    level: u32,
    name: String,
    bytes: Option<u64>,
    ways: u32,
    line_bytes: u32,
    is_private: bool,
}

/// Data and unified caches of a CPU, from the core outwards.
fn caches(cpu: &Path, siblings: &[usize]) -> Result<Vec<Cache>, FromError> {
    let mut found = Vec::new();
    for index in 0..16 {
        let folder = cpu.join(format!("cache/index{index}"));
        let Some(level) = number(&folder.join("level"))? else {
            continue;
        };
        if text(&folder.join("type"))?.as_deref() == Some("Instruction") {
            continue;
        }
        let file = folder.join("shared_cpu_list");
        let Some(shared) = list(&file)? else {
            return Err(FromError::foreign(
                &file.display().to_string(),
                format!("is not there: {HOW}"),
            ));
        };
        let size = folder.join("size");
        let bytes = match text(&size)? {
            None => None,
            Some(text) => Some(bytes(&text).ok_or_else(|| not_a_number(&size, &text))?),
        };
        let small = |name: &str| number(&folder.join(name)).map(|value| value.unwrap_or(0));
        found.push(Cache {
            level,
            name: format!("L{level} of {shared:?}"),
            bytes,
            ways: small("ways_of_associativity")?,
            line_bytes: small("coherency_line_size")?,
            is_private: shared.iter().all(|cpu| siblings.contains(cpu)),
        });
    }
    found.sort_by_key(|cache| cache.level);
    Ok(found)
}

fn number(path: &Path) -> Result<Option<u32>, FromError> {
    match text(path)? {
        None => Ok(None),
        Some(text) => Ok(Some(text.parse().map_err(|_| not_a_number(path, &text))?)),
    }
}

/// A size as sysfs writes it: `1024K`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
        .filter(|&bytes| bytes > 0)
}

/// Notes the nodes, their memory and distances. Returns the CPUs of each.
fn nodes(root: &Path, found: &mut Found) -> Result<Vec<(usize, Vec<usize>)>, FromError> {
    let folder = root.join("node");
    if !folder.is_dir() {
        found
            .notes
            .push("the copy has no folder node: one node is assumed".to_owned());
        found.nodes = vec![0];
        return Ok(Vec::new());
    }
    let online = list(&folder.join("online"))?.unwrap_or_else(|| vec![0]);
    let mut all = Vec::new();
    let mut distances = Vec::new();
    for &node in &online {
        let folder = folder.join(format!("node{node}"));
        // A node without CPUs has an empty list.
        all.push((node, list(&folder.join("cpulist"))?.unwrap_or_default()));
        if let Some(kb) = memory_kb(&folder.join("meminfo"))?
            && kb == 0
        {
            found.nodes_without_memory.push(node);
        }
        let file = folder.join("distance");
        if let Some(text) = text(&file)? {
            let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
            let row = row.map_err(|_| not_a_number(&file, &text))?;
            if row.len() != online.len() {
                let message = format!(
                    "{} distances where {} nodes are online: {HOW}",
                    row.len(),
                    online.len()
                );
                return Err(FromError::wrong(&file.display().to_string(), 1, message));
            }
            distances.push(row);
        }
    }
    if distances.len() == online.len() {
        found.distances = Some(distances);
    }
    found.nodes = online;
    Ok(all)
}

/// `Node 0 MemTotal: 65804544 kB`; none without such a line.
fn memory_kb(path: &Path) -> Result<Option<u64>, FromError> {
    let Some(text) = text(path)? else {
        return Ok(None);
    };
    for (index, line) in text.lines().enumerate() {
        if let Some((_, rest)) = line.split_once("MemTotal:") {
            let number = rest.split_whitespace().next().unwrap_or_default();
            let file = path.display().to_string();
            let wrong = |_| {
                FromError::wrong(
                    &file,
                    index + 1,
                    format!("`{number}` is not a number: {HOW}"),
                )
            };
            return number.parse().map(Some).map_err(wrong);
        }
    }
    Ok(None)
}
