//! Numbers of CPUs on the command line: `8`, `2,4,8`, `2..8` (ends included).

use schedlab_sim::NR_CPUS_MAX;

/// Returns the numbers that `text` lists, in its order.
///
/// # Errors
/// One line that says what is wrong and what to write.
pub fn parse(text: &str) -> Result<Vec<usize>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once("..") {
            // Rust's way of writing the same.
            Some((first, last)) => (
                number(text, first)?,
                number(text, last.trim_start_matches('='))?,
            ),
            None => (number(text, part)?, number(text, part)?),
        };
        if first > last {
            return Err(format!("`{part}` counts down: write {last}..{first}"));
        }
        for n in first..=last {
            if numbers.contains(&n) {
                return Err(format!(
                    "{n} is named twice; --repeat runs each several times"
                ));
            }
            numbers.push(n);
        }
    }
    Ok(numbers)
}

fn number(text: &str, part: &str) -> Result<usize, String> {
    match part.trim().parse() {
        Ok(0) => Err("0 CPUs cannot run anything: write 1 or more".to_owned()),
        // Told here, too: the numbers of a range are counted out before a machine is asked.
        Ok(n) if n > NR_CPUS_MAX => Err(format!("{n} CPUs are too many: at most {NR_CPUS_MAX}")),
        Ok(n) => Ok(n),
        Err(_) => Err(format!(
            "`{text}` is not a number of CPUs: write for example 8, 2,4,8 or 2..8"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lists_and_ranges() {
        assert_eq!(parse("8"), Ok(vec![8]));
        assert_eq!(parse("2,4,8"), Ok(vec![2, 4, 8]));
        assert_eq!(parse("2..4"), Ok(vec![2, 3, 4]));
        assert_eq!(parse("2..=4"), Ok(vec![2, 3, 4]));
        assert_eq!(parse("8,1..2, 3"), Ok(vec![8, 1, 2, 3]));
        assert_eq!(parse("3..3"), Ok(vec![3]));
    }

    #[test]
    fn nonsense_says_what_to_write() {
        for text in [
            "",
            "0",
            "0..3",
            "a",
            "1,,2",
            "4..2",
            "-1",
            "99999999",
            "1...2",
            "2,2",
            "8,1..2, 2",
            "1..4,4..8",
        ] {
            assert!(parse(text).is_err(), "{text} was accepted");
        }
        assert!(parse("8192").is_ok());
        assert_eq!(
            parse("8193"),
            Err("8193 CPUs are too many: at most 8192".into())
        );
        assert_eq!(
            parse("1..4,3"),
            Err("3 is named twice; --repeat runs each several times".into())
        );
        assert_eq!(parse("4..2"), Err("`4..2` counts down: write 2..4".into()));
    }
}
