//! JSON text with the keys of each object sorted and nothing between the tokens: the same for every layout of the same
//! values.
//!
//! Made from text and into text: a tree of the values of a run with many sessions would be the most memory of that run.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Of one JSON value. Of keys that come twice the last counts.
///
/// # Errors
/// When `text` is not JSON, or has more behind the value.
pub(super) fn canonical(text: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut tokens = serde_json::Deserializer::from_slice(text);
    Canonical(&mut out).deserialize(&mut tokens)?;
    tokens.end()?;
    Ok(out)
}

/// Writes the value that it visits.
struct Canonical<'o>(&'o mut Vec<u8>);

impl Canonical<'_> {
    fn write<E: Error>(self, scalar: &(impl Serialize + ?Sized)) -> Result<(), E> {
        serde_json::to_writer(self.0, scalar).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Canonical<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Canonical<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let mut is_first = true;
        loop {
            let before = self.0.len();
            if !is_first {
                self.0.push(b',');
            }
            is_first = false;
            if items.next_element_seed(Canonical(self.0))?.is_none() {
                self.0.truncate(before);
                self.0.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut sorted: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        while let Some(key) = entries.next_key()? {
            let mut value = Vec::new();
            entries.next_value_seed(Canonical(&mut value))?;
            sorted.insert(key, value);
        }
        self.0.push(b'{');
        for (nth, (key, value)) in sorted.into_iter().enumerate() {
            if nth > 0 {
                self.0.push(b',');
            }
            serde_json::to_writer(&mut *self.0, &key).map_err(A::Error::custom)?;
            self.0.push(b':');
            self.0.extend(value);
        }
        self.0.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn values() -> impl Strategy<Value = Value> {
        let numbers = prop_oneof![
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
        ];
        let scalars =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), numbers, ".*".prop_map(Value::from)];
        scalars.prop_recursive(4, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(".{0,3}", inner, 0..6)
                    .prop_map(|entries| Value::from(entries.into_iter().collect::<serde_json::Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_layout_gives_what_a_sorted_tree_of_the_values_gives(value in values()) {
            let sorted = value.to_string().into_bytes();
            prop_assert_eq!(&canonical(&sorted).unwrap(), &sorted);
            prop_assert_eq!(&canonical(&serde_json::to_vec_pretty(&value).unwrap()).unwrap(), &sorted);
        }
    }

    #[test]
    fn keys_are_sorted_at_each_depth() {
        let text = br#" { "b" : [ ] , "a":[{"z":1,"y":{"d":-0.0, "c":1e-7}}, null ],"b":{} } "#;
        let sorted = br#"{"a":[{"y":{"c":1e-7,"d":-0.0},"z":1},null],"b":{}}"#;
        assert_eq!(canonical(text).unwrap(), sorted);
    }

    #[test]
    fn what_is_not_json_is_an_error() {
        for text in ["", "{", "[1,]", "{\"a\":1} 2", "nul"] {
            assert!(canonical(text.as_bytes()).is_err(), "{text}");
        }
    }
}
