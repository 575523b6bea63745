//! The body of a query, and everything that is wrong with one: `{"token_ids": [0, 1, …]}`.
//!
//! Ids are whole numbers from 0 to 2147483647: the engine's are of 32 bits with a sign. Other fields are ignored.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use crate::live::api::MOST_TOKEN_ID;

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
    serde_json::from_slice(body).map_err(|error| error.to_string())
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
}
