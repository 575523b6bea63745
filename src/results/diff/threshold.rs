//! [`Threshold`]: a condition of `--fail-on`, such as `p99_e2e_ms>+5%`.
//!
//! A limit with a sign is one on the change from A to B: with `%` relative to A, else in the figure's own unit. A limit
//! without a sign is one on the figure in B; `%` then stands for hundredths and fits shares alone. A condition that cannot be
//! judged, because a side lacks the figure or was changed after its runs, counts as met: a gate must not open by itself.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::compare::figure_names;
use super::report::{MetricDelta, ThresholdResult};
use crate::base::nearest;
use crate::base::words::{count, signed};
use crate::results::{Figure, RunFigure};

/// A condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    text: String,
    /// What is judged.
    pub figure: Figure,
    operator: Operator,
    limit: Limit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit {
    /// On the figure in B.
    Value(f64),
    /// On B − A.
    Change(f64),
    /// On (B − A) / A.
    Relative(f64),
}

/// Decimals at most.
const MOST_DIGITS: usize = 10;
/// Values that differ by less, or by less than this part of them, are the same: sums in another order differ so.
const SAME: f64 = 1e-9;

/// How a value is written.
#[derive(Debug, Clone, Copy)]
enum Size {
    /// In per cent, one decimal at least.
    Percent,
    /// In the figure's unit, three digits.
    Own,
}

/// How conditions are written.
pub const GRAMMAR: &str = "FIGURE (> | >= | < | <=) [+|-]NUMBER[%]: with a sign the change from A to B, in % of A or in the \
                           figure's unit; without a sign the figure in B";

/// Text that is no condition.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{cause}\n  {text}\n  {blank}{mark}\n{GRAMMAR}\nexamples: p99_e2e_ms>+5%  direct_share<-0.05  bad_share>1%  starved_sessions>0"
)]
pub struct ThresholdError {
    text: String,
    cause: String,
    blank: String,
    mark: String,
}

/// Reads a text from left to right.
struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Everything up to a character that is not wanted.
    fn word(&mut self, wanted: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !wanted(c)).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    /// An error about the text from byte `from` on, of so many characters.
    fn error(&self, from: usize, characters: usize, cause: String) -> ThresholdError {
        let blank = " ".repeat(self.text[..from].chars().count());
        ThresholdError { text: self.text.into(), cause, blank, mark: "^".repeat(characters.max(1)) }
    }
}

impl FromStr for Threshold {
    type Err = ThresholdError;

    fn from_str(text: &str) -> Result<Threshold, ThresholdError> {
        if text.chars().any(char::is_control) {
            let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let reader = Reader { text: &shown, at: 0 };
            return Err(reader.error(
                0,
                shown.chars().count(),
                "a condition is one line without control characters".into(),
            ));
        }
        let mut reader = Reader { text, at: 0 };
        let figure = figure(&mut reader)?;
        let operator = operator(&mut reader)?;
        let limit = limit(&mut reader, figure)?;
        reader.blanks();
        if !reader.rest().is_empty() {
            let cause = format!("`{}` is one too many", reader.rest());
            return Err(reader.error(reader.at, reader.rest().chars().count(), cause));
        }
        Ok(Threshold { text: text.trim().into(), figure, operator, limit })
    }
}

fn figure(reader: &mut Reader) -> Result<Figure, ThresholdError> {
    reader.blanks();
    let from = reader.at;
    let word = reader.word(|c| c.is_alphanumeric() || c == '_' || c == '.' || c == '-');
    word.parse().map_err(|_| {
        let near = nearest(word, &figure_names());
        let cause = match (word, near) {
            ("", _) => "a figure is missing".to_owned(),
            (_, Some(near)) => format!("no figure is named `{word}`; did you mean `{near}`?"),
            (_, None) => format!("no figure is named `{word}`; some are {}", some_names()),
        };
        reader.error(from, word.chars().count(), cause)
    })
}

fn some_names() -> String {
    const SOME: [&str; 8] = [
        "mean_e2e_ms",
        "p99_e2e_ms",
        "p99_ttft_ms",
        "request_throughput",
        "direct_share",
        "bad_share",
        "starved_sessions",
        "became_starved",
    ];
    SOME.join(", ")
}

fn operator(reader: &mut Reader) -> Result<Operator, ThresholdError> {
    reader.blanks();
    let from = reader.at;
    let known = [
        (">=", Operator::GreaterOrEqual),
        ("<=", Operator::LessOrEqual),
        (">", Operator::Greater),
        ("<", Operator::Less),
    ];
    let found = known.into_iter().find(|(symbol, _)| reader.take(symbol));
    found.map(|(_, operator)| operator).ok_or_else(|| {
        let cause = match reader.rest().chars().next() {
            None => "an operator is missing: >, >=, < or <=".to_owned(),
            Some(other) => format!("`{other}` is no operator; write >, >=, < or <="),
        };
        reader.error(from, 1, cause)
    })
}

fn limit(reader: &mut Reader, figure: Figure) -> Result<Limit, ThresholdError> {
    reader.blanks();
    let from = reader.at;
    let sign = if reader.take("+") {
        Some(1.0)
    } else if reader.take("-") || reader.take("−") {
        Some(-1.0)
    } else {
        None
    };
    let number = reader.word(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = number.parse().ok().filter(|value: &f64| plain && value.is_finite());
    let Some(value) = value else {
        let cause = if number.is_empty() { "a limit is missing".into() } else { format!("`{number}` is no number") };
        return Err(reader.error(from, reader.at - from, cause));
    };
    let spaced = reader.at;
    reader.blanks();
    let percent = reader.take("%");
    reader.at = if percent { reader.at } else { spaced };
    match (sign, percent) {
        (Some(sign), true) => Ok(Limit::Relative(sign * value / 100.0)),
        (Some(sign), false) => Ok(Limit::Change(sign * value)),
        (None, true) if figure.unit() == "share" => Ok(Limit::Value(value / 100.0)),
        (None, false) => Ok(Limit::Value(value)),
        (None, true) => {
            let cause = format!("{figure} is no share: write +{number}% for a change by {number} % of A");
            Err(reader.error(from, reader.at - from, cause))
        }
    }
}

impl Operator {
    fn holds(self, value: f64, limit: f64) -> bool {
        let is_same = (value - limit).abs() <= SAME * value.abs().max(limit.abs()).max(1.0);
        match self {
            Operator::Greater => value > limit && !is_same,
            Operator::GreaterOrEqual => value >= limit || is_same,
            Operator::Less => value < limit && !is_same,
            Operator::LessOrEqual => value <= limit || is_same,
        }
    }
}

impl Threshold {
    /// Judges the figure, which `metrics` should have. By figures in `doubt`, the reason in words, nothing passes.
    pub(super) fn judge(&self, metrics: &[MetricDelta], doubt: Option<&str>) -> ThresholdResult {
        let key = self.figure.to_string();
        let metric = metrics.iter().find(|metric| metric.key == key);
        let (value, limit) = match self.limit {
            Limit::Value(limit) => (metric.and_then(|metric| metric.b), limit),
            Limit::Change(limit) => (metric.and_then(|metric| metric.delta), limit),
            Limit::Relative(limit) => (metric.and_then(relative), limit),
        };
        let holds = value.is_none_or(|value| self.operator.holds(value, limit));
        let text = match (value, holds, doubt) {
            (None, ..) => format!("{key} cannot be judged: {}", self.missing(metric, metrics)),
            (Some(value), true, _) => format!("{key} {}: crosses {}", self.shown(value, limit), self.text),
            (Some(_), false, Some(doubt)) => format!("{key} cannot be judged: {doubt}"),
            (Some(value), false, None) => format!("{key} {}: does not cross {}", self.shown(value, limit), self.text),
        };
        ThresholdResult { expr: self.text.clone(), value, crossed: holds || doubt.is_some(), text }
    }

    fn shown(&self, value: f64, limit: f64) -> String {
        let is_share = self.figure.unit() == "share";
        let unit = if is_share { String::new() } else { format!(" {}", self.figure.unit()) };
        let percent = || signed(value, &self.size(value, limit, Size::Percent));
        let own = || signed(value, &self.size(value, limit, Size::Own));
        match self.limit {
            Limit::Value(_) if is_share => format!("is {} %", percent().trim_start_matches('+')),
            Limit::Value(_) => format!("is {}{unit}", own().trim_start_matches('+')),
            Limit::Change(_) => format!("changed by {}{unit}", own()),
            Limit::Relative(_) => format!("changed by {} %", percent()),
        }
    }

    /// Without its sign: digits as in the tables, or as many as show on which side of the limit it is.
    fn size(&self, value: f64, limit: f64, size: Size) -> String {
        let (scale, least) = match size {
            Size::Percent => (100.0, 1),
            Size::Own => (1.0, decimals_of(value)),
        };
        let crossed = self.operator.holds(value, limit);
        let tells = |digits: &usize| {
            let shown = format!("{:.digits$}", value * scale, digits = *digits).parse::<f64>();
            shown.is_ok_and(|shown| self.operator.holds(shown / scale, limit) == crossed)
        };
        let digits = (least..MOST_DIGITS).find(tells).unwrap_or(MOST_DIGITS);
        decimal(value.abs() * scale, digits, matches!(size, Size::Own))
    }

    fn missing<'m>(&self, metric: Option<&'m MetricDelta>, metrics: &[MetricDelta]) -> &'m str {
        let needs_slos = matches!(self.figure, Figure::Run(RunFigure::RequestGoodput | RunFigure::SloAttainment));
        let has_slos = metrics.iter().any(|metric| metric.key == RunFigure::SloAttainment.as_str());
        if metric.is_none() && needs_slos && !has_slos {
            return "the runs have no equal objectives; --goodput ttft:2000,e2el:60000 sets some";
        }
        missing(metric)
    }
}

/// Nothing to nothing is no change.
fn relative(metric: &MetricDelta) -> Option<f64> {
    metric.relative.or_else(|| metric.delta.filter(|delta| *delta == 0.0))
}

fn missing(metric: Option<&MetricDelta>) -> &str {
    match metric {
        None => "it was left out, as the sides differ too much for it",
        Some(MetricDelta { missing: Some(why), .. }) => why,
        Some(MetricDelta { a: None, b: None, .. }) => "neither side has it",
        Some(MetricDelta { a: None, .. }) => "A has none",
        Some(MetricDelta { b: None, .. }) => "B has none",
        Some(_) => "it is 0 in A, so that there is no relative change",
    }
}

/// So many decimals, with thousands separators, of what is not negative; zeros at its end are left out where they may be.
fn decimal(value: f64, digits: usize, trims: bool) -> String {
    let text = format!("{value:.digits$}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let decimals = if trims { decimals.trim_end_matches('0') } else { decimals };
    if decimals.is_empty() { whole } else { format!("{whole}.{decimals}") }
}

/// Decimals of three significant digits.
fn decimals_of(value: f64) -> usize {
    let places = if value == 0.0 { 0 } else { 2 - value.abs().log10().floor() as i64 };
    usize::try_from(places).unwrap_or(0).min(MOST_DIGITS)
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::DeltaVerdict;
    use super::*;
    use crate::results::Better;

    fn metric(key: &str, a: Option<f64>, b: Option<f64>) -> MetricDelta {
        let delta = a.zip(b).map(|(a, b)| b - a);
        MetricDelta {
            key: key.into(),
            metric: String::new(),
            stat: String::new(),
            unit: String::new(),
            better: Better::Lower,
            a,
            b,
            n_a: 1,
            n_b: 1,
            delta,
            relative: delta.zip(a.filter(|a| *a != 0.0)).map(|(delta, a)| delta / a),
            interval: None,
            noise: None,
            missing: None,
            verdict: DeltaVerdict::Unjudged,
        }
    }

    fn crossed(expr: &str, key: &str, a: f64, b: f64) -> bool {
        expr.parse::<Threshold>().unwrap().judge(&[metric(key, Some(a), Some(b))], None).crossed
    }

    #[test]
    fn a_sign_makes_a_change_of_it_and_a_per_cent_a_relative_one() {
        assert!(crossed("p99_e2e_ms>+5%", "p99_e2e_ms", 100.0, 106.0));
        assert!(!crossed("p99_e2e_ms>+5%", "p99_e2e_ms", 100.0, 105.0));
        assert!(crossed(" p99_e2e_ms >= + 5 % ".replace("+ 5", "+5").as_str(), "p99_e2e_ms", 100.0, 105.0));
        assert!(crossed("p99_e2e_ms>+5", "p99_e2e_ms", 1000.0, 1006.0));
        assert!(crossed("p99_e2e_ms>5", "p99_e2e_ms", 6.0, 6.0));
        assert!(crossed("direct_share<-0.05", "direct_share", 0.5, 0.44));
        assert!(!crossed("direct_share<-0.05", "direct_share", 0.5, 0.46));
        assert!(crossed("bad_share>1%", "bad_share", 0.5, 0.011));
        assert!(crossed("starved_sessions>0", "starved_sessions", 7.0, 7.0));
        assert!(!crossed("starved_sessions>+0", "starved_sessions", 7.0, 7.0));
        assert!(!crossed("failed>+0%", "failed", 0.0, 0.0));
    }

    #[test]
    fn what_cannot_be_judged_counts_as_met() {
        let threshold: Threshold = "p99_e2e_ms>+5%".parse().unwrap();
        let judged = threshold.judge(&[metric("p99_e2e_ms", Some(1.0), None)], None);
        assert_eq!((judged.crossed, judged.value), (true, None));
        assert!(judged.text.ends_with("B has none"), "{}", judged.text);
        assert!(threshold.judge(&[], None).crossed);
        assert!(threshold.judge(&[metric("p99_e2e_ms", Some(0.0), Some(1.0))], None).crossed);
    }

    #[test]
    fn a_verdict_reads_forwards_and_has_the_digits_of_the_tables() {
        let text = |expr: &str, key: &str, a: f64, b: f64| {
            expr.parse::<Threshold>().unwrap().judge(&[metric(key, Some(a), Some(b))], None).text
        };
        let key = "p99_e2e_ms";
        assert_eq!(
            text("p99_e2e_ms>+5%", key, 1000.0, 963.0),
            "p99_e2e_ms changed by −3.7 %: does not cross p99_e2e_ms>+5%"
        );
        assert_eq!(
            text("p99_e2e_ms>+5%", key, 1000.0, 1050.4),
            "p99_e2e_ms changed by +5.04 %: crosses p99_e2e_ms>+5%"
        );
        assert!(text("p99_e2e_ms>+5", key, 9000.0, 7765.4).starts_with("p99_e2e_ms changed by −1,235 ms: "));
        assert!(text("direct_share<-0.05", "direct_share", 0.5, 0.4).starts_with("direct_share changed by −0.1: "));
        let unset = "request_goodput<-5%".parse::<Threshold>().unwrap();
        assert!(unset.judge(&[], None).text.contains("--goodput ttft:"), "{}", unset.judge(&[], None).text);
        let known = unset.judge(&[metric("slo_attainment", Some(1.0), Some(1.0))], None).text;
        assert!(known.contains("left out") && !known.contains("--goodput"), "{known}");
    }

    #[test]
    fn a_verdict_has_no_sign_on_nothing_and_no_digit_that_says_nothing() {
        let text = |expr: &str, a: f64, b: f64| {
            let threshold = expr.parse::<Threshold>().unwrap();
            let judged = threshold.judge(&[metric(&threshold.figure.to_string(), Some(a), Some(b))], None);
            (judged.crossed, judged.text.split(": ").next().unwrap().split_once(' ').unwrap().1.to_owned())
        };
        let cases = [
            ("p99_e2e_ms>0", 0.0, -0.0, false, "is 0 ms"),
            ("p99_e2e_ms>=0", 0.0, -0.0, true, "is 0 ms"),
            ("bad_share>=0%", 0.0, -0.0, true, "is 0.0 %"),
            ("bad_share<=-0", 0.1, 0.1, true, "changed by 0"),
            ("p99_e2e_ms<=-0%", 5.0, 5.0, true, "changed by 0.0 %"),
            ("p99_e2e_ms<-0%", 1000.0, 999.9, true, "changed by −0.01 %"),
            ("p99_e2e_ms>20", 1.0, 22.346_217, true, "is 22.3 ms"),
            ("p99_e2e_ms>22.34", 1.0, 22.346_217, true, "is 22.35 ms"),
            ("p99_e2e_ms>22.346", 1.0, 22.346_217, true, "is 22.35 ms"),
            ("p99_e2e_ms>1234567", 1.0, 1_234_567.25, true, "is 1,234,567.2 ms"),
            ("failed>0", 0.0, 30.0, true, "is 30 requests"),
            // 7 % of 0.3, and a tenth of it three times, are no more than 7 %.
            ("p99_e2e_ms>+7%", 0.3, 0.3 * 1.07, false, "changed by +7.0 %"),
            ("p99_e2e_ms>=+7%", 0.3, 0.3 * 1.07, true, "changed by +7.0 %"),
            ("p99_e2e_ms>0.3", 0.1, 0.1 + 0.2, false, "is 0.3 ms"),
            ("direct_share<-0.05", 0.5, 0.449_99, true, "changed by −0.05001"),
        ];
        for (expr, a, b, crossed, words) in cases {
            assert_eq!(text(expr, a, b), (crossed, words.to_owned()), "{expr} from {a} to {b}");
        }
    }

    #[test]
    fn an_error_shows_the_place_the_grammar_and_examples() {
        let cases = [
            ("p99_e2e>+5%", "did you mean `p99_e2e_ms`?", "^^^^^^^"),
            ("p99_e2e_ms=5", "`=` is no operator", "          ^"),
            ("p99_e2e_ms", "an operator is missing", "          ^"),
            ("p99_e2e_ms>", "a limit is missing", "           ^"),
            ("p99_e2e_ms>+x%", "`x` is no number", "           ^^"),
            ("p99_e2e_ms>1e3", "`1e3` is no number", "           ^^^"),
            ("p99_e2e_ms>5%", "is no share: write +5%", "           ^^"),
            ("p99_e2e_ms>+5% now", "`now` is one too many", "               ^^^"),
            ("", "a figure is missing", "^"),
            ("p99_e2e_ms>+inf", "is no number", "           ^"),
        ];
        for (text, cause, mark) in cases {
            let error = text.parse::<Threshold>().unwrap_err().to_string();
            let lines: Vec<&str> = error.lines().collect();
            assert!(lines[0].contains(cause), "{error}");
            assert_eq!(lines[1], format!("  {text}").as_str());
            assert!(lines[2].starts_with(&format!("  {mark}")), "{error}");
            assert!(error.contains("examples: ") && error.contains("[+|-]NUMBER[%]"), "{error}");
        }
        assert!(
            "a\u{1b}[2J>1".parse::<Threshold>().unwrap_err().to_string().chars().all(|c| c == '\n' || !c.is_control())
        );
    }
}
