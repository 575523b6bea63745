//! [`Event`]: one event of an answer, in either dialect, as far as anybody reads it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::Value;

use crate::live::api::Emulated;

#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(default)]
    pub text: Filled,
    #[serde(borrow)]
    pub meta_info: Option<Meta<'a>>,
    #[serde(borrow)]
    pub choices: Option<Vec<Choice<'a>>>,
    pub usage: Option<Usage>,
    pub error: Option<Value>,
}

#[derive(Deserialize)]
pub(super) struct Meta<'a> {
    #[serde(borrow)]
    pub finish_reason: Option<Reason<'a>>,
    #[serde(default, deserialize_with = "tokens")]
    pub prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "tokens")]
    pub completion_tokens: Option<u32>,
    #[serde(default, deserialize_with = "tokens")]
    pub cached_tokens: Option<u32>,
    pub num_retractions: Option<u16>,
    pub total_retractions: Option<u16>,
    pub emulated: Option<Box<Emulated>>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(default)]
    pub text: Filled,
    pub delta: Option<Delta>,
    #[serde(borrow)]
    pub finish_reason: Option<Reason<'a>>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
pub(super) struct Delta {
    pub content: Filled,
    pub reasoning_content: Filled,
    pub reasoning: Filled,
    pub tool_calls: Filled,
}

#[derive(Deserialize)]
pub(super) struct Usage {
    #[serde(default, deserialize_with = "tokens")]
    pub prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "tokens")]
    pub completion_tokens: Option<u32>,
    pub prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
pub(super) struct PromptDetails {
    #[serde(default, deserialize_with = "tokens")]
    pub cached_tokens: Option<u32>,
}

/// A finish reason: a word, or SGLang's object.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Reason<'a> {
    Word(#[serde(borrow)] Cow<'a, str>),
    Object {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
        message: Option<String>,
        status_code: Option<Value>,
        err_type: Option<String>,
    },
}

impl Delta {
    pub fn is_filled(&self) -> bool {
        self.content.0 || self.reasoning_content.0 || self.reasoning.0 || self.tool_calls.0
    }
}

/// A count of tokens, or none: a whole number, also where JSON has it with a point.
fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    struct Count;
    impl Visitor<'_> for Count {
        type Value = Option<u32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a whole number of tokens from 0 to {}", u32::MAX)
        }
        fn visit_unit<E>(self) -> Result<Option<u32>, E> {
            Ok(None)
        }
        fn visit_u64<E: Error>(self, count: u64) -> Result<Option<u32>, E> {
            u32::try_from(count).map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(count), &self))
        }
        fn visit_f64<E: Error>(self, count: f64) -> Result<Option<u32>, E> {
            let is_count = count.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&count);
            if is_count { Ok(Some(count as u32)) } else { Err(E::invalid_value(Unexpected::Float(count), &self)) }
        }
    }
    deserializer.deserialize_any(Count)
}

/// Whether a field holds anything, without keeping it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filled(pub bool);

impl<'de> Deserialize<'de> for Filled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Filled;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a list, an object or null")
            }
            fn visit_unit<E>(self) -> Result<Filled, E> {
                Ok(Filled(false))
            }
            fn visit_str<E>(self, text: &str) -> Result<Filled, E> {
                Ok(Filled(!text.is_empty()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Filled, A::Error> {
                let mut filled = false;
                while list.next_element::<IgnoredAny>()?.is_some() {
                    filled = true;
                }
                Ok(Filled(filled))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filled, A::Error> {
                let mut filled = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    filled = true;
                }
                Ok(Filled(filled))
            }
        }
        deserializer.deserialize_any(Look)
    }
}
