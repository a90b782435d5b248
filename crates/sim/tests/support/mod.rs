//! What the tests of this folder share.
#![allow(dead_code, reason = "each test file uses the part of it that it needs")]

pub mod rules;
pub mod script;
