//! Text: `scx_bpf_error()`, `scx_bpf_exit()`, `bpf_printk()` and their kin.
//!
//! Arguments come as 64-bit words, as in the kernel's `bstr` functions; the formats are those that
//! `bpf_bprintf_prepare()` (kernel/bpf/helpers.c) takes.

use std::ffi::{CStr, c_char, c_long};

use crate::host::Context;
use crate::maps::EINVAL;

/// Longest text, as `SCX_EXIT_MSG_LEN`.
const BYTES_MAX: usize = 1024;
/// Longest string argument.
const STRING_MAX: usize = 512;

/// The words that follow a format.
fn words<'a>(args: *const u64, bytes: u32) -> &'a [u64] {
    if args.is_null() {
        return &[];
    }
    // SAFETY: the policy says how large its array is; a wild pointer faults, and that is caught.
    unsafe { std::slice::from_raw_parts(args, bytes as usize / 8) }
}

fn string(place: u64) -> String {
    if place < 4096 {
        // As what cannot be read.
        return String::new();
    }
    let mut text = Vec::new();
    for index in 0..STRING_MAX {
        // SAFETY: as in `words`.
        let byte = unsafe { (place as *const u8).add(index).read() };
        if byte == 0 {
            break;
        }
        text.push(byte);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The request of a conversion.
#[derive(Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    width: usize,
    longs: u8,
}

impl Spec {
    fn signed(&self, word: u64) -> i64 {
        match self.longs {
            0 => (word as i32).into(),
            _ => word as i64,
        }
    }

    fn unsigned(&self, word: u64) -> u64 {
        match self.longs {
            0 => (word as u32).into(),
            _ => word,
        }
    }

    fn sign(&self, value: i64) -> &'static str {
        match (self.plus, self.space) {
            _ if value < 0 => "-",
            (true, _) => "+",
            (_, true) => " ",
            _ => "",
        }
    }

    fn number(&self, sign: &str, digits: &str) -> String {
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        if self.left {
            format!("{sign}{digits}{}", " ".repeat(missing))
        } else if self.zero {
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            format!("{}{sign}{digits}", " ".repeat(missing))
        }
    }

    fn text(&self, text: &str) -> String {
        let width = self.width;
        match self.left {
            true => format!("{text:<width$}"),
            false => format!("{text:>width$}"),
        }
    }
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Flags and width.
fn spec(chars: &mut Chars<'_>) -> Spec {
    let mut spec = Spec::default();
    while let Some(flag) = chars.next_if(|c| "-0+ ".contains(*c)) {
        match flag {
            '-' => spec.left = true,
            '0' => spec.zero = true,
            '+' => spec.plus = true,
            _ => spec.space = true,
        }
    }
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        let digit = digit as usize - '0' as usize;
        spec.width = (spec.width * 10 + digit).min(STRING_MAX);
    }
    spec
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

/// Whether a conversion of a string or a pointer may end before what follows.
fn ends(chars: &mut Chars<'_>) -> Option<()> {
    let next = chars.peek();
    next.is_none_or(|&c| is_space(c) || c.is_ascii_punctuation())
        .then_some(())
}

/// Reads the text that follows `%p`: whether it is a string.
fn pointer(chars: &mut Chars<'_>) -> Option<bool> {
    if ends(chars).is_some() || chars.next_if(|c| "KxsSB".contains(*c)).is_some() {
        return Some(false);
    }
    if chars.next_if(|c| "ku".contains(*c)).is_some() {
        chars.next_if_eq(&'s')?;
        ends(chars)?;
        return Some(true);
    }
    chars.next_if(|c| "iI".contains(*c))?;
    chars.next_if(|c| "46".contains(*c))?;
    Some(false)
}

/// Formats; `None` for what `bpf_bprintf_prepare()` refuses.
pub fn format(fmt: &str, words: &[u64], string: impl Fn(u64) -> String) -> Option<String> {
    let mut out = String::new();
    let mut chars = fmt.chars().peekable();
    let mut words = words.iter();
    while let Some(c) = chars.next() {
        if c.is_ascii_control() && !is_space(c) {
            return None;
        }
        if c != '%' || chars.next_if_eq(&'%').is_some() {
            out.push(c);
            continue;
        }
        let &word = words.next()?;
        let mut spec = spec(&mut chars);
        while spec.longs < 2 && chars.next_if_eq(&'l').is_some() {
            spec.longs += 1;
        }
        let text = match chars.next()? {
            'd' | 'i' => {
                let value = spec.signed(word);
                spec.number(spec.sign(value), &value.unsigned_abs().to_string())
            }
            'u' => spec.number("", &spec.unsigned(word).to_string()),
            'x' => spec.number("", &format!("{:x}", spec.unsigned(word))),
            'X' => spec.number("", &format!("{:X}", spec.unsigned(word))),
            _ if spec.longs > 0 => return None,
            'c' => spec.text(&char::from(word as u8).to_string()),
            's' => {
                ends(&mut chars)?;
                spec.text(&string(word))
            }
            'p' => match pointer(&mut chars)? {
                true => spec.text(&string(word)),
                // A host address would differ from run to run; the kernel hashes them, too.
                false => spec.text("(pointer)"),
            },
            _ => return None,
        };
        out.push_str(&text);
    }
    out.truncate(out.floor_char_boundary(BYTES_MAX - 1));
    Some(out)
}

fn formatted(fmt: *const c_char, args: *const u64, bytes: u32) -> Option<String> {
    // SAFETY: as in `words`.
    let fmt = unsafe { CStr::from_ptr(fmt) }.to_string_lossy();
    format(&fmt, words(args, bytes), string)
}

/// `scx_error()` of `bstr_format()`.
#[cold]
fn refuse(context: Context) {
    context.ask(|kernel| kernel.violation(format!("format preparation failed ({EINVAL})")));
}

/// `scx_bpf_exit()`.
pub extern "C" fn exit(
    context: Context,
    code: i64,
    fmt: *const c_char,
    args: *const u64,
    bytes: u32,
) {
    context.charge_kfunc();
    match formatted(fmt, args, bytes) {
        Some(message) => context.ask(|kernel| kernel.exit_policy(code, message)),
        None => refuse(context),
    }
}

/// `scx_bpf_error()`.
pub extern "C" fn error(context: Context, fmt: *const c_char, args: *const u64, bytes: u32) {
    context.charge_kfunc();
    match formatted(fmt, args, bytes) {
        Some(message) => context.ask(|kernel| kernel.error(message)),
        None => refuse(context),
    }
}

/// `bpf_printk()`: a line in the run's log. With `dump`, `scx_bpf_dump()`.
pub extern "C" fn print(
    context: Context,
    fmt: *const c_char,
    args: *const u64,
    bytes: u32,
    dump: bool,
) -> c_long {
    context.charge_kfunc();
    if dump {
        print_to_dump(context, fmt, args, bytes);
        return 0;
    }
    match formatted(fmt, args, bytes) {
        Some(text) => {
            context.with(|host| host.print(text.trim_end_matches('\n').to_owned()));
            text.len() as c_long
        }
        None => EINVAL,
    }
}

/// `bpf_stream_vprintk()`: BPF_STDOUT is 1, BPF_STDERR 2. The text comes into the run's log.
pub fn print_to_stream(
    context: Context,
    stream: i32,
    fmt: *const c_char,
    args: *const u64,
    bytes: u32,
) -> c_long {
    const ENOENT: c_long = -2;
    if stream != 1 && stream != 2 {
        return ENOENT;
    }
    print(context, fmt, args, bytes, false).min(0)
}

/// `bpf_snprintf()`: the length of the whole text with its end, of which as much as fits is written.
pub fn print_into(
    context: Context,
    to: *mut u8,
    size: u32,
    fmt: *const c_char,
    args: *const u64,
    bytes: u32,
) -> c_long {
    context.charge_kfunc();
    let Some(text) = formatted(fmt, args, bytes) else {
        return EINVAL;
    };
    let length = text.len().min((size as usize).saturating_sub(1));
    if size > 0 {
        // SAFETY: the policy says how large its array is; a wild pointer faults, and that is caught.
        unsafe {
            to.copy_from_nonoverlapping(text.as_ptr(), length);
            to.add(length).write(0);
        }
    }
    text.len() as c_long + 1
}

fn print_to_dump(context: Context, fmt: *const c_char, args: *const u64, bytes: u32) {
    let op = context.op();
    if !context.with(|host| host.dump(op, "")) {
        let message = "scx_bpf_dump() must only be called from ops.dump() and friends".to_owned();
        context.ask(|kernel| kernel.violation(message));
        return;
    }
    if let Some(text) = formatted(fmt, args, bytes) {
        context.with(|host| host.dump(op, &text));
        return;
    }
    refuse(context);
    // SAFETY: as in `words`.
    let fmt = unsafe { CStr::from_ptr(fmt) }.to_string_lossy();
    let line = format!("[!] (\"{fmt}\", (pointer), {bytes}) failed to format ({EINVAL})\n");
    context.with(|host| host.dump(op, &line));
}

#[cfg(test)]
mod tests {
    use super::format;

    fn check(fmt: &str, words: &[u64], expected: &str) {
        let text = format(fmt, words, |_| "text".to_owned());
        assert_eq!(text.as_deref(), Some(expected), "{fmt}");
    }

    #[test]
    fn conversions_are_the_kernels() {
        check("%d of %u", &[-3i32 as u64, 7], "-3 of 7");
        check(
            "%lld %llu %lu",
            &[u64::MAX, u64::MAX, 1],
            "-1 18446744073709551615 1",
        );
        check("%u %i", &[u64::MAX, u64::MAX], "4294967295 -1");
        check("%x %lx %08X", &[255, 255, 255], "ff ff 000000FF");
        check(
            "%5d|%-5d|%05d|%+d|% d",
            &[3, 3, -3i32 as u64, 3, 3],
            "    3|3    |-0003|+3| 3",
        );
        check("[%s] [%6s] %c%%", &[1, 1, 65], "[text] [  text] A%");
        check(
            "%p %pK%px|%pks,%pI4",
            &[1; 5],
            "(pointer) (pointer)(pointer)|text,(pointer)",
        );
        check("größer\n\t%d", &[1], "größer\n\t1");
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        for fmt in [
            "%d %d", "%f", "%n", "%", "%5", "%l", "%#x", "%.2s", "%zu", "%hu", "%llld", "%ls",
            "%lc", "%sx", "%pq", "%pk", "%pi5", "%ü", "\x07",
        ] {
            assert_eq!(format(fmt, &[1], |_| String::new()), None, "{fmt}");
        }
    }
}
