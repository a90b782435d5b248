//! Compiles a source for BPF that was written for the headers of an earlier kernel or of an earlier scx, as it is.
//!
//! Such a source calls functions under names that are retired, or with fewer arguments; it has a copy of headers of its time beside
//! it, or functions of its own whose names the headers of today have taken. What the headers declare and the source declares
//! otherwise is the source's.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::for_bpf::{self, Attempt};

const RETIRED: &str = include_str!("older/retired.h");
const COMMON: &str = include_str!("older/scx/common.h");

/// Folders above a source's in which its project may have headers.
const ABOVE: usize = 3;

/// How often names are set aside before it is given up: each time clang shows those behind the ones before.
const ROUNDS: usize = 6;

/// Names and headers that were in the way of an attempt.
#[derive(Clone, PartialEq, Eq, Default)]
struct Aside {
    /// Names of `vmlinux.h` that another header or the source declares otherwise.
    of_types: BTreeSet<String>,
    /// Names of `<scx/common.bpf.h>` that the source or its own headers declare otherwise.
    of_scx: BTreeSet<String>,
    /// Whether the program's `vmlinux.h` comes in place of the source's: its own lacks what the program's other headers need.
    own_types: bool,
    /// Paths of a `vmlinux.h` that the source includes and that its author makes of a running kernel.
    types: BTreeSet<PathBuf>,
    /// Whether it has atomic operations that only the newer instruction set has.
    newer_instructions: bool,
}

/// Compiles a source with the program's headers in its order of an earlier kernel.
///
/// # Errors
/// The first errors of the attempt that had fewest.
pub fn compile(
    source: &Path,
    headers: &[PathBuf],
    files: &mut Vec<PathBuf>,
) -> Result<Vec<u8>, Vec<String>> {
    let near = near(source);
    let ours_first = [headers, &near].concat();
    let mut orders = vec![ours_first];
    if has_own(&near, headers) {
        orders.push([near.as_slice(), headers].concat());
    }
    let mut best: Option<Vec<String>> = None;
    for order in orders {
        let mut aside = Aside::default();
        for _ in 0..ROUNDS {
            match attempt(source, &order, headers, &aside, files) {
                Ok(elf) => return Ok(elf),
                Err(errors) => {
                    let before = aside.clone();
                    aside.learn(&errors, headers);
                    if best.as_ref().is_none_or(|best| errors.len() < best.len()) {
                        best = Some(errors);
                    }
                    if aside == before {
                        break;
                    }
                }
            }
        }
    }
    Err(best.unwrap_or_default())
}

/// The folders in which a source's project may have headers.
fn near(source: &Path) -> Vec<PathBuf> {
    let beside = for_bpf::beside(source);
    let mut near = vec![beside.clone()];
    let Ok(full) = beside.canonicalize() else {
        return near;
    };
    for folder in full.ancestors().take(1 + ABOVE) {
        let include = folder.join("include");
        if include.is_dir() && folder.parent().is_some() {
            near.push(include);
        }
        if folder.join(".git").exists() {
            break;
        }
    }
    near
}

/// Whether a project has a header of its own in place of one of the program's.
fn has_own(near: &[PathBuf], headers: &[PathBuf]) -> bool {
    const KNOWN: [&str; 3] = ["vmlinux.h", "scx/common.bpf.h", "bpf/bpf_helpers.h"];
    let has = |folder: &PathBuf| KNOWN.iter().any(|header| folder.join(header).is_file());
    near.iter().any(has) && headers.iter().any(has)
}

fn attempt(
    source: &Path,
    order: &[PathBuf],
    headers: &[PathBuf],
    aside: &Aside,
    files: &mut Vec<PathBuf>,
) -> Result<Vec<u8>, Vec<String>> {
    let failed = |error: std::io::Error| vec![format!("{}: {error}", source.display())];
    let folder = tempfile::tempdir().map_err(failed)?;
    let ahead = folder.path().join("ahead.h");
    let types = headers.iter().map(|folder| folder.join("vmlinux.h"));
    let types = types.into_iter().find(|path| path.is_file());
    fs::create_dir(folder.path().join("scx")).map_err(failed)?;
    let common = folder.path().join("scx/common.bpf.h");
    fs::write(&ahead, aside.ahead(types.as_deref())).map_err(failed)?;
    fs::write(common, aside.common()).map_err(failed)?;
    let mut include = vec![folder.path().to_owned()];
    if let Some(types) = &types {
        // "../headers/vmlinux.h" is looked up from the source's folder first, and from here then.
        let from = folder.path().join("a/b/c");
        fs::create_dir_all(&from).map_err(failed)?;
        for path in &aside.types {
            put_types(folder.path(), &from.join(path), types).map_err(failed)?;
        }
        include.push(from);
    }
    // The source's own headers come before what stands for the program's only where they come before the program's.
    let at = order
        .iter()
        .position(|it| headers.contains(it))
        .unwrap_or(0);
    let include = [&order[..at], &include, &order[at..]].concat();
    let attempt = Attempt {
        ahead: Some(&ahead),
        all_errors: true,
        newer_instructions: aside.newer_instructions,
        ..Attempt::new(source, &include)
    };
    let elf = for_bpf::attempt(&attempt, files)?;
    let ours = folder.path().to_owned();
    files.retain(|file| !file.starts_with(&ours));
    Ok(elf)
}

/// Puts a header that stands for the program's types, if it lies in the folder.
fn put_types(folder: &Path, path: &Path, types: &Path) -> std::io::Result<()> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    let Some(parent) = plain.parent().filter(|_| plain.starts_with(folder)) else {
        return Ok(());
    };
    fs::create_dir_all(parent)?;
    fs::write(&plain, format!("#include \"{}\"\n", types.display()))
}

impl Aside {
    /// The header that comes before all others.
    fn ahead(&self, types: Option<&Path>) -> String {
        let mut text = RETIRED.to_owned();
        if let Some(types) = types.filter(|_| self.own_types || !self.of_types.is_empty()) {
            let include = format!("#include \"{}\"\n", types.display());
            text.push_str(&set_aside(&self.of_types, "types", &include));
        }
        text
    }

    /// The header in place of `<scx/common.bpf.h>`.
    fn common(&self) -> String {
        let mut names = self.of_scx.clone();
        names.insert("scx_bpf_select_cpu_and".to_owned());
        let include = "#include_next <scx/common.bpf.h>\n";
        set_aside(&names, "scx", include) + COMMON
    }

    /// Learns from clang's errors what to set aside.
    fn learn(&mut self, errors: &[String], headers: &[PathBuf]) {
        for line in errors {
            if line.contains("error in backend: Cannot select") {
                self.newer_instructions = true;
            }
            let Some((place, what)) = line.split_once("error: ") else {
                continue;
            };
            let is_ours = headers.iter().any(|it| Path::new(place).starts_with(it));
            self.own_types |= is_ours;
            let name = |text: &str| Some(text.split_once('\'')?.1.split_once('\'')?.0.to_owned());
            let Some(name) = name(what) else {
                continue;
            };
            let path = Path::new(&name);
            if what.ends_with("file not found") && path.ends_with("vmlinux.h") {
                self.types.insert(path.to_owned());
            }
            let clashes = [
                "conflicting types for ",
                "redefinition of ",
                "static declaration of ",
            ];
            if clashes.iter().any(|clash| what.starts_with(clash)) {
                if !is_ours {
                    self.of_scx.insert(name.clone());
                }
                self.of_types.insert(name);
            }
        }
    }
}

/// A header in which some names are others.
fn set_aside(names: &BTreeSet<String>, prefix: &str, include: &str) -> String {
    let mut text = String::new();
    for name in names {
        let _ = writeln!(text, "#define {name} lab_{prefix}_{name}");
    }
    text.push_str(include);
    for name in names {
        let _ = writeln!(text, "#undef {name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clashes_is_set_aside_where_it_comes_from() {
        let headers = [PathBuf::from("/headers")];
        let mut aside = Aside::default();
        let errors = [
            "/headers/scx/compat.bpf.h:122:20: error: static declaration of 'one' follows non-static declaration",
            "./x.bpf.c:4:13: error: redefinition of 'two'",
            "x.bpf.c:9:2: error: call to undeclared function 'three'; …",
            "x.bpf.c:1:10: fatal error: '../headers/vmlinux.h' file not found",
        ];
        aside.learn(&errors.map(str::to_owned), &headers);
        assert!(aside.own_types && !aside.newer_instructions);
        assert_eq!(aside.of_types.iter().collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(aside.of_scx.iter().collect::<Vec<_>>(), ["two"]);
        assert_eq!(aside.types.len(), 1);
        let before = aside.clone();
        aside.learn(&errors.map(str::to_owned), &headers);
        assert!(aside == before, "nothing new is learnt");
        let text = aside.ahead(Some(Path::new("/headers/vmlinux.h")));
        let end = "#define one lab_types_one\n#define two lab_types_two\n#include \"/headers/vmlinux.h\"\n#undef one\n#undef two\n";
        assert!(text.ends_with(end), "{text}");
    }

    /// Types of its own time lie beside the source, a function of its own has a name that is taken, functions are retired, and one has
    /// an argument less than today.
    #[test]
    fn a_source_of_an_earlier_time_compiles_as_it_is() {
        if let Err(why) = crate::clang::find() {
            return schedlab_testing::skipped(&format!("sources of an earlier time: {why}"));
        }
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(
            "program/vmlinux.h",
            "#ifndef __VMLINUX_H__\n#define __VMLINUX_H__\n\
             typedef unsigned long long u64; typedef int s32; typedef _Bool bool;\n\
             struct task_struct { int pid; }; struct cpumask { u64 bits; };\n\
             extern s32 scx_bpf_kick_cid(s32 cid);\n#endif\n",
        );
        put(
            "program/scx/common.bpf.h",
            "#ifndef COMMON\n#define COMMON\n#include \"vmlinux.h\"\n\
             #define __ksym __attribute__((section(\".ksyms\")))\n#define __weak __attribute__((weak))\n\
             #define bpf_ksym_exists(sym) (!!sym)\n\
             static inline void scx_bpf_kick_cid(s32 cid) {}\n\
             static inline bool time_before(u64 a, u64 b) { return a < b; }\n\
             bool scx_bpf_dsq_move_to_local___v2___compat(u64 id, u64 flags) __ksym __weak;\n\
             bool scx_bpf_dsq_move_to_local___v1(u64 id) __ksym __weak;\n\
             #define scx_bpf_dsq_move_to_local(id, flags) scx_bpf_dsq_move_to_local___v1(id)\n#endif\n",
        );
        put("mine/bpf/vmlinux.h", "typedef unsigned long long u64;\n");
        put(
            "mine/bpf/mine.bpf.c",
            "#include \"../made/vmlinux.h\"\n#include <scx/common.bpf.h>\n\
             static bool time_before(u64 a, u64 b) { return a > b; }\n\
             void enqueue(struct task_struct *p) { scx_bpf_dispatch(p, 1, 2, time_before(p->pid, 3)); }\n\
             bool dispatch(void) { return scx_bpf_dsq_move_to_local(1); }\n",
        );
        let headers = [folder.path().join("program")];
        let source = folder.path().join("mine/bpf/mine.bpf.c");
        let mut files = Vec::new();
        let elf =
            compile(&source, &headers, &mut files).unwrap_or_else(|errors| panic!("{errors:#?}"));
        assert!(!elf.is_empty());
        assert!(files.contains(&source), "{files:?}");
        assert!(files.iter().all(|file| file.is_file()), "{files:?}");
        // A mistake of its own stays one, with its line.
        fs::write(&source, "#include <scx/common.bpf.h>\nint x = nowhere;\n").unwrap();
        let errors = compile(&source, &headers, &mut files).unwrap_err();
        assert!(
            errors[0].contains("mine.bpf.c:2:9: error: use of undeclared"),
            "{errors:?}"
        );
    }
}
