//! Code that the tests of this folder share; the kernel's side reads the rules, too.
#![allow(dead_code, reason = "each test file uses the part of it that it needs")]

pub mod rules;
pub mod script;
