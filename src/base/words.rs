//! Numbers as a person reads them: thousands separators, units, three significant digits.
//!
//! One way for preflight and summary, so that the same figure looks the same in both. Owns no sentence.

/// `4449` → `4,449`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (ix, digit) in digits.chars().enumerate() {
        if ix > 0 && (digits.len() - ix).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `56011` → `56K`, `412` → `412`, `1.25e6` → `1.2M`.
pub fn tokens(n: f64) -> String {
    match n {
        n if n < 999.5 => unsigned_nothing(&format!("{n:.0}")),
        n if n < 9_950.0 => format!("{:.1}K", n / 1e3),
        n if n < 999_500.0 => format!("{:.0}K", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

/// `0.4203` → `42.0 %`.
pub fn percent(share: f64) -> String {
    unsigned_nothing(&format!("{:.1}", share * 100.0)) + " %"
}

/// The text of a size with the sign of its value; what is rounded to nothing has none.
pub fn signed(value: f64, size: &str) -> String {
    let sign = if value > 0.0 { "+" } else { "−" };
    let is_nothing = !size.contains(|c: char| matches!(c, '1'..='9'));
    if is_nothing { size.to_owned() } else { format!("{sign}{size}") }
}

/// The text of a number, without a sign where it is rounded to nothing.
fn unsigned_nothing(number: &str) -> String {
    let size = number.strip_prefix('-').unwrap_or(number);
    let is_nothing = !size.contains(|c: char| matches!(c, '1'..='9'));
    if is_nothing { size.to_owned() } else { number.to_owned() }
}

/// 0 for −0, which a sum of nothing and a product with 0 may be.
pub fn without_zero_sign(value: f64) -> f64 {
    value + 0.0
}

/// Two shares, the smaller first, are told as a range: they lie a point or more apart.
pub fn is_range(low: f64, high: f64) -> bool {
    high - low >= 0.01
}

/// `69.0–98.1 %`; the higher alone where it is no [range](is_range).
pub fn percent_range(low: f64, high: f64) -> String {
    let from = if is_range(low, high) { format!("{:.1}–", low * 100.0) } else { String::new() };
    from + &percent(high)
}

/// Milliseconds as seconds of three significant digits: `495` → `0.495 s`, `12670` → `12.7 s`.
pub fn seconds(ms: f64) -> String {
    match ms {
        ms if ms > 0.0 && ms < 0.5 => "<0.001 s".into(),
        ms if ms < 999.5 => unsigned_nothing(&format!("{:.3}", ms / 1e3)) + " s",
        ms if ms < 9_995.0 => format!("{:.2} s", ms / 1e3),
        ms if ms < 99_950.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{} s", count((ms / 1e3).round() as u64)),
    }
}

/// A short time given in milliseconds, three significant digits: in milliseconds below a second, as [`seconds`] from there on.
pub fn fine_time(ms: f64) -> String {
    match ms {
        0.0 => "0 ms".into(),
        ms if ms < 0.0005 => "<0.001 ms".into(),
        ms if ms < 0.9995 => format!("{ms:.3} ms"),
        ms if ms < 9.995 => format!("{ms:.2} ms"),
        ms if ms < 99.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => seconds(ms),
    }
}

/// So many a second: two decimals, or two significant digits where those would be zeros: `12.35`, `0.74`, `0.0016`.
pub fn rate(per_second: f64) -> String {
    let zeros = if per_second > 0.0 { -per_second.log10().floor() } else { 0.0 };
    unsigned_nothing(&format!("{per_second:.*}", zeros.clamp(1.0, 12.0) as usize + 1))
}

/// `1 session`, `2 sessions`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_has_no_sign() {
        for nothing in [0.0, -0.0, -1e-9] {
            assert_eq!(
                [tokens(nothing), percent(nothing), seconds(nothing), rate(nothing)],
                ["0", "0.0 %", "0.000 s", "0.00"],
                "{nothing:e}"
            );
            assert!(!fine_time(nothing).starts_with('-'), "{nothing:e}");
        }
        assert_eq!((percent(-0.031), tokens(-5.0)), ("-3.1 %".into(), "-5".into()));
        let signs = [(0.04, "0.0"), (-0.04, "0.0"), (-0.06, "0.1"), (3.0, "3"), (-0.0, "0 ms")];
        assert_eq!(signs.map(|(value, size)| signed(value, size)), ["0.0", "0.0", "−0.1", "+3", "0 ms"]);
        assert!(without_zero_sign(-0.0).is_sign_positive() && without_zero_sign(-1.0) == -1.0);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 4_449, 1_234_567].map(count), ["0", "999", "4,449", "1,234,567"]);
        assert_eq!([412.0, 2_340.0, 9_960.0, 56_011.0, 1.25e6].map(tokens), ["412", "2.3K", "10K", "56K", "1.2M"]);
        let ms = [0.0, 0.2, 43.0, 999.4, 999.9, 1_750.0, 12_670.0, 244_000.0, 1e8];
        let text = ["0.000 s", "<0.001 s", "0.043 s", "0.999 s", "1.00 s", "1.75 s", "12.7 s", "244 s", "100,000 s"];
        assert_eq!(ms.map(seconds), text);
        let rates = [0.0, 0.0016, 0.01, 0.0999, 0.74, 12.345, 1e-20];
        assert_eq!(rates.map(rate), ["0.00", "0.0016", "0.010", "0.100", "0.74", "12.35", "0.0000000000000"]);
        assert_eq!(
            (percent(0.568), plural(1, "session"), plural(52, "session")),
            ("56.8 %".into(), "1 session".into(), "52 sessions".into())
        );
    }
}
