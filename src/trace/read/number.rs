//! Decimal numbers as written, so that a timestamp becomes nanoseconds without a detour through a double.

/// `mantissa × 10^exponent`, at least 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    mantissa: u64,
    exponent: i32,
}

/// Why a text is no [`Decimal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotDecimal {
    /// No JSON number.
    Syntax,
    /// Below 0.
    Negative,
}

impl Decimal {
    /// Reads a JSON number. Digits beyond the 19th are cut off.
    pub(super) fn parse(text: &str) -> Result<Decimal, NotDecimal> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (number, power) = match rest.split_once(['e', 'E']) {
            Some((number, power)) => (number, Some(exponent(power)?)),
            None => (rest, None),
        };
        let (whole, fraction) = match number.split_once('.') {
            Some((_, "")) => return Err(NotDecimal::Syntax),
            Some((whole, fraction)) => (whole, fraction),
            None => (number, ""),
        };
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let padded = whole.len() > 1 && whole.starts_with('0');
        if whole.is_empty() || padded || !digits(whole) || !digits(fraction) {
            return Err(NotDecimal::Syntax);
        }
        let mut value = Decimal { mantissa: 0, exponent: power.unwrap_or(0) };
        for digit in whole.bytes() {
            if !value.push(digit) {
                value.exponent = value.exponent.saturating_add(1);
            }
        }
        for digit in fraction.bytes() {
            if value.push(digit) {
                value.exponent = value.exponent.saturating_sub(1);
            }
        }
        if negative && value.mantissa > 0 { Err(NotDecimal::Negative) } else { Ok(value) }
    }

    /// The value times `10^power`, rounded to the nearest whole number, ties up. `None` beyond u64.
    pub(super) fn scaled(self, power: i32) -> Option<u64> {
        if self.mantissa == 0 {
            return Some(0);
        }
        let exponent = self.exponent.saturating_add(power);
        if exponent >= 0 {
            return self.mantissa.checked_mul(10u64.checked_pow(exponent.unsigned_abs())?);
        }
        let Some(divisor) = 10u128.checked_pow(exponent.unsigned_abs()) else { return Some(0) };
        u64::try_from((u128::from(self.mantissa) + divisor / 2) / divisor).ok()
    }

    /// The value when it is whole and fits u64; `300.0` is whole.
    pub(super) fn whole(self) -> Option<u64> {
        let value = self.scaled(0)?;
        (self.scaled_exactly(value)).then_some(value)
    }

    /// As a double, for comparisons only.
    pub(super) fn approximate(self) -> f64 {
        self.mantissa as f64 * 10f64.powi(self.exponent)
    }

    /// Takes a digit while there is room for any; the first that is cut off ends them all.
    fn push(&mut self, digit: u8) -> bool {
        let room = self.mantissa <= (u64::MAX - 9) / 10;
        if room {
            self.mantissa = self.mantissa * 10 + u64::from(digit - b'0');
        }
        room
    }

    fn scaled_exactly(self, value: u64) -> bool {
        if self.exponent >= 0 || self.mantissa == 0 {
            return true;
        }
        let divisor = 10u128.checked_pow(self.exponent.unsigned_abs());
        divisor.is_some_and(|divisor| u128::from(value) * divisor == u128::from(self.mantissa))
    }
}

fn exponent(text: &str) -> Result<i32, NotDecimal> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotDecimal::Syntax);
    }
    // Beyond i32 the value is 0 or infinite all the same.
    let size = digits.parse::<i32>().unwrap_or(i32::MAX / 2);
    Ok(if text.starts_with('-') { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_to_the_nanosecond() {
        let ns = |text: &str| Decimal::parse(text).unwrap().scaled(9);
        assert_eq!(ns("0.1"), Some(100_000_000));
        assert_eq!(ns("1785412800.123456789"), Some(1_785_412_800_123_456_789));
        assert_eq!(ns("1.0000000005"), Some(1_000_000_001));
        assert_eq!(ns("1e-12"), Some(0));
        assert_eq!(ns("2.5E+3"), Some(2_500_000_000_000));
        assert_eq!((ns("1e999"), ns("1e99999999999"), ns("-0.0")), (None, None, Some(0)));
        assert_eq!(ns("0.12345678901234567890123"), Some(123_456_789));
    }

    #[test]
    fn whole_numbers_may_carry_a_zero_fraction() {
        let whole = |text: &str| Decimal::parse(text).unwrap().whole();
        assert_eq!((whole("300.0"), whole("3e2"), whole("300.5")), (Some(300), Some(300), None));
        assert_eq!(
            (whole("1785412800123456789"), whole("99999999999999999999")),
            (Some(1_785_412_800_123_456_789), None)
        );
    }

    #[test]
    fn what_json_refuses_is_refused() {
        for text in ["", "NaN", "Infinity", "-", "01", "1.", ".5", "1e", "1e+", "+1", "0x10", "1_000"] {
            assert_eq!(Decimal::parse(text), Err(NotDecimal::Syntax), "{text}");
        }
        assert_eq!(Decimal::parse("-1.5"), Err(NotDecimal::Negative));
    }
}
