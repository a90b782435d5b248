//! The head of version 6: one part after another, in a fixed order.

use std::io::Read;

use super::head::{CpuPages, Head};
use super::input::{Input, printable};
use crate::RecordingError;

/// Reads all behind the page size.
pub(super) fn read<R: Read>(head: &mut Head, input: &mut Input<R>) -> Result<(), RecordingError> {
    head.header_info(input)?;
    for _ in 0..input.u32("the number of ftrace formats")? {
        let size = input.u64("the size of an ftrace format")?;
        input.skip(size, "an ftrace format")?;
    }
    head.event_formats(input)?;
    let size = input.u32("the size of kallsyms")?;
    input.skip(u64::from(size), "kallsyms")?;
    let size = input.u32("the size of the printk formats")?;
    input.skip(u64::from(size), "the printk formats")?;
    let size = input.u64("the size of the command lines")?;
    input.skip(size, "the command lines")?;
    let cpus = Head::cpus(input)?;
    let mut kind = input.bytes(10, "the kind of data")?;
    if kind == b"options  \0" {
        options(head, input)?;
        kind = input.bytes(10, "the kind of data")?;
    }
    match &kind[..] {
        b"flyrecord\0" => {}
        b"latency  \0" => {
            head.has_text = true;
            return Ok(());
        }
        _ => return Err(input.corrupted("`flyrecord` should stand before this place")),
    }
    for cpu in 0..cpus {
        head.cpus.push(CpuPages {
            cpu,
            at: input.u64("the place of a CPU's pages")?,
            size: input.u64("the size of a CPU's pages")?,
        });
    }
    head.clock_behind(input);
    Ok(())
}

fn options<R: Read>(head: &mut Head, input: &mut Input<R>) -> Result<(), RecordingError> {
    loop {
        let id = input.u16("an option")?;
        if id == 0 {
            return Ok(());
        }
        let size = input.u32("the size of an option")?;
        let data = input.bytes(u64::from(size), "an option")?;
        if id == 3 {
            let name = data.get(8..).unwrap_or_default();
            head.instance = Some(printable(name.strip_suffix(b"\0").unwrap_or(name)));
        } else {
            head.option(id, &data, input.endian);
        }
    }
}
