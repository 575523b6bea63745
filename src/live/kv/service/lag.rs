//! [`Lag`]: how long batches take from their publisher to here, by the publisher's time stamps; and the stamps that cannot say it.

/// A time stamp further off than this is no time of day: no network holds a batch back for a day, and no clock that was ever
/// set is wrong by one. Seconds.
const MOST_OFF_S: f64 = 86_400.0;

/// Stamps from here on are written with an exponent: 1e300 has 301 digits.
const PLAIN_BELOW: f64 = 1e16;

/// Units that are mistaken for seconds: how many of them are one, and their name.
const UNITS: [(f64, &str); 3] = [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")];

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lag {
    /// From the time stamp of the last live batch to its arrival, seconds; below 0 when clocks differ. `None` before the first
    /// batch, and when its stamp is no time of day near ours.
    pub last_s: Option<f64>,
    /// Live batches with such a stamp.
    pub odd: u64,
}

impl Lag {
    /// A live batch arrived at `now_s`; both are Unix seconds. What is to be said of its stamp: the first time that it is
    /// odd.
    pub fn arrived(&mut self, stamp_s: f64, now_s: f64) -> Option<String> {
        let is_odd = !is_near(stamp_s, now_s);
        self.last_s = (!is_odd).then_some(now_s - stamp_s);
        self.odd += u64::from(is_odd);
        (is_odd && self.odd == 1).then(|| {
            let stamp = if stamp_s.abs() < PLAIN_BELOW { stamp_s.to_string() } else { format!("{stamp_s:e}") };
            format!(
                "the time stamp {stamp} of a batch {}: no lag is shown for such; hits count all the same; have the \
                 publisher send Unix time in seconds",
                off(stamp_s, now_s)
            )
        })
    }
}

fn is_near(stamp_s: f64, now_s: f64) -> bool {
    // Not so of what is no number.
    (now_s - stamp_s).abs() <= MOST_OFF_S
}

/// What is wrong with a stamp.
fn off(stamp_s: f64, now_s: f64) -> String {
    if let Some((_, unit)) = UNITS.iter().find(|(per_s, _)| is_near(stamp_s / per_s, now_s)) {
        return format!("is in {unit}, not in seconds");
    }
    if !stamp_s.is_finite() || stamp_s < 0.0 {
        return "is no time".to_owned();
    }
    let way = if stamp_s < now_s { "before" } else { "after" };
    format!("is more than a day {way} the clock of this machine")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1_767_225_600.0;

    #[test]
    fn a_stamp_near_our_clock_gives_a_lag_and_any_other_gives_none() {
        let mut lag = Lag::default();
        for (stamp, wanted) in [(NOW - 0.25, 0.25), (NOW + 5.0, -5.0), (NOW - 86_400.0, 86_400.0), (NOW, 0.0)] {
            assert_eq!(lag.arrived(stamp, NOW), None);
            assert_eq!(lag, Lag { last_s: Some(wanted), odd: 0 });
        }
        let odd = [
            (NOW * 1e3, "1767225600000 of a batch is in milliseconds, not in seconds"),
            (NOW * 1e6, "is in microseconds"),
            (NOW * 1e9, "1.7672256e18 of a batch is in nanoseconds"),
            (-NOW, "is no time"),
            (f64::NAN, "NaN of a batch is no time"),
            (f64::INFINITY, "is no time"),
            (f64::NEG_INFINITY, "is no time"),
            (0.0, "is more than a day before"),
            (86_400.5, "is more than a day before"),
            (NOW - 86_401.0, "is more than a day before"),
            (NOW + 86_401.0, "is more than a day after"),
            (1e300, "1e300 of a batch is more than a day after"),
            (f64::MAX, "is more than a day after"),
        ];
        for (stamp, why) in odd {
            let mut lag = Lag { last_s: Some(0.5), odd: 0 };
            let said = lag.arrived(stamp, NOW).unwrap();
            assert!(said.contains(why) && said.len() < 200, "{said}");
            assert_eq!(lag, Lag { last_s: None, odd: 1 }, "{stamp}");
            assert_eq!(lag.arrived(stamp, NOW), None, "told once");
            lag.arrived(NOW, NOW);
            assert_eq!(lag, Lag { last_s: Some(0.0), odd: 2 });
        }
    }
}
