//! Tells of a header that cannot be included: one of the host's system beside the virtual kernel's, or one of the library
//! without what it needs. The compiler has many errors for it, at places that the policy's author does not know.

use std::path::Path;

use super::{Complaints, without_column};

impl Complaints<'_> {
    /// Returns whether a place is in a header of the host's system.
    fn is_of_system(&self, place: &str) -> bool {
        let file = Path::new(without_column(place).split(':').next().unwrap_or(place));
        let folder = self.path.parent().map(|folder| match folder.as_os_str() {
            here if here.is_empty() => Path::new("."),
            _ => folder,
        });
        let folder = folder.and_then(|folder| folder.canonicalize().ok());
        let is_beside = |folder: &Path| file.starts_with(folder);
        file.is_absolute() && !self.is_ours(place) && !folder.as_deref().is_some_and(is_beside)
    }

    /// The line of the policy that includes a header, and the header's name there.
    fn include_of(&self, place: &str) -> Option<(String, String)> {
        let file = place.split(':').next()?;
        let source = std::fs::read_to_string(self.path).ok()?;
        let (number, header) = source.lines().enumerate().find_map(|(index, line)| {
            let header = included_header(line)?;
            let is_it = file.ends_with(&format!("/{header}"));
            is_it.then(|| (index + 1, header.to_owned()))
        })?;
        Some((format!("{}:{number}", self.path.display()), header))
    }

    /// Returns the place in the policy of a header that causes an error, and what to do there.
    pub(super) fn of_included(
        &self,
        place: &str,
        what: &str,
        notes: &[(&str, &str)],
        included: Option<&str>,
    ) -> Option<(String, String)> {
        let places = || std::iter::once(place).chain(notes.iter().map(|(at, _)| *at));
        let system = places().find(|at| self.is_of_system(at));
        let is_clash = self.is_of_system(place) || places().any(|at| self.is_ours(at));
        if let (Some(system), true) = (system, is_clash)
            && let Some((line, header)) = self.include_of(system)
        {
            return Some((line, clash(&header, what)));
        }
        let lab = format!("{}/lab/", self.headers.display());
        let of_library = place.strip_prefix(&lab)?.split(':').next()?;
        let source = std::fs::read_to_string(self.path).ok()?;
        let has_library = source
            .lines()
            .any(|line| included_header(line) == Some("lab/lab.bpf.h"));
        (!has_library).then(|| {
            let at = included.map_or_else(
                || self.path.display().to_string(),
                |at| without_column(at).to_owned(),
            );
            let what = format!(
                "<lab/{of_library}> is a part of <lab/lab.bpf.h>: include <lab/lab.bpf.h> here, or above this line"
            );
            (at, what)
        })
    }

    /// The first header of the host's system that the policy includes, if it includes any, where an error in ours has no
    /// other cause: gcc does not say which macro of such a header it has met.
    pub(super) fn first_foreign_include(&self, what: &str) -> Option<(String, String)> {
        let source = std::fs::read_to_string(self.path).ok()?;
        let (number, header) = source.lines().enumerate().find_map(|(index, line)| {
            let header = included_header(line)?;
            let is_known = crate::headers()
                .iter()
                .any(|(name, _)| *name == header || name.strip_prefix("native/") == Some(header));
            let is_beside = self.path.with_file_name(header).exists();
            (!is_known && !is_beside).then(|| (index + 1, header.to_owned()))
        })?;
        let place = format!("{}:{number}", self.path.display());
        Some((place, clash(&header, what)))
    }
}

fn clash(header: &str, what: &str) -> String {
    format!(
        "<{header}> of this machine clashes with the virtual kernel's headers, which have what a policy needs of it: leave this #include out (the compiler: {what})"
    )
}

/// The name of the header that a line includes.
fn included_header(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start();
    let rest = rest.strip_prefix("include")?.trim_start();
    let end = match rest.chars().next()? {
        '<' => '>',
        '"' => '"',
        _ => return None,
    };
    rest[1..].split(end).next()
}

#[cfg(test)]
mod tests {
    use super::included_header;

    #[test]
    fn lines_that_include_are_read() {
        assert_eq!(included_header("#include <a/b.h>"), Some("a/b.h"));
        assert_eq!(included_header(" # include \"b.h\" // x"), Some("b.h"));
        assert_eq!(included_header("#define include <a.h>"), None);
        assert_eq!(included_header("int x;"), None);
    }
}
