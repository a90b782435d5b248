//! A loader as schedulers have one, for tests: loads an object by libbpf, sets variables of `.rodata`, runs programs of
//! `SEC("syscall")`, attaches, and waits to be ended.
//!
//! `test-loader OBJECT WORK…`; the work is done in its order, numbers are of 64 bits, keys of 32:
//!
//! - `set NAME NUMBER`: a variable of `.rodata`;
//! - `run PROGRAM NUMBER`: by `BPF_PROG_TEST_RUN`; `check PROGRAM NUMBER LEFT`: must leave a number;
//! - `put MAP KEY NUMBER`: must be there afterwards; `try MAP KEY NUMBER`: may fail; `get MAP KEY`: looks it up;
//! - `inner MAP KEY ENTRIES`: makes a queue of numbers and puts it into a map of maps;
//! - `attach PROGRAM`: before the ops;
//! - `beside OBJECT`: loads another object first, and lets it run its program `prepare`;
//! - `lies OBJECT`: opens another object first, and does not load it;
//! - `inverted`: the bytes of the object's file are inverted, so that nobody knows it.

use std::collections::BTreeMap;
use std::error::Error;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Enum, Enum64, Var};
use libbpf_rs::{
    MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, ProgramInput, libbpf_sys,
};

fn main() {
    if let Err(error) = load() {
        eprintln!("Error: {error}");
        std::process::exit(1);
    }
}

/// Gives each variable `__SCX_NAME` the value of the kernel's enumerator, as `SCX_ENUM_INIT()` does.
fn enumerators(open: &mut OpenObject, btf: &Btf<'_>) -> Result<(), Box<dyn Error>> {
    let Some(rodata) = btf.type_by_name::<DataSec<'_>>(".rodata") else {
        return Ok(());
    };
    let kernel = Btf::from_vmlinux()?;
    let mut values = BTreeMap::new();
    for of in kernel.type_by_kind::<Enum<'_>>() {
        values.extend(
            of.iter()
                .filter_map(|it| Some((it.name?.to_owned(), it.value as u64))),
        );
    }
    for of in kernel.type_by_kind::<Enum64<'_>>() {
        values.extend(
            of.iter()
                .filter_map(|it| Some((it.name?.to_owned(), it.value as u64))),
        );
    }
    let mut maps = open.maps_mut();
    let mut map = maps
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or("no map")?;
    let bytes = map.initial_value_mut().ok_or("it has no value")?;
    for place in rodata.iter().filter(|place| place.size == 8) {
        let of: Option<Var<'_>> = btf.type_by_id(place.ty);
        let name = of
            .and_then(|of| of.name())
            .unwrap_or_default()
            .to_string_lossy();
        let value = name
            .strip_prefix("__")
            .and_then(|name| values.get(std::ffi::OsStr::new(name)));
        if let Some(value) = value {
            bytes[place.offset as usize..][..8].copy_from_slice(&value.to_le_bytes());
        }
    }
    Ok(())
}

/// Sets a variable of `.rodata`.
fn set(open: &mut OpenObject, btf: &Btf<'_>, name: &str, value: u64) -> Result<(), Box<dyn Error>> {
    let rodata: DataSec<'_> = btf.type_by_name(".rodata").ok_or("there is no .rodata")?;
    let place = rodata.iter().find(|var| {
        let of: Option<Var<'_>> = btf.type_by_id(var.ty);
        of.is_some_and(|of| of.name().is_some_and(|known| known == name))
    });
    let place = place.ok_or("there is no such variable")?;
    let mut maps = open.maps_mut();
    let mut map = maps
        .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
        .ok_or("no map")?;
    let bytes = map.initial_value_mut().ok_or("it has no value")?;
    let size = place.size.min(8);
    bytes[place.offset as usize..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
    Ok(())
}

/// Runs a program of `SEC("syscall")`; answers with what it leaves in its argument.
fn run(object: &mut Object, name: &str, argument: u64) -> Result<u64, Box<dyn Error>> {
    let program = object.progs_mut().find(|it| it.name() == name);
    let program = program.ok_or("there is no such program")?;
    let mut context = argument.to_le_bytes();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..ProgramInput::default()
    };
    let output = program.test_run(input)?;
    let returned = output.return_value;
    let left = u64::from_le_bytes(context);
    println!("{name} returned {returned} and left {left}");
    Ok(left)
}

fn load() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("a word is missing");
    let path = next()?;
    let mut work = Vec::new();
    while let Ok(word) = next() {
        let (names, numbers) = match word.as_str() {
            "inverted" => (0, 0),
            "attach" | "beside" | "lies" => (1, 0),
            "get" | "set" | "run" => (1, 1),
            "put" | "try" | "check" | "inner" => (1, 2),
            other => return Err(format!("`{other}` is no work").into()),
        };
        let name = match names {
            1 => next()?,
            _ => String::new(),
        };
        let mut values = Vec::new();
        for _ in 0..numbers {
            values.push(next()?.parse::<u64>()?);
        }
        work.push((word, name, values));
    }
    for (_, other, _) in work.iter().filter(|(word, ..)| word == "lies") {
        ObjectBuilder::default().open_file(other)?;
    }
    let mut others = Vec::new();
    for (_, other, _) in work.iter().filter(|(word, ..)| word == "beside") {
        let mut other = ObjectBuilder::default().open_file(other)?.load()?;
        run(&mut other, "prepare", 0)?;
        others.push(other);
    }
    let mut builder = ObjectBuilder::default();
    let open = match work.iter().any(|(word, ..)| word == "inverted") {
        true => {
            let bytes: Vec<u8> = std::fs::read(&path)?.iter().map(|byte| !byte).collect();
            builder.open_memory(&bytes)?
        }
        false => {
            let mut open = builder.open_file(&path)?;
            let btf = Btf::from_path(&path)?;
            for (_, name, values) in work.iter().filter(|(word, ..)| word == "set") {
                set(&mut open, &btf, name, values[0])?;
            }
            enumerators(&mut open, &btf)?;
            open
        }
    };
    let mut object = open.load()?;
    let mut links = Vec::new();
    for (word, name, values) in &work {
        match word.as_str() {
            "run" => drop(run(&mut object, name, values[0])?),
            "check" if run(&mut object, name, values[0])? != values[1] => {
                return Err(format!("{name} has left another number than {}", values[1]).into());
            }
            "put" | "try" | "get" => {
                let map = object.maps().find(|it| it.name() == name.as_str());
                let map = map.ok_or("there is no such map")?;
                let key = (values[0] as u32).to_le_bytes();
                if word != "get" {
                    let value = values[1].to_le_bytes();
                    let done = map.update(&key, &value, MapFlags::ANY);
                    if word == "try" {
                        println!("{name}: {done:?}");
                        continue;
                    }
                    done?;
                    if map.lookup(&key, MapFlags::ANY)?.as_deref() != Some(&value) {
                        return Err(format!("{name} has not what was put there").into());
                    }
                }
                println!("{name} has {:?}", map.lookup(&key, MapFlags::ANY)?);
            }
            "inner" => {
                let outer = object.maps().find(|it| it.name() == name.as_str());
                let outer = outer.ok_or("there is no such map")?;
                let key = (values[0] as u32).to_le_bytes();
                let options = libbpf_sys::bpf_map_create_opts {
                    sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
                    ..Default::default()
                };
                let kind = libbpf_rs::MapType::Queue;
                let entries = values[1] as u32;
                let inner = MapHandle::create(kind, None::<&str>, 0, 8, entries, &options)?;
                let descriptor = inner.as_fd().as_raw_fd().to_le_bytes();
                outer.update(&key, &descriptor, MapFlags::ANY)?;
                if outer.lookup(&key, MapFlags::ANY)?.map(|id| id.len()) != Some(4) {
                    return Err(format!("{name} has no map at {}", values[0]).into());
                }
            }
            "attach" => {
                let program = object.progs_mut().find(|it| it.name() == name.as_str());
                links.push(program.ok_or("there is no such program")?.attach()?);
            }
            _ => {}
        }
    }
    let mut maps = object.maps_mut();
    let mut ops = maps
        .find(|map| map.map_type() == libbpf_rs::MapType::StructOps)
        .ok_or("no ops")?;
    let _link = ops.attach_struct_ops()?;
    println!("attached");
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
}
