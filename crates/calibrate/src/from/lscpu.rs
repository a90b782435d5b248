//! The output of `lscpu -p` (util-linux): comments, of which the last one names the columns, and a line for each CPU.

use super::error::{FromError, KINDS};
use super::found::{Found, FoundCpu};

/// How to make the file.
const HOW: &str = "write it by lscpu -p >FILE";

/// Reads it; `file` names it in messages.
pub(super) fn read(file: &str, text: &str) -> Result<Found, FromError> {
    let columns = columns(file, text)?;
    let place = |name: &str| columns.iter().position(|column| column == name);
    let need = |name: &str| {
        place(name).ok_or_else(|| {
            let line = 1 + text.lines().position(is_header).unwrap_or(0);
            FromError::wrong(file, line, format!("there is no column {name}: {HOW}"))
        })
    };
    let (cpu, core) = (need("cpu")?, need("core")?);
    let (socket, node) = (place("socket"), place("node"));
    let online = place("online");
    // Without arguments lscpu shows instruction caches, too; they say nothing of the last level.
    let caches: Vec<usize> = ["l4", "l3", "l2", "l1d"]
        .iter()
        .filter_map(|name| place(name))
        .collect();
    let mut found = Found {
        told_by: "lscpu -p",
        ..Found::default()
    };
    if caches.is_empty() {
        found.notes.push(
            "the columns name no cache: the CPUs of a socket are taken to share one".to_owned(),
        );
    }
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        if text.starts_with('#') || text.trim().is_empty() {
            continue;
        }
        let record = record(text)
            .map_err(|error| FromError::wrong(file, line, format!("{error}: {HOW}")))?;
        if record.len() != columns.len() {
            let message = format!(
                "{} fields under {} columns: the file is cut short or not of lscpu; {HOW}",
                record.len(),
                columns.len()
            );
            return Err(FromError::wrong(file, line, message));
        }
        let field = |column: Option<usize>| {
            let text = column
                .and_then(|column| record.get(column))
                .unwrap_or("")
                .trim();
            Some(text).filter(|text| !text.is_empty() && *text != "-")
        };
        if field(online).is_some_and(|online| matches!(online, "N" | "no")) {
            continue;
        }
        let number = |name: &str, column: Option<usize>| match field(column) {
            None => Ok(None),
            Some(text) => match text.parse::<usize>() {
                Ok(number) if number < 65_536 => Ok(Some(number)),
                _ => {
                    let message = format!("{name} is `{text}`, not a number: {HOW}");
                    Err(FromError::wrong(file, line, message))
                }
            },
        };
        let Some(cpu) = number("CPU", Some(cpu))? else {
            return Err(FromError::wrong(
                file,
                line,
                format!("a line without a CPU: {HOW}"),
            ));
        };
        if found
            .cpus
            .iter()
            .any(|known: &FoundCpu| known.number == cpu)
        {
            let message = format!("CPU {cpu} is there twice: {HOW}");
            return Err(FromError::wrong(file, line, message));
        }
        let socket = number("Socket", socket)?.unwrap_or(0);
        let node = number("Node", node)?.unwrap_or(0);
        let core = number("Core", Some(core))?;
        let llc = caches.iter().find_map(|&column| {
            field(Some(column)).map(|number| format!("{} {number}", columns[column]))
        });
        found.cpus.push(FoundCpu {
            number: cpu,
            core: core.map_or_else(|| format!("cpu {cpu}"), |core| format!("{socket}/{core}")),
            llc: llc.unwrap_or_else(|| format!("socket {socket}")),
            node,
            cache_bytes: None,
            capacity: None,
        });
    }
    if found.cpus.is_empty() {
        let line = text.lines().count().max(1);
        let message = format!("no CPU follows: the file is cut short; {HOW}");
        return Err(FromError::wrong(file, line, message));
    }
    found.cpus.sort_by_key(|cpu| cpu.number);
    found.nodes = found.cpus.iter().map(|cpu| cpu.node).collect();
    found.nodes.sort_unstable();
    found.nodes.dedup();
    found.notes.push(
        "lscpu -p tells no sizes of caches, distances or memory of nodes: lstopo's XML does"
            .to_owned(),
    );
    Ok(found)
}

/// Reads the fields of a line. Each is read by itself, so that errors name its place: no field of `lscpu` has a line break.
fn record(line: &str) -> Result<csv::StringRecord, csv::Error> {
    let mut reader = csv::ReaderBuilder::new();
    let reader = reader.has_headers(false).from_reader(line.as_bytes());
    let mut records = reader.into_records();
    records
        .next()
        .unwrap_or_else(|| Ok(csv::StringRecord::new()))
}

fn is_header(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|line| {
        line.trim_start().to_ascii_lowercase().starts_with("cpu,")
            || line.trim().eq_ignore_ascii_case("cpu")
    })
}

/// The names of the columns in lower case.
fn columns(file: &str, text: &str) -> Result<Vec<String>, FromError> {
    let Some(header) = text.lines().rfind(|line| is_header(line)) else {
        let message = format!(
            "no line names the columns (# CPU,Core,Socket,Node,…): {}",
            KINDS
        );
        return Err(FromError::wrong(file, 1, message));
    };
    let names = header.trim_start_matches('#').trim().split(',');
    Ok(names.map(|name| name.trim().to_ascii_lowercase()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# The following is the parsable format, which can be fed to other\n\
         # programs. Each different item in every column has an unique ID\n\
         # starting usually from zero.\n\
         # CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n";

    #[test]
    fn cores_caches_and_nodes_are_by_their_numbers() {
        let text = format!(
            "{HEAD}0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,2,1,1,,2,2,2,1\n3,0,0,0,,0,0,0,0\n"
        );
        let found = read("x", &text).unwrap();
        let cpus: Vec<_> = found
            .cpus
            .iter()
            .map(|cpu| (cpu.core.as_str(), cpu.llc.as_str(), cpu.node))
            .collect();
        assert_eq!(
            cpus,
            [
                ("0/0", "l3 0", 0),
                ("0/1", "l3 0", 0),
                ("1/2", "l3 1", 1),
                ("0/0", "l3 0", 0)
            ]
        );
        assert_eq!(found.nodes, [0, 1]);
    }

    #[test]
    fn other_columns_will_do_and_offline_cpus_are_left_out() {
        let text = "# CPU,Core,Online,L2\n0,0,Y,0\n1,1,N,-\n2,2,Y,1\n";
        let found = read("x", text).unwrap();
        assert_eq!(
            found.cpus.iter().map(|cpu| cpu.number).collect::<Vec<_>>(),
            [0, 2]
        );
        assert_eq!(found.cpus[1].llc, "l2 1");
    }

    #[test]
    fn what_is_cut_short_or_foreign_is_told_with_its_line() {
        for (text, what) in [
            (HEAD.to_owned(), "x:4: no CPU follows"),
            (
                format!("{HEAD}0,0,0,0,,0,0,0,0\n1,1,0"),
                "x:6: 3 fields under 9 columns",
            ),
            (
                format!("{HEAD}0,0,0,0,,0,0,0,0\n0,0,0,0,,0,0,0,0\n"),
                "x:6: CPU 0 is there twice",
            ),
            (
                format!("{HEAD}zero,0,0,0,,0,0,0,0\n"),
                "x:5: CPU is `zero`, not a number",
            ),
            (
                "# CPU,Socket\n0,0\n".to_owned(),
                "x:1: there is no column core",
            ),
            (
                "CPU NODE\n0 0\n".to_owned(),
                "x:1: no line names the columns",
            ),
            (
                "Architecture: x86_64\n".to_owned(),
                "x:1: no line names the columns",
            ),
        ] {
            let error = read("x", &text).unwrap_err().to_string();
            assert!(error.starts_with(what), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
