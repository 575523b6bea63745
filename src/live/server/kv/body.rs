//! The body of a query, and everything that is wrong with one: `{"token_ids": [0, 1, …]}`.
//!
//! Ids are whole numbers from 0 to 2147483647: the engine's are of 32 bits with a sign. Other fields are ignored. What is
//! wrong is told with its place, and without repeating a long value.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::base::{JsonFault, from_json, shortened};
use crate::live::api::MOST_TOKEN_ID;

/// Most characters of what is wrong with a body.
const MOST_SHOWN: usize = 200;

/// The body.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Query {
    /// Prompt.
    #[serde(deserialize_with = "token_ids")]
    pub token_ids: Vec<u32>,
}

/// Token ids of a body, or what is wrong with it.
pub fn parse_kv_query(body: &[u8]) -> Result<Vec<u32>, String> {
    parse(body).map(|query| query.token_ids)
}

/// Reads a body, or says what is wrong with it.
pub(super) fn parse(body: &[u8]) -> Result<Query, String> {
    if body.is_empty() {
        return Err("the body is empty; send {\"token_ids\": [1, 2, 3]}".into());
    }
    // A struct would be read from an array, too.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err("the body is no JSON object; send {\"token_ids\": [1, 2, 3]}".into());
    }
    from_json(body).map_err(|fault: JsonFault| {
        // Items are named by their list already.
        let told = if fault.words.starts_with(&fault.path) { fault.without_path() } else { fault.to_string() };
        shortened(&told, MOST_SHOWN)
    })
}

fn token_ids<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    from.deserialize_any(Ids)
}

struct Ids;

impl<'de> Visitor<'de> for Ids {
    type Value = Vec<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token_ids as an array of token ids")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<u32>, A::Error> {
        let mut ids = Vec::new();
        while let Some(TokenId(id)) = items.next_element()? {
            let Some(id) = id else {
                let at = ids.len();
                return Err(A::Error::custom(format!(
                    "token_ids[{at}] is no token id; write whole numbers from 0 to {MOST_TOKEN_ID}"
                )));
            };
            ids.push(id);
        }
        Ok(ids)
    }
}

/// `None`: something else, which the list names by its place.
struct TokenId(Option<u32>);

impl<'de> Deserialize<'de> for TokenId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TokenId, D::Error> {
        from.deserialize_any(AnyId)
    }
}

struct AnyId;

impl<'de> Visitor<'de> for AnyId {
    type Value = TokenId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a token id, a whole number from 0 to {MOST_TOKEN_ID}")
    }

    fn visit_u64<E>(self, id: u64) -> Result<TokenId, E> {
        Ok(TokenId(u32::try_from(id).ok().filter(|id| *id <= MOST_TOKEN_ID)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }

    fn visit_f64<E>(self, _: f64) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }

    fn visit_bool<E>(self, _: bool) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }

    fn visit_str<E>(self, _: &str) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }

    fn visit_unit<E>(self) -> Result<TokenId, E> {
        Ok(TokenId(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<TokenId, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(TokenId(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<TokenId, A::Error> {
        while items.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(TokenId(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_its_place_and_shortly() {
        let long = "A".repeat(4 << 20);
        for (body, place) in [
            ("{\"token_ids\":[[1]]}".to_owned(), "token_ids[0] is no token id"),
            ("{\"token_ids\":[1,{\"a\":[2]}]}".to_owned(), "token_ids[1] is no token id"),
            ("{\"token_ids\":[1,null]}".to_owned(), "token_ids[1] is no token id"),
            ("{\"token_ids\":[1,2,99999999999999999999999]}".to_owned(), "token_ids[2] is no token id"),
            ("{\"token_ids\":[1,1e999]}".to_owned(), "token_ids[1]: number out of range"),
            (format!("{{\"token_ids\":[\"{long}\"]}}"), "token_ids[0] is no token id"),
            (format!("{{\"token_ids\":\"{long}\"}}"), "token_ids: invalid type: string"),
            (format!("{{\"token_ids\":[1], \"token_ids\":\"{long}\"}}"), "duplicate field"),
            ("{\"token_ids\":[1,2".to_owned(), "EOF while parsing a list"),
        ] {
            let why = parse(body.as_bytes()).unwrap_err();
            assert!(why.contains(place), "{why}");
            assert!(why.len() < 300, "{} bytes for {place}", why.len());
        }
    }
}
