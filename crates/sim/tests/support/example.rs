//! The worked example of CONTRIBUTING.md.

/// Name and text of the file in the example: `<!-- policies/NAME -->` and the block of C behind it.
pub fn of_contributing() -> (String, String) {
    let text = include_str!("../../../../CONTRIBUTING.md");
    let (_, rest) = text
        .split_once("<!-- policies/")
        .expect("the example's mark");
    let (name, rest) = rest.split_once(" -->\n```c\n").expect("a block of C");
    let (source, _) = rest.split_once("\n```\n").expect("the end of the block");
    (name.to_owned(), format!("{source}\n"))
}
