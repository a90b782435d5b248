//! Numbers that depend on the machine: `nr_cpus`, `llc`, `sibling != cpu`.

use schedlab_machine::Machine;
use schedlab_trace::{CpuId, nearest_of};

/// The parts of a machine over which a decision is repeated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Each {
    Cpu,
    Core,
    Llc,
    Node,
    /// 64-bit words of a mask of CPUs.
    Word,
}

impl Each {
    pub const NAMES: [(&str, Each); 5] = [
        ("cpu", Each::Cpu),
        ("core", Each::Core),
        ("llc", Each::Llc),
        ("node", Each::Node),
        ("word", Each::Word),
    ];

    pub fn of(name: &str) -> Option<Each> {
        let mut all = Each::NAMES.into_iter();
        all.find_map(|(known, each)| (known == name).then_some(each))
    }
}

/// A machine, and where a repetition is.
#[derive(Clone, Copy)]
pub struct Place<'m> {
    machine: &'m Machine,
    /// The first CPU of the core, LLC or node that it is at.
    cpu: u32,
    word: u32,
}

/// The words of an expression.
pub const WORDS: [&str; 24] = [
    "nr_cpus",
    "nr_cores",
    "nr_llcs",
    "nr_nodes",
    "smt",
    "hz",
    "cpu",
    "core",
    "llc",
    "node",
    "word",
    "sibling",
    "thread",
    "capacity",
    "capacity_max",
    "core_cpus",
    "llc_cpus",
    "node_cpus",
    "all_cpus",
    "nr_core_cpus",
    "nr_llc_cpus",
    "nr_node_cpus",
    "true",
    "false",
];

impl<'m> Place<'m> {
    /// Nowhere in particular.
    pub fn of(machine: &'m Machine) -> Place<'m> {
        Place {
            machine,
            cpu: 0,
            word: 0,
        }
    }

    /// All places of a kind, each with its number, from this one on.
    pub fn each(self, each: Each) -> Vec<(u32, Place<'m>)> {
        let topology = &self.machine.topology;
        let cpus = topology.nr_cpus() as u32;
        if each == Each::Word {
            let words = cpus.div_ceil(64);
            return (0..words)
                .map(|word| (word, Place { word, ..self }))
                .collect();
        }
        let mut found: Vec<(u32, Place<'m>)> = Vec::new();
        for cpu in 0..cpus {
            let it = topology.cpu(CpuId(cpu));
            let number = match each {
                Each::Core => it.core,
                Each::Llc => it.llc,
                Each::Node => it.node,
                _ => cpu,
            };
            if !found.iter().any(|(known, _)| *known == number) {
                found.push((number, Place { cpu, ..self }));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        found
    }

    fn word(&self, name: &str) -> Option<i128> {
        let topology = &self.machine.topology;
        let cpu = CpuId(self.cpu);
        let it = topology.cpu(cpu);
        let traits = self.machine.core_traits();
        let mask = |in_it: &dyn Fn(CpuId) -> bool| {
            let first = self.word * 64;
            let last = (first + 64).min(topology.nr_cpus() as u32);
            let bits = (first..last).filter(|cpu| in_it(CpuId(*cpu)));
            bits.fold(0u64, |mask, cpu| mask | 1 << (cpu - first))
                .into()
        };
        Some(match name {
            "nr_cpus" => topology.nr_cpus() as i128,
            "nr_cores" => topology.nr_cores().into(),
            "nr_llcs" => topology.nr_llcs().into(),
            "nr_nodes" => topology.nr_nodes().into(),
            "smt" => i128::from((topology.nr_cores() as usize) < topology.nr_cpus()),
            "hz" => self.machine.hz.into(),
            "cpu" => self.cpu.into(),
            "core" => it.core.into(),
            "llc" => it.llc.into(),
            "node" => it.node.into(),
            "word" => self.word.into(),
            "sibling" => {
                let siblings = topology.smt(cpu);
                let all = || siblings.iter();
                let behind = all().find(|other| *other > cpu);
                behind.or_else(|| all().next()).unwrap_or(cpu).0.into()
            }
            "thread" => topology
                .smt(cpu)
                .iter()
                .filter(|other| *other < cpu)
                .count() as i128,
            "capacity" => traits.get(self.cpu as usize)?.capacity.into(),
            "capacity_max" => traits.iter().map(|it| it.capacity).max()?.into(),
            "core_cpus" => mask(&|other| topology.cpu(other).core == it.core),
            "llc_cpus" => mask(&|other| topology.cpu(other).llc == it.llc),
            "node_cpus" => mask(&|other| topology.cpu(other).node == it.node),
            "all_cpus" => mask(&|_| true),
            "nr_core_cpus" => topology.smt(cpu).len() as i128,
            "nr_llc_cpus" => topology.llc(cpu).len() as i128,
            "nr_node_cpus" => topology.node(cpu).len() as i128,
            "true" => 1,
            "false" => 0,
            _ => return None,
        })
    }
}

/// An expression: whole numbers, words, the operators of C for them, and parentheses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expression {
    Number(i128),
    Word(String),
    Binary(&'static str, Box<Expression>, Box<Expression>),
}

/// Operators by how tightly they bind, the loosest first.
const OPERATORS: [&[&str]; 9] = [
    &["||"],
    &["&&"],
    &["|"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Expression {
    /// Reads one.
    ///
    /// # Errors
    /// Says what is wrong and what to write.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let mut reader = Reader { rest: text.trim() };
        let expression = reader.binary(0)?;
        match reader.rest {
            "" => Ok(expression),
            rest => Err(format!("`{rest}` is left over in `{text}`")),
        }
    }

    /// Its value somewhere on a machine.
    ///
    /// # Errors
    /// If it divides by zero or leaves the numbers.
    pub fn value(&self, place: &Place<'_>) -> Result<i128, String> {
        Ok(match self {
            Expression::Number(number) => *number,
            Expression::Word(word) => place.word(word).unwrap_or(0),
            Expression::Binary(operator, left, right) => {
                let (a, b) = (left.value(place)?, right.value(place)?);
                let shift = u32::try_from(b).ok().filter(|bits| *bits < 64);
                let value = match *operator {
                    "||" => Some(i128::from(a != 0 || b != 0)),
                    "&&" => Some(i128::from(a != 0 && b != 0)),
                    "|" => Some(a | b),
                    "&" => Some(a & b),
                    "==" => Some(i128::from(a == b)),
                    "!=" => Some(i128::from(a != b)),
                    "<=" => Some(i128::from(a <= b)),
                    ">=" => Some(i128::from(a >= b)),
                    "<" => Some(i128::from(a < b)),
                    ">" => Some(i128::from(a > b)),
                    "<<" => shift.and_then(|bits| a.checked_shl(bits)),
                    ">>" => shift.and_then(|bits| a.checked_shr(bits)),
                    "+" => a.checked_add(b),
                    "-" => a.checked_sub(b),
                    "*" => a.checked_mul(b),
                    "/" => a.checked_div(b),
                    _ => a.checked_rem(b),
                };
                value.ok_or_else(|| format!("{a} {operator} {b} is no number"))?
            }
        })
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn binary(&mut self, level: usize) -> Result<Expression, String> {
        let Some(operators) = OPERATORS.get(level) else {
            return self.single();
        };
        let mut left = self.binary(level + 1)?;
        'more: loop {
            for operator in *operators {
                // `|` is not the beginning of `||`.
                let longer = ["||", "&&", "<<", ">>", "<=", ">="];
                let is_part = longer
                    .iter()
                    .any(|it| it.len() > operator.len() && self.rest.starts_with(it));
                if !is_part && self.take(operator) {
                    let right = self.binary(level + 1)?;
                    left = Expression::Binary(operator, left.into(), right.into());
                    continue 'more;
                }
            }
            return Ok(left);
        }
    }

    fn single(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            let inner = self.binary(0)?;
            return match self.take(")") {
                true => Ok(inner),
                false => Err("a `)` is missing".to_owned()),
            };
        }
        if self.take("-") {
            let inner = self.single()?;
            let zero = Expression::Number(0).into();
            return Ok(Expression::Binary("-", zero, inner.into()));
        }
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest.trim_start();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = word.replace('_', "");
            let number = match digits.strip_prefix("0x") {
                Some(hex) => i128::from_str_radix(hex, 16),
                None => digits.parse(),
            };
            return number
                .map(Expression::Number)
                .map_err(|_| format!("`{word}` is no whole number"));
        }
        if WORDS.contains(&word) {
            return Ok(Expression::Word(word.to_owned()));
        }
        let known = WORDS.join(", ");
        Err(format!(
            "`{word}` is no word{}: write a whole number or one of {known}",
            nearest_of(word, &known)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, place: &Place<'_>) -> i128 {
        Expression::parse(text).unwrap().value(place).unwrap()
    }

    #[test]
    fn operators_bind_as_in_c() {
        let machine = Machine::builtin("laptop").unwrap();
        let place = Place::of(&machine);
        for (text, expected) in [
            ("1 + 2 * 3", 7),
            ("(1 + 2) * 3", 9),
            ("10 - 2 - 3", 5),
            ("1 << 3 | 1", 9),
            ("1 << 2 + 1", 8),
            ("2 == 1 < 2", 0),
            ("7 & 3 == 3", 1),
            ("2 > 1 && 0 || 1", 1),
            ("-4 / 2", -2),
            ("0x10 % 6", 4),
            ("nr_cpus >= nr_cores", 1),
            ("5_000", 5000),
        ] {
            assert_eq!(value(text, &place), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for (text, told) in [
            ("nr_cpu", "nr_cpus"),
            ("1 +", "is no word"),
            ("(1", "`)` is missing"),
            ("1 2", "`2` is left over"),
            ("12x", "no whole number"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        let machine = Machine::builtin("laptop").unwrap();
        let error = Expression::parse("1 / 0").unwrap();
        assert!(error.value(&Place::of(&machine)).is_err());
    }

    #[test]
    fn places_have_the_numbers_of_the_machine() {
        let machine = Machine::builtin("laptop").unwrap();
        let place = Place::of(&machine);
        for (cpu, place) in place.each(Each::Cpu) {
            let it = machine.topology.cpu(CpuId(cpu));
            assert_eq!(value("cpu", &place), i128::from(cpu));
            assert_eq!(value("llc", &place), i128::from(it.llc));
            assert_eq!(value("core_cpus >> cpu & 1", &place), 1);
            let sibling = value("sibling", &place) as u32;
            assert_eq!(machine.topology.cpu(CpuId(sibling)).core, it.core);
        }
        assert_eq!(
            place.each(Each::Llc).len(),
            machine.topology.nr_llcs() as usize
        );
    }
}
