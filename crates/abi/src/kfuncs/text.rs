//! Text: `scx_bpf_error()`, `scx_bpf_exit()`, `bpf_printk()` and their kin.
//!
//! Arguments come as 64-bit words, as in the kernel's `bstr` functions; the formats are those that
//! `bpf_bprintf_prepare()` (kernel/bpf/helpers.c) takes.

use std::ffi::{CStr, c_char, c_long};

use crate::host::Context;

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
        return "(null)".to_owned();
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

/// What a conversion asks for.
#[derive(Default)]
struct Spec {
    left: bool,
    zero: bool,
    plus: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
    longs: u8,
    shorts: u8,
}

impl Spec {
    fn signed(&self, word: u64) -> i64 {
        match (self.longs, self.shorts) {
            (1.., _) => word as i64,
            (_, 0) => (word as i32).into(),
            (_, 1) => (word as i16).into(),
            _ => (word as i8).into(),
        }
    }

    fn unsigned(&self, word: u64) -> u64 {
        match (self.longs, self.shorts) {
            (1.., _) => word,
            (_, 0) => (word as u32).into(),
            (_, 1) => (word as u16).into(),
            _ => (word as u8).into(),
        }
    }

    fn pad(&self, sign: &str, digits: &str) -> String {
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        if self.left {
            format!("{sign}{digits}{}", " ".repeat(missing))
        } else if self.zero {
            format!("{sign}{}{digits}", "0".repeat(missing))
        } else {
            format!("{}{sign}{digits}", " ".repeat(missing))
        }
    }
}

/// Formats; the error names the conversion that is not allowed.
pub fn format(fmt: &str, words: &[u64], string: impl Fn(u64) -> String) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = fmt.chars().peekable();
    let mut words = words.iter();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let mut spec = Spec::default();
        while let Some(flag) = chars.next_if(|c| "-0+ #".contains(*c)) {
            match flag {
                '-' => spec.left = true,
                '0' => spec.zero = true,
                '+' => spec.plus = true,
                '#' => spec.alternate = true,
                _ => {}
            }
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut value = 0usize;
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                value = (value * 10 + digit as usize - '0' as usize).min(STRING_MAX);
            }
            value
        };
        spec.width = number(&mut chars);
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = Some(number(&mut chars));
        }
        while chars.next_if_eq(&'l').is_some() || chars.next_if_eq(&'z').is_some() {
            spec.longs += 1;
        }
        while chars.next_if_eq(&'h').is_some() {
            spec.shorts += 1;
        }
        let Some(conversion) = chars.next() else {
            return Err("the format ends within a conversion".to_owned());
        };
        let Some(&word) = words.next() else {
            return Err(format!(
                "the format has more conversions than {} arguments",
                words.len()
            ));
        };
        let text = match conversion {
            'd' | 'i' => {
                let value = spec.signed(word);
                let sign = if value < 0 {
                    "-"
                } else if spec.plus {
                    "+"
                } else {
                    ""
                };
                spec.pad(sign, &value.unsigned_abs().to_string())
            }
            'u' => spec.pad("", &spec.unsigned(word).to_string()),
            'x' => {
                let prefix = if spec.alternate { "0x" } else { "" };
                spec.pad(prefix, &format!("{:x}", spec.unsigned(word)))
            }
            'X' => {
                let prefix = if spec.alternate { "0X" } else { "" };
                spec.pad(prefix, &format!("{:X}", spec.unsigned(word)))
            }
            'c' => spec.pad("", &char::from(word as u8).to_string()),
            's' => {
                let mut text = string(word);
                if let Some(precision) = spec.precision {
                    text.truncate(text.floor_char_boundary(precision));
                }
                spec.zero = false;
                spec.pad("", &text)
            }
            // A host address would differ from run to run; the kernel hashes them, too.
            'p' => {
                while chars.next_if(|c| c.is_ascii_alphabetic()).is_some() {}
                spec.pad("", "(pointer)")
            }
            other => return Err(format!("%{other} is not allowed")),
        };
        out.push_str(&text);
    }
    out.truncate(out.floor_char_boundary(BYTES_MAX - 1));
    Ok(out)
}

fn formatted(context: Context, fmt: *const c_char, args: *const u64, bytes: u32) -> String {
    // SAFETY: as in `words`.
    let fmt = unsafe { CStr::from_ptr(fmt) }.to_string_lossy();
    match format(&fmt, words(args, bytes), string) {
        Ok(text) => text,
        Err(reason) => {
            let message = format!("the format {:?} cannot be printed: {reason}", &*fmt);
            drop(fmt);
            context.fault(message)
        }
    }
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
    let message = formatted(context, fmt, args, bytes);
    context.ask(|kernel| kernel.exit_policy(code, message));
}

/// `scx_bpf_error()`.
pub extern "C" fn error(context: Context, fmt: *const c_char, args: *const u64, bytes: u32) {
    context.charge_kfunc();
    let message = formatted(context, fmt, args, bytes);
    context.ask(|kernel| kernel.error(message));
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
    let text = formatted(context, fmt, args, bytes);
    if !dump {
        context.with(|host| host.print(text.trim_end_matches('\n').to_owned()));
    } else if !context.with(|host| host.dump(&text)) {
        context.ask(|kernel| {
            kernel
                .error("scx_bpf_dump() must only be called from ops.dump() and friends".to_owned())
        });
    }
    text.len() as c_long
}

#[cfg(test)]
mod tests {
    use super::format;

    fn check(fmt: &str, words: &[u64], expected: &str) {
        let text = format(fmt, words, |_| "text".to_owned());
        assert_eq!(text.as_deref(), Ok(expected), "{fmt}");
    }

    #[test]
    fn conversions_are_the_kernels() {
        check("%d of %u", &[-3i32 as u64, 7], "-3 of 7");
        check(
            "%lld %llu %lu",
            &[u64::MAX, u64::MAX, 1],
            "-1 18446744073709551615 1",
        );
        check("%u %hhu", &[u64::MAX, 0x1ff], "4294967295 255");
        check("%x %#lx %08X", &[255, 255, 255], "ff 0xff 000000FF");
        check(
            "%5d|%-5d|%05d|%+d",
            &[3, 3, -3i32 as u64, 3],
            "    3|3    |-0003|+3",
        );
        check(
            "[%s] [%6s] [%.2s] %c%%",
            &[1, 1, 1, 65],
            "[text] [  text] [te] A%",
        );
        check("%p %pK", &[1, 2], "(pointer) (pointer)");
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        for (fmt, words) in [("%d %d", &[1][..]), ("%f", &[1]), ("%n", &[1]), ("%", &[1])] {
            assert!(format(fmt, words, |_| String::new()).is_err(), "{fmt}");
        }
    }
}
