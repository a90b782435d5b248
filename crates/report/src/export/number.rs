//! Numbers as people read them.

pub use schedlab_trace::time_unit;

/// Three significant digits, two below 1, all of an integer's; very small numbers as 1.0e-7.
pub fn digits(x: f64) -> String {
    match x.abs() {
        a if a >= 99.95 => grouped(x.round()),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.0995 => format!("{x:.2}"),
        a if a >= 0.009_95 => format!("{x:.3}"),
        0.0 => "0".to_owned(),
        a if a >= 0.000_995 => format!("{x:.4}"),
        a if a >= 0.000_099_5 => format!("{x:.5}"),
        _ => format!("{x:.1e}"),
    }
}

/// Thousands separated; below 1000 with three significant digits.
pub fn grouped(x: f64) -> String {
    if x.abs() < 999.5 {
        return if x.fract() == 0.0 {
            format!("{x:.0}")
        } else {
            digits(x)
        };
    }
    let plain = format!("{:.0}", x.abs());
    let mut text = String::from(if x < 0.0 { "-" } else { "" });
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a value with its unit; times in the unit that suits them.
pub fn amount(value: f64, unit: &str) -> String {
    match time_unit(value, unit) {
        Some((size, unit)) => format!("{} {unit}", digits(value / size)),
        None => format!("{} {unit}", grouped(value)).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (x, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.123, "0.12"),
            (0.001_24, "0.0012"),
            (0.000_124, "0.00012"),
            (0.000_01, "1.0e-5"),
            (-0.000_001_26, "-1.3e-6"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (1234567.0, "1,234,567"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(grouped(x), text, "{x}");
        }
    }

    #[test]
    fn amounts_have_the_unit_that_suits_them() {
        assert_eq!(amount(10_210_927_426.0, "ns"), "10.2 s");
        assert_eq!(amount(51_840_000.0, "ns"), "51.8 ms");
        assert_eq!(amount(1_198.0, "ns/round"), "1.20 µs/round");
        assert_eq!(amount(12.0, "ns/op"), "12.0 ns/op");
        assert_eq!(
            amount(9_396_645.4, "delivered messages/s"),
            "9,396,645 delivered messages/s"
        );
        // No time, whatever it begins with; and no unit at all.
        assert_eq!(amount(3.0, "nsomething"), "3 nsomething");
        assert_eq!(amount(3.0, ""), "3");
        assert_eq!(amount(0.0, ""), "0");
    }
}
