//! trace.dat as trace-cmd writes it, of both versions and byte orders, packed and not.

use std::io::Write as _;

use schedlab_recording::{Comm, Event, What};

use crate::story::{comm, flags, prio, state, story, text};
use crate::{events, program, told};

/// Bytes of a page: small, so that the story takes several.
const PAGE: usize = 192;
/// Where events begin in a page of a kernel of 64 bits.
const DATA: usize = 16;

/// How a file is written.
#[derive(Clone, Copy)]
pub struct Form {
    pub version: u8,
    pub is_big: bool,
    pub packing: &'static str,
    /// Whether it has text of a latency tracer instead of pages.
    pub is_text: bool,
    /// The clocks that version 6 has behind the places of pages.
    pub clocks: Option<&'static str>,
    /// A section that version 7 names again, and how often.
    pub again: (u64, usize),
    /// Pages of version 7 in a packed piece.
    pub pages: usize,
    /// Bytes of an option that nobody knows.
    pub padding: usize,
}

pub const SIX: Form = Form {
    version: 6,
    is_big: false,
    packing: "none",
    is_text: false,
    clocks: None,
    again: (0, 0),
    pages: 2,
    padding: 0,
};

pub const SEVEN: Form = Form {
    version: 7,
    packing: "zlib",
    ..SIX
};

/// A file that grows.
struct Bytes {
    all: Vec<u8>,
    is_big: bool,
}

impl Bytes {
    fn new(form: Form) -> Bytes {
        Bytes {
            all: Vec::new(),
            is_big: form.is_big,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.all.extend(bytes);
    }

    fn number(&mut self, size: usize, value: u64) {
        match self.is_big {
            true => self.put(&value.to_be_bytes()[8 - size..]),
            false => self.put(&value.to_le_bytes()[..size]),
        }
    }

    fn sized(&mut self, size: usize, bytes: &[u8]) {
        self.number(size, bytes.len() as u64);
        self.put(bytes);
    }
}

const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:176;\tsigned:1;\n";

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/// Name and fields of an event, the fields one behind the other from byte 8 on: their sizes in bytes.
const FORMATS: [(&str, &[(&str, usize)]); 4] = [
    (
        "sched_switch",
        &[
            ("char prev_comm[16]", 16),
            ("pid_t prev_pid", 4),
            ("int prev_prio", 4),
            ("long prev_state", 8),
            ("char next_comm[16]", 16),
            ("pid_t next_pid", 4),
            ("int next_prio", 4),
        ],
    ),
    ("sched_waking", &[("char comm[16]", 16), ("pid_t pid", 4)]),
    (
        "sched_wakeup_new",
        &[("char comm[16]", 16), ("pid_t pid", 4)],
    ),
    (
        "sched_process_fork",
        &[("pid_t parent_pid", 4), ("pid_t child_pid", 4)],
    ),
];

/// The number of the first of them.
const FIRST: u64 = 300;

fn format(index: usize) -> String {
    let (name, fields) = FORMATS[index];
    let mut text = format!(
        "name: {name}\nID: {}\nformat:\n{COMMON}",
        FIRST + index as u64
    );
    let mut at = 8;
    for (field, size) in fields {
        text += &format!("\tfield:{field};\toffset:{at};\tsize:{size};\tsigned:1;\n");
        at += size;
    }
    text + "\nprint fmt: \"x\"\n"
}

/// The bytes of an event as the kernel writes them.
fn body(form: Form, event: &Event) -> Vec<u8> {
    let mut bytes = Bytes::new(form);
    let kind = match event.what {
        What::Switch { .. } => 0,
        What::Waking { .. } => 1,
        What::New { .. } => 2,
        _ => 3,
    };
    bytes.number(2, FIRST + kind);
    bytes.put(&[flags(event.context), 1]);
    bytes.number(4, event.current.unwrap() as u64);
    let name = |bytes: &mut Bytes, comm: Comm| {
        let mut name = comm.text().into_bytes();
        name.resize(16, 0);
        bytes.put(&name);
    };
    match event.what {
        What::Switch {
            prev, left, next, ..
        } => {
            name(&mut bytes, comm(prev));
            bytes.number(4, prev as u64);
            bytes.number(4, prio(prev) as u64);
            bytes.number(8, state(left));
            name(&mut bytes, comm(next));
            bytes.number(4, next as u64);
            bytes.number(4, prio(next) as u64);
        }
        What::Waking { task, .. } | What::New { task } => {
            name(&mut bytes, comm(task));
            bytes.number(4, task as u64);
        }
        What::Fork { parent, child } => {
            bytes.number(4, parent as u64);
            bytes.number(4, child as u64);
        }
        other => panic!("{other:?}"),
    }
    bytes.all
}

/// An event's first word: its kind or length, and the time since the one before.
fn head(bytes: &mut Bytes, kind: u64, passed: u64) {
    let word = match bytes.is_big {
        true => kind << 27 | passed,
        false => passed << 5 | kind,
    };
    bytes.number(4, word);
}

/// The pages of a CPU. Before the second one of CPU 1, five events were lost.
fn pages(form: Form, cpu: u32) -> Vec<u8> {
    let mut all = Bytes::new(form);
    let mut pages: Vec<(u64, Bytes)> = Vec::new();
    let mut last_ns = 0;
    for event in story().iter().filter(|event| event.cpu == cpu) {
        let body = body(form, event);
        let needed = body.len() + 12;
        let is_full = pages
            .last()
            .is_none_or(|(_, page)| page.all.len() + needed > PAGE - DATA - 8);
        if is_full {
            pages.push((event.at_ns, Bytes::new(form)));
            last_ns = event.at_ns;
        }
        let (_, page) = pages.last_mut().unwrap();
        let mut passed = event.at_ns - last_ns;
        if passed >= 1 << 27 {
            head(page, 30, passed & ((1 << 27) - 1));
            page.number(4, passed >> 27);
            passed = 0;
        }
        head(page, body.len() as u64 / 4, passed);
        page.put(&body);
        last_ns = event.at_ns;
    }
    for (index, (at_ns, page)) in pages.iter().enumerate() {
        let has_lost = cpu == 1 && index == 1;
        all.number(8, *at_ns);
        all.number(
            8,
            page.all.len() as u64 | if has_lost { 0xc000_0000 } else { 0 },
        );
        all.put(&page.all);
        all.number(8, if has_lost { 5 } else { 0 });
        let end = all.all.len().div_ceil(PAGE) * PAGE;
        all.all.resize(end, 0);
    }
    all.all
}

/// `header_page` and `header_event`.
fn header_info(bytes: &mut Bytes) {
    bytes.put(b"header_page\0");
    bytes.sized(8, HEADER_PAGE.as_bytes());
    bytes.put(b"header_event\0");
    bytes.sized(8, b"# compressed entry header\n");
}

fn event_formats(bytes: &mut Bytes) {
    bytes.number(4, 1);
    bytes.put(b"sched\0");
    bytes.number(4, FORMATS.len() as u64);
    for index in 0..FORMATS.len() {
        bytes.sized(8, format(index).as_bytes());
    }
}

fn option(bytes: &mut Bytes, id: u64, data: &[u8]) {
    bytes.number(2, id);
    bytes.sized(4, data);
}

/// The options that both versions have.
fn options(bytes: &mut Bytes) {
    option(bytes, 2, b"CPU: 0\noverrun: 3\ndropped events: 1\n\0");
    option(bytes, 5, b"Linux host 6.1.0 x86_64\0");
    let mut cpus = Bytes {
        all: Vec::new(),
        is_big: bytes.is_big,
    };
    cpus.number(4, 4);
    option(bytes, 8, &cpus.all);
}

/// The story.
pub fn file(form: Form) -> Vec<u8> {
    let mut bytes = Bytes::new(form);
    bytes.put(b"\x17\x08\x44tracing");
    bytes.put(&[b'0' + form.version, 0, u8::from(form.is_big), 8]);
    bytes.number(4, PAGE as u64);
    match form.version {
        6 => six(form, &mut bytes),
        _ => seven(form, &mut bytes),
    }
    bytes.all
}

fn six(form: Form, bytes: &mut Bytes) {
    header_info(bytes);
    bytes.number(4, 1);
    bytes.sized(8, b"name: function\n");
    event_formats(bytes);
    bytes.sized(4, b"0 T _text\n");
    bytes.sized(4, b"");
    bytes.sized(8, b"10 t10\n");
    bytes.number(4, 2);
    bytes.put(b"options  \0");
    options(bytes);
    if form.clocks.is_some() {
        option(bytes, 4, b"");
    }
    bytes.number(2, 0);
    if form.is_text {
        bytes.put(b"latency  \0# tracer: irqsoff\n");
        return;
    }
    bytes.put(b"flyrecord\0");
    let clocks = form.clocks.unwrap_or_default();
    let mut at = bytes.all.len() + 32 + 8 + clocks.len();
    let pages = [0, 1].map(|cpu| pages(form, cpu));
    for of in &pages {
        bytes.number(8, at as u64);
        bytes.number(8, of.len() as u64);
        at += of.len();
    }
    bytes.sized(8, clocks.as_bytes());
    for of in &pages {
        bytes.put(of);
    }
}

/// Packs bytes.
pub fn packed(packing: &str, bytes: &[u8]) -> Vec<u8> {
    match packing {
        "zlib" => {
            let mut to = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            to.write_all(bytes).unwrap();
            to.finish().unwrap()
        }
        "zstd" => {
            let mut to = vec![0; zstd_safe::compress_bound(bytes.len())];
            let used = zstd_safe::compress(&mut to[..], bytes, 1).unwrap();
            to.truncate(used);
            to
        }
        _ => bytes.to_vec(),
    }
}

/// A section, packed if the file is; returns where it begins.
fn section(form: Form, bytes: &mut Bytes, id: u64, data: &[u8]) -> u64 {
    let at = bytes.all.len() as u64;
    let is_packed = form.packing != "none";
    bytes.number(2, id);
    bytes.number(2, u64::from(is_packed));
    bytes.number(4, 0);
    if is_packed {
        let packed = packed(form.packing, data);
        bytes.number(8, packed.len() as u64 + 8);
        bytes.number(4, packed.len() as u64);
        bytes.number(4, data.len() as u64);
        bytes.put(&packed);
    } else {
        bytes.sized(8, data);
    }
    at
}

fn seven(form: Form, bytes: &mut Bytes) {
    bytes.put(form.packing.as_bytes());
    bytes.put(b"\x001.5\0");
    let begin = bytes.all.len();
    bytes.number(8, 0);
    let mut part = Bytes::new(form);
    header_info(&mut part);
    let header = section(form, bytes, 16, &part.all);
    let mut part = Bytes::new(form);
    event_formats(&mut part);
    let formats = section(form, bytes, 18, &part.all);
    let mut buffer = Bytes::new(form);
    buffer.number(8, 0);
    buffer.put(b"\0mono\0");
    buffer.number(4, PAGE as u64);
    buffer.number(4, 2);
    for cpu in 0..2 {
        let pages = pages(form, cpu);
        let at = bytes.all.len();
        if form.packing == "none" {
            bytes.put(&pages);
        } else {
            let mut pages = pages;
            let whole = pages.len().next_multiple_of(form.pages * PAGE);
            if form.pages > 2 {
                pages.resize(whole, 0);
            }
            let pieces: Vec<&[u8]> = pages.chunks(form.pages * PAGE).collect();
            bytes.number(4, pieces.len() as u64);
            for piece in pieces {
                let packed = packed(form.packing, piece);
                bytes.number(4, packed.len() as u64);
                bytes.number(4, piece.len() as u64);
                bytes.put(&packed);
            }
        }
        buffer.number(4, u64::from(cpu));
        buffer.number(8, at as u64);
        buffer.number(8, (bytes.all.len() - at) as u64);
    }
    // Options are in two sections, of which the first names the second.
    let mut last = Bytes::new(form);
    options(&mut last);
    option(&mut last, if form.is_text { 22 } else { 3 }, &buffer.all);
    option(&mut last, 99, &vec![0; form.padding]);
    option(&mut last, 0, &[0; 8]);
    let last = section(form, bytes, 0, &last.all);
    let mut first = Bytes::new(form);
    let (again, times) = form.again;
    let again = vec![(again, if again == 16 { header } else { formats }); times];
    let named = [
        [(16, header), (18, formats)].to_vec(),
        again,
        vec![(0, last)],
    ];
    for (id, place) in named.concat() {
        let mut data = Bytes::new(form);
        data.number(8, place);
        option(&mut first, id, &data.all);
    }
    let first = section(form, bytes, 0, &first.all);
    let mut place = Bytes::new(form);
    place.number(8, first);
    bytes.all[begin..begin + 8].copy_from_slice(&place.all);
}

#[test]
fn both_versions_hold_the_story() {
    let packings = [(6, "none"), (7, "none"), (7, "zlib"), (7, "zstd")];
    for (version, packing) in packings {
        for is_big in [false, true] {
            let form = Form {
                version,
                is_big,
                packing,
                ..SIX
            };
            let (events, about) = events(&file(form)).unwrap();
            assert_eq!(events, story(), "{version} {is_big} {packing}");
            // Pages tell of five, the kernel's own count is four.
            assert_eq!((about.lost, about.late), (5, 0));
            assert_eq!(about.format, format!("trace.dat, version {version}"));
            assert_eq!(about.kernel.as_deref(), Some("6.1.0"));
            assert_eq!(about.cpus, Some(4));
        }
    }
}

/// Before trace-cmd 3 the option of the clock is empty, and the clock stands behind the places of pages.
#[test]
fn the_clock_of_version_6_may_stand_behind_the_places() {
    let of = |clocks| {
        file(Form {
            clocks: Some(clocks),
            ..SIX
        })
    };
    for clocks in ["local [mono] counter\n", "[local]", "what?", ""] {
        assert_eq!(events(&of(clocks)).unwrap().0, story());
    }
    for (clocks, name) in [
        ("local [counter] mono\n", "counter"),
        ("[x86-tsc]", "x86-tsc"),
        ("local [uptime]", "uptime"),
        ("[ppc-tb]", "ppc-tb"),
    ] {
        let error = told(&of(clocks));
        let expected = format!("its clock `{name}` is not known to count ns: record with");
        assert!(error.contains(&expected), "{error}");
    }
}

/// It is sound, but nothing that is read.
#[test]
fn a_file_of_another_kind_is_not_damaged() {
    for form in [SIX, SEVEN] {
        let error = told(&file(Form {
            is_text: true,
            ..form
        }));
        assert!(
            error.ends_with(
                "it has text of a latency tracer, which `trace-cmd report FILE > FILE.txt` unpacks"
            ),
            "{error}"
        );
    }
    let error = told(&file(Form {
        packing: "lz9",
        ..SEVEN
    }));
    assert!(
        error.contains("a trace.dat packed by `lz9`; zlib and zstd are known"),
        "{error}"
    );
    assert!(!error.contains("damaged"));
}

#[test]
fn parts_of_a_file_are_few_and_small() {
    let again = |id, times| Form {
        again: (id, times),
        ..SEVEN
    };
    assert_eq!(events(&file(again(18, 3))).unwrap().0, story());
    assert!(told(&file(again(18, 4))).contains("one more section 18; the file is damaged"));
    assert!(told(&file(again(16, 1))).contains("one more section 16"));
    let padded = |padding| Form { padding, ..SEVEN };
    assert_eq!(events(&file(padded(1 << 20))).unwrap().0, story());
    let error = told(&file(padded(16 << 20)));
    assert!(error.contains("bytes, of at most 16777"), "{error}");
    let pieces = |pages| Form { pages, ..SEVEN };
    assert_eq!(events(&file(pieces(16))).unwrap().0, story());
    assert!(told(&file(pieces(17))).contains("its pages cannot be unpacked"));
}

/// Inference does not depend on the format.
#[test]
fn a_program_is_the_same_from_text_and_from_pages() {
    let of_text = program(text().as_bytes()).unwrap().file;
    let of_pages = program(&file(SIX)).unwrap().file;
    assert_eq!(of_text.steps, of_pages.steps);
    assert!(of_text.steps.iter().flatten().count() > 5);
}

#[test]
fn damage_is_told_with_its_place() {
    let whole = file(SIX);
    assert!(
        told(&whole[..40])
            .contains("is truncated: header_page at offset 38 of the file should have")
    );
    assert!(
        told(&whole[..whole.len() - 1])
            .contains("is truncated: the pages of CPU 1 end beyond the file's")
    );
    let other = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        told(&bytes)
    };
    assert!(other(10, b'8').contains("a trace.dat of version 8; 6 and 7 are known"));
    assert!(other(12, 7).contains("a byte order 7"));
    assert!(
        other(18, b'x').contains("the file, offset 18: `header_page` should stand here"),
        "{}",
        other(18, b'x')
    );
    // The used bytes of the last page of CPU 1.
    let page = whole.len() - PAGE;
    assert!(
        other(page + 9, 2).contains(&format!(
            "CPU 1, offset {page}: a page has more bytes in use than it has bytes; the file is damaged"
        )),
        "{}",
        other(page + 9, 2)
    );
    let mut bytes = file(SIX);
    let at = bytes
        .windows(12)
        .position(|found| found == b"sched_switch")
        .unwrap();
    bytes[at..at + 12].copy_from_slice(b"sched_glitch");
    assert!(told(&bytes).contains("has no sched_switch events: record with `trace-cmd record"));
    let seven = file(SEVEN);
    assert!(told(&seven[..seven.len() - 1]).contains("is truncated: its"));
}

/// The first page of CPU 0 is moved to 2,000 s behind its second one.
#[test]
fn a_clock_that_goes_back_is_refused() {
    let mut bytes = file(SIX);
    let first = 1_000_000u64.to_le_bytes();
    let at = bytes.windows(8).position(|found| found == first).unwrap();
    bytes[at..at + 8].copy_from_slice(&2_000_000_000_000u64.to_le_bytes());
    assert!(
        told(&bytes).contains("the clock of CPU"),
        "{}",
        told(&bytes)
    );
}
