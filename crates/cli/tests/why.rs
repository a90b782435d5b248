//! Why runs differ, as a user asks for it: the text of `--explain`, the page of `--html`, and that page in a browser.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{PIPE, schedlab, stdout};

const RUN: &str = "sim chat:rooms=1,users=6,messages=20 -s dss,fifo -c 4";

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_text_says_why_and_changes_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let bare = stdout(&schedlab(RUN, folder.path()));
    let text = stdout(&schedlab(&format!("{RUN} --explain"), folder.path()));
    let told = text.strip_prefix(&bare).unwrap_or_else(|| panic!("{text}"));
    let flat = words(told);
    for part in [
        "`fifo` beside `dss`: its score is ",
        "Each run has a timeline and sentences of its own.",
        "dss on 4 CPUs, seed 1 `dss` holds its one lock ",
        " of attempts find it taken",
        "A choice examines ",
        "Of the time of all CPUs ",
        "All tasks together wait ",
        "The longest wait is ",
        "Of the critical path under `fifo` ",
        "Beside `dss`: ",
        "TASKS THAT WAIT MOST",
    ] {
        assert!(flat.contains(part), "{part}: {told}");
    }
    for line in told.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn the_page_has_the_same_bytes_and_needs_no_network() {
    let folder = tempfile::tempdir().unwrap();
    let page = |line: &str| stdout(&schedlab(line, folder.path()));
    let line = format!("{RUN} --repeat 2 --html -");
    let first = page(&format!("{line} -j 2"));
    assert_eq!(first, page(&format!("{line} -j 1")));
    assert!(first.starts_with("<!doctype html>"), "no table before it");
    for part in [
        "Timelines and sentences are of the runs with seed 1, the table of all.",
        "Waits for a CPU",
        "Score by seed",
        "Run queues over time",
        "Critical paths",
        "<code>fifo</code> on 4 CPUs, seed 1",
        "Tasks that wait most for a CPU",
        "Who waited for a CPU behind whom",
        "Locks, the longest held first",
        "All stretches are there.",
    ] {
        assert!(first.contains(part), "{part}");
    }
    assert_eq!(first.matches("<figure class=\"timeline\"").count(), 2);
    for part in ["src=", "@import", "fetch(", "XMLHttpRequest", "<link"] {
        assert!(!first.contains(part), "{part}");
    }
    // Beside a file, the table is printed.
    let table = page(&format!("{RUN} --html page.html"));
    assert_eq!(table, page(RUN));
    assert!(folder.path().join("page.html").exists());
    // A run whose events are written can be watched, too, and its text is the same.
    let one = "sim cpu:duration=20ms,tasks=3 -s fifo -c 2 --explain";
    let told = page(&format!("{one} --trace t.pftrace"));
    assert_eq!(told, page(one));
    assert!(words(&told).contains("The longest wait is "), "{told}");
}

#[test]
fn a_recorded_program_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    stdout(&schedlab(
        &format!("import {PIPE} -o pipe.workload"),
        folder.path(),
    ));
    let line = "sim pipe.workload -s kernel,fifo -c 2 --explain";
    let text = words(&stdout(&schedlab(line, folder.path())));
    // The kernel's own queues cost nothing in simulation, and have no locks there.
    for part in [
        "kernel on 2 CPUs, seed 1 A choice takes ",
        "fifo on 2 CPUs, seed 1 A choice takes ",
        "The longest wait is ",
        "Under `fifo` no part of the path changes by 0.5 % of it.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_standard_output_cannot_hold_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (line, told) in [
        ("--html - --json -", "--html - and --json - both write"),
        ("--html - --explain", "--html - takes the place of the text"),
        ("--csv - --explain", "--csv - takes the place of the text"),
        ("--html x --json x", "--json and --html both write x"),
    ] {
        let output = schedlab(&format!("{RUN} {line}"), folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(told), "{line}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{line}: {stderr}");
    }
}

/// The page is begun before the runs: a wrong path is an error at once, and no run is made in vain.
#[test]
fn a_page_that_cannot_be_written_is_told_before_the_runs() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("taken")).unwrap();
    // These runs take minutes.
    let long = "sim cpu:duration=100000s -s fifo -c 2 --time-limit 100001s";
    let advice = "advise cpu:duration=100000s -s fifo --budget 100 --time-limit 100001s";
    for (line, told) in [
        (format!("{long} --html none/page.html"), "no folder none"),
        (format!("{long} --html taken"), "it is a folder"),
        (format!("{advice} --html none/page.html"), "no folder none"),
        (format!("{advice} --json none/a.json"), "no folder none"),
    ] {
        let begun = std::time::Instant::now();
        let output = schedlab(&line, folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains(told), "{line}: {stderr}");
        assert!(output.stdout.is_empty(), "{line}");
        assert!(begun.elapsed().as_secs() < 20, "{line}");
    }
    // A page in its place is left alone by a run that is refused.
    std::fs::write(folder.path().join("page.html"), "before").unwrap();
    let output = schedlab(
        &format!("{RUN} --html page.html --csv none/x.csv"),
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(2));
    let page = std::fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page, "before");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// A browser, as distributions name it.
fn browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let paths: Vec<PathBuf> = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .collect();
    paths.into_iter().find(|path| path.is_file())
}

fn browse(browser: &Path, folder: &Path, words: &[String]) -> String {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .args(words)
        .output()
        .expect("the browser starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Uses the page as a reader does, and leaves what it saw in an attribute.
const READER: &str = r#"<script>
const seen = [];
for (const figure of document.querySelectorAll(".timeline")) {
  const canvas = figure.querySelector("canvas"), told = figure.querySelector("output");
  const point = (part) => {
    const box = canvas.getBoundingClientRect();
    const at = { clientX: box.left + part * box.width, clientY: box.top + 11, pointerType: "mouse", bubbles: true };
    canvas.dispatchEvent(new PointerEvent("pointermove", at));
    return told.textContent;
  };
  const pixels = () => canvas.toDataURL();
  const all = pixels(), before = point(0.6);
  for (let times = 0; times < 3; times++) figure.querySelectorAll("button")[0].click();
  const zoomed = pixels();
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
  seen.push([figure.classList.contains("live"), before.startsWith("CPU 0, "), zoomed !== all,
    getComputedStyle(figure.querySelector(".printed")).display === "none"].join());
}
const wide = document.documentElement.scrollWidth <= window.innerWidth;
document.body.setAttribute("data-seen", seen.join(";") + ";fits:" + wide);
</script></body>"#;

#[test]
fn a_browser_zooms_the_page_and_prints_it() {
    let Some(browser) = browser() else {
        schedlab_testing::skipped("the page of --html in a browser: no chromium is installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = stdout(&schedlab(&format!("{RUN} --html -"), folder.path()));
    let path = folder.path().join("page.html");
    std::fs::write(&path, page.replace("</body>", READER)).unwrap();
    let address = format!("file://{}", path.display());
    for width in [1280, 390] {
        let words = [
            format!("--window-size={width},900"),
            "--dump-dom".to_owned(),
            address.clone(),
        ];
        let dom = browse(&browser, folder.path(), &words);
        let expected = "data-seen=\"true,true,true,true;true,true,true,true;fits:true\"";
        let seen = dom.split("data-seen=").nth(1).map(|rest| &rest[..80]);
        assert!(dom.contains(expected), "{width}: {seen:?}");
    }
    let paper = folder.path().join("page.pdf");
    let words = [format!("--print-to-pdf={}", paper.display()), address];
    browse(&browser, folder.path(), &words);
    let paper = std::fs::read(paper).unwrap();
    assert!(
        paper.starts_with(b"%PDF") && paper.len() > 20_000,
        "{}",
        paper.len()
    );
}
