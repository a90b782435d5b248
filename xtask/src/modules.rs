//! Prints the module graph of each crate, and complains of circles in it.
//!
//! A circle is a set of modules in which each needs each other one, at the shortest two that need each other.
//! None may be there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use crate::module_graph::{self, Module, Needs, name};

/// Modules of one crate that need each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Circle {
    of: String,
    modules: BTreeSet<String>,
}

impl Circle {
    fn line(&self) -> String {
        let modules: Vec<&str> = self.modules.iter().map(String::as_str).collect();
        format!("{}: {}", self.of, modules.join(" "))
    }
}

/// One crate's graph.
struct Graph {
    of: String,
    needs: Needs,
}

/// Prints the graphs of the crates in `wanted` (of all if it is empty). The error is one line.
pub fn print(root: &Path, wanted: &[String]) -> Result<(), String> {
    let graphs = graphs(root)?;
    if let Some(unknown) = wanted
        .iter()
        .find(|name| graphs.iter().all(|graph| graph.of != **name))
    {
        let known: Vec<&str> = graphs.iter().map(|graph| graph.of.as_str()).collect();
        return Err(format!(
            "modules: there is no crate {unknown}: choose among {}",
            known.join(", ")
        ));
    }
    for graph in graphs
        .iter()
        .filter(|graph| wanted.is_empty() || wanted.contains(&graph.of))
    {
        println!("{}", graph.of);
        for (module, needs) in &graph.needs {
            let needs: Vec<String> = needs.keys().map(|other| name(other)).collect();
            println!(
                "  {} -> {}",
                name(module),
                if needs.is_empty() {
                    "nothing".to_owned()
                } else {
                    needs.join(", ")
                }
            );
        }
    }
    Ok(())
}

/// Returns the circles of all crates, each with the places that make it.
pub fn check(root: &Path) -> Vec<String> {
    match graphs(root) {
        Ok(graphs) => complaints(&graphs),
        Err(why) => vec![why],
    }
}

fn complaints(graphs: &[Graph]) -> Vec<String> {
    let mut complaints = Vec::new();
    for graph in graphs {
        for circle in circles(graph) {
            complaints.push(format!("{}: modules need each other:", circle.line()));
            complaints.extend(links(graph, &circle));
        }
    }
    complaints
}

/// The circles of a graph, in order.
fn circles(graph: &Graph) -> Vec<Circle> {
    let modules: Vec<&Module> = graph.needs.keys().collect();
    let place = |module: &Module| {
        modules
            .binary_search(&module)
            .expect("a module that is needed is there")
    };
    let mut net = DiGraph::<&Module, ()>::new();
    let nodes: Vec<_> = modules.iter().map(|module| net.add_node(module)).collect();
    for (&from, needs) in nodes.iter().zip(graph.needs.values()) {
        for to in needs.keys() {
            net.add_edge(from, nodes[place(to)], ());
        }
    }
    let mut circles: Vec<Circle> = tarjan_scc(&net)
        .into_iter()
        .filter(|part| part.len() > 1)
        .map(|part| Circle {
            of: graph.of.clone(),
            modules: part.into_iter().map(|at| name(net[at])).collect(),
        })
        .collect();
    circles.sort();
    circles
}

/// Which of a circle's modules needs which, and where it says so.
fn links<'a>(graph: &'a Graph, circle: &'a Circle) -> impl Iterator<Item = String> + 'a {
    let inside = |module: &Module| circle.modules.contains(&name(module));
    graph
        .needs
        .iter()
        .filter(move |(from, _)| inside(from))
        .flat_map(move |(from, needs)| {
            needs
                .iter()
                .filter(move |(to, _)| inside(to))
                .map(move |(to, place)| {
                    format!(
                        "  {}:{}: {} needs {}",
                        place.file.display(),
                        place.line,
                        name(from),
                        name(to)
                    )
                })
        })
}

fn graphs(root: &Path) -> Result<Vec<Graph>, String> {
    let folder = root.join("crates");
    let entries = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut crates: Vec<(String, PathBuf)> = entries
        .filter_map(Result::ok)
        .map(|entry| {
            (
                entry.file_name().to_string_lossy().into_owned(),
                entry.path(),
            )
        })
        .chain([("xtask".to_owned(), root.join("xtask"))])
        .collect();
    crates.sort();
    let mut graphs = Vec::new();
    for (of, folder) in crates {
        for file in ["lib.rs", "main.rs"] {
            let file = folder.join("src").join(file);
            if file.exists() {
                let needs = module_graph::read(&file)?;
                let needs = needs
                    .into_iter()
                    .map(|(from, to)| (from, relative(root, to)))
                    .collect();
                graphs.push(Graph {
                    of: of.clone(),
                    needs,
                });
            }
        }
    }
    Ok(graphs)
}

fn relative(
    root: &Path,
    mut needs: std::collections::BTreeMap<Module, module_graph::Place>,
) -> std::collections::BTreeMap<Module, module_graph::Place> {
    for place in needs.values_mut() {
        if let Ok(file) = place.file.strip_prefix(root) {
            place.file = file.to_owned();
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module_graph::Place;

    fn graph(needs: &[(&str, &[&str])]) -> Graph {
        let module = |name: &str| vec![name.to_owned()];
        let place = || Place {
            file: "a.rs".into(),
            line: 7,
        };
        let needs = needs.iter().map(|(from, to)| {
            (
                module(from),
                to.iter().map(|to| (module(to), place())).collect(),
            )
        });
        Graph {
            of: "x".to_owned(),
            needs: needs.collect(),
        }
    }

    #[test]
    fn the_repository_has_no_circles() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert_eq!(check(root), Vec::<String>::new());
    }

    #[test]
    fn a_circle_is_found_with_its_places() {
        let circle = [graph(&[
            ("a", &["b"]),
            ("b", &["a", "c"]),
            ("c", &[]),
            ("d", &["a"]),
        ])];
        let none = [graph(&[
            ("a", &["b"]),
            ("b", &["c"]),
            ("c", &[]),
            ("d", &["a"]),
        ])];
        let found = [
            "x: a b: modules need each other:",
            "  a.rs:7: a needs b",
            "  a.rs:7: b needs a",
        ];
        assert_eq!(complaints(&circle), found);
        assert!(complaints(&none).is_empty());
    }
}
