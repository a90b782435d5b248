//! Reads which modules of a crate name which others.
//!
//! A module needs another one if a path in its code, tests apart, leads to an item that the other one defines. Names
//! that are imported or re-exported are followed to their definition. A re-export that the module itself does not
//! use, the call of a method and a link in a comment are no needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A module's place below the crate's root, which is the empty one.
pub type Module = Vec<String>;

/// Which modules each module needs, with the first place in its file that says so.
pub type Needs = BTreeMap<Module, BTreeMap<Module, Place>>;

/// A line of a file, counted from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub file: PathBuf,
    pub line: usize,
}

/// A module's name as in `crate::a::b`; the root's is `crate`.
pub fn name(module: &[String]) -> String {
    if module.is_empty() {
        "crate".to_owned()
    } else {
        module.join("::")
    }
}

/// Reads the crate whose root file is `root`. The error names the file that cannot be read and says why.
pub fn read(root: &Path) -> Result<Needs, String> {
    let mut modules = Modules::default();
    let folder = root.parent().unwrap_or(Path::new(""));
    modules.read_file(root, folder, Vec::new())?;
    Ok(modules.needs())
}

/// The parts of one module that are read before names are followed.
#[derive(Default)]
struct Parts {
    file: PathBuf,
    items: BTreeSet<String>,
    /// Imported names, with the paths that they stand for.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths with more than one part, with their lines.
    paths: Vec<(Vec<String>, usize)>,
    /// The same of re-exports, which count only if the module uses the name itself.
    reexports: Vec<(Vec<String>, usize)>,
    /// Names that stand alone in the code.
    names: BTreeSet<String>,
}

#[derive(Default)]
struct Modules(BTreeMap<Module, Parts>);

impl Modules {
    fn read_file(&mut self, file: &Path, folder: &Path, module: Module) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|why| {
            let line = why.span().start().line;
            format!("{}:{line}: {why}", file.display())
        })?;
        self.read_items(file, folder, module, &parsed.items)
    }

    /// `folder`: where the files of the module's own modules are.
    fn read_items(
        &mut self,
        file: &Path,
        folder: &Path,
        module: Module,
        items: &[syn::Item],
    ) -> Result<(), String> {
        let mut parts = Parts {
            file: file.to_owned(),
            ..Parts::default()
        };
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            if let syn::Item::Mod(inner) = item {
                let name = inner.ident.to_string();
                let mut place = module.clone();
                place.push(name.clone());
                let below = folder.join(&name);
                match &inner.content {
                    Some((_, items)) => self.read_items(file, &below, place, items)?,
                    None => {
                        let beside = folder.join(format!("{name}.rs"));
                        let file = match elsewhere(&inner.attrs) {
                            Some(path) => folder.join(path),
                            None if beside.exists() => beside,
                            None => below.join("mod.rs"),
                        };
                        self.read_file(&file, &below, place)?;
                    }
                }
            } else {
                parts.items.extend(defined(item));
                parts.visit_item(item);
            }
        }
        self.0.insert(module, parts);
        Ok(())
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        for (module, parts) in &self.0 {
            let of_module = needs.entry(module.clone()).or_default();
            let used = |(path, _): &&(Vec<String>, usize)| {
                path.last().is_some_and(|name| parts.names.contains(name))
            };
            let reexports = parts.reexports.iter().filter(used);
            for (path, line) in parts.paths.iter().chain(reexports) {
                let Some(other) = self.definer(module, path, 0) else {
                    continue;
                };
                if other != *module {
                    of_module.entry(other).or_insert_with(|| Place {
                        file: parts.file.clone(),
                        line: *line,
                    });
                }
            }
        }
        needs
    }

    /// The module that defines what `path` means in `from`; none if it is of another crate. `depth` bounds imports that
    /// lead to each other.
    fn definer(&self, from: &[String], path: &[String], depth: usize) -> Option<Module> {
        if depth > 16 {
            return None;
        }
        let mut at = from.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
                while rest.get(1).is_some_and(|part| part == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            // A name that is known here: of a module, of an item or an import.
            first => {
                let parts = &self.0[from];
                let known = self.0.contains_key(&child(from, first))
                    || parts.items.contains(first)
                    || parts.imports.contains_key(first)
                    || parts
                        .globs
                        .iter()
                        .any(|glob| self.has(from, glob, first, depth));
                return known.then(|| self.walk(at, rest, depth)).flatten();
            }
        }
        self.walk(at, &rest[1..], depth)
    }

    /// The module that defines what `path` means, as seen from `at` itself.
    fn walk(&self, mut at: Module, path: &[String], depth: usize) -> Option<Module> {
        for (index, part) in path.iter().enumerate() {
            let below = child(&at, part);
            if self.0.contains_key(&below) {
                at = below;
                continue;
            }
            let parts = self.0.get(&at)?;
            if parts.items.contains(part) {
                return Some(at);
            }
            if let Some(import) = parts.imports.get(part) {
                let full = [import, &path[index + 1..]].concat();
                // An import that leads to itself is of another crate that has the module's name.
                return if full == path {
                    None
                } else {
                    self.definer(&at, &full, depth + 1)
                };
            }
            let glob = parts
                .globs
                .iter()
                .find(|glob| self.has(&at, glob, part, depth));
            return match glob {
                Some(glob) => {
                    let full = [glob.as_slice(), &path[index..]].concat();
                    self.definer(&at, &full, depth + 1)
                }
                None => Some(at),
            };
        }
        Some(at)
    }

    /// Whether the module that `glob` names in `from` has an item, a module or an import of that name.
    fn has(&self, from: &[String], glob: &[String], name: &str, depth: usize) -> bool {
        let Some(module) = self.definer(from, glob, depth + 1) else {
            return false;
        };
        let parts = &self.0[&module];
        module != from
            && (parts.items.contains(name)
                || parts.imports.contains_key(name)
                || self.0.contains_key(&child(&module, name)))
    }
}

fn child(module: &[String], name: &str) -> Module {
    let mut child = module.to_vec();
    child.push(name.to_owned());
    child
}

/// Whether an item is there for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = |path: &syn::Path| path.is_ident("test");
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .parse_args()
                    .is_ok_and(|path: syn::Path| condition(&path))
    })
}

/// Returns the path that a module's attribute gives for its file, from the folder of its parent.
fn elsewhere(attributes: &[syn::Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(path),
                    ..
                }) => Some(path.value()),
                _ => None,
            },
            _ => None,
        })
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines in its module.
fn defined(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

impl Parts {
    fn path(&mut self, path: Vec<String>, span: Span) {
        self.paths.push((path, span.start().line));
    }

    /// `before`: the path to the group that `tree` is in.
    fn import(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| {
            if ident == "self" {
                before.to_vec()
            } else {
                child(before, &ident.to_string())
            }
        };
        match tree {
            syn::UseTree::Path(tree) => self.import(&with_root(before, &tree.ident), &tree.tree),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(before, tree);
                }
            }
            syn::UseTree::Name(tree) => {
                let path = with(&tree.ident);
                self.path(path.clone(), tree.ident.span());
                if let Some(name) = path.last().cloned() {
                    self.imports.insert(name, path);
                }
            }
            syn::UseTree::Rename(tree) => {
                let path = with(&tree.ident);
                self.path(path.clone(), tree.ident.span());
                self.imports.insert(tree.rename.to_string(), path);
            }
            syn::UseTree::Glob(glob) => {
                self.path(before.to_vec(), glob.star_token.spans[0]);
                self.globs.push(before.to_vec());
            }
        }
    }

    /// Paths among the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut begun = Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_of(&mut path, begun);
                        begun = ident.span();
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end_of(&mut path, begun);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.end_of(&mut path, begun);
    }

    fn end_of(&mut self, path: &mut Vec<String>, begun: Span) {
        if path.len() > 1 {
            self.path(path.clone(), begun);
        }
        path.clear();
    }
}

fn with_root(before: &[String], ident: &syn::Ident) -> Vec<String> {
    child(before, &ident.to_string())
}

impl<'a> Visit<'a> for Parts {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        // `::name` is of another crate.
        if item.leading_colon.is_none() {
            let needed = self.paths.len();
            self.import(&[], &item.tree);
            if !matches!(item.vis, syn::Visibility::Inherited) {
                self.reexports.extend(self.paths.split_off(needed));
            }
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let parts = path
                .segments
                .iter()
                .map(|part| part.ident.to_string())
                .collect();
            self.path(parts, path.segments[0].ident.span());
        } else if let Some(name) = path.get_ident() {
            self.names.insert(name.to_string());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.visit_path(&item.path);
        self.tokens(item.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The needs of a crate in one file, as `from -> to` by name.
    fn needs_of(text: &str) -> Vec<String> {
        let mut modules = Modules::default();
        let file = syn::parse_file(text).unwrap();
        let (name_of, folder) = (Path::new("lib.rs"), Path::new(""));
        modules
            .read_items(name_of, folder, Vec::new(), &file.items)
            .unwrap();
        let needs = modules.needs();
        let each = |(from, to): (&Module, &BTreeMap<Module, Place>)| {
            let from = name(from);
            to.keys()
                .map(|to| format!("{from} -> {}", name(to)))
                .collect::<Vec<_>>()
        };
        needs.iter().flat_map(each).collect()
    }

    #[test]
    fn names_are_followed_to_their_definition() {
        let text = "
            mod a { pub struct A; pub mod deep { pub fn f() {} } }
            mod b { use crate::{A, Deep as D}; fn g() { D::f(); } }
            mod c { use super::a::*; fn h() { deep::f(); } }
            mod e { pub use crate::a::A; pub use crate::b::B; fn j() -> Option<A> { None } }
            mod d { fn i() -> std::vec::Vec<crate::b::B> { other::x() } }
            pub use a::A;
            pub use a::deep as Deep;
        ";
        let found = needs_of(text);
        let expected = [
            "b -> a",
            "b -> a::deep",
            "c -> a",
            "c -> a::deep",
            "d -> b",
            "e -> a",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn macros_are_read_and_tests_and_documents_are_not() {
        let text = "
            mod a { pub const X: u32 = 1; }
            /// [`crate::a::X`]
            mod b { fn f() { println!(\"{}\", [crate::a::X, 2]); } }
            mod c { #[cfg(test)] mod tests { use crate::a::X; } #[cfg(test)] use crate::a; pub(in crate::a) struct S; }
            mod d { macro_rules! m { () => { $crate::a::X } } }
        ";
        assert_eq!(needs_of(text), ["b -> a", "d -> a"]);
    }
}
