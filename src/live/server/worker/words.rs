//! Emulated text: one word a token.
//!
//! Token 17 reads ` t17`, and the word `t17` is token 17 again, so a chat that repeats an answer repeats its tokens. Any
//! other word is a token by its hash, the same in every process of one build.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::live::api::ChatMessage;
use crate::live::decimal::decimal;

/// Words that are no token's are spread over so many ids.
const HASHED_IDS: u64 = 1 << 20;

/// Appends the text of `ids`.
pub(super) fn append_text(text: &mut String, ids: &[u32]) {
    for id in ids {
        text.push_str(" t");
        append_number(text, *id);
    }
}

/// Appends `ids` as the inside of a JSON array that `list` already holds the beginning of.
pub(super) fn append_list(list: &mut String, ids: &[u32]) {
    for id in ids {
        if !list.is_empty() {
            list.push(',');
        }
        append_number(list, *id);
    }
}

fn append_number(text: &mut String, number: u32) {
    text.extend(decimal(number).digits().iter().map(|digit| char::from(*digit)));
}

/// Tokens of a text.
pub(super) fn tokens(text: &str) -> Vec<u32> {
    text.split_whitespace().map(token).collect()
}

/// Tokens of a chat: the words of its texts, one after another.
pub(super) fn chat_tokens(messages: &[ChatMessage]) -> Vec<u32> {
    messages.iter().flat_map(|message| texts(&message.content)).flat_map(str::split_whitespace).map(token).collect()
}

/// Texts of a message: the content itself, or its parts of type `text`.
fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(whole) => vec![whole],
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    }
}

fn token(word: &str) -> u32 {
    let named = word.strip_prefix('t').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    named.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| {
        let mut hasher = DefaultHasher::new();
        word.hash(&mut hasher);
        (hasher.finish() % HASHED_IDS) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_and_tokens_are_each_others_inverse() {
        let ids = [0, 7, 10, 4_294_967_295, 1000];
        let mut text = String::new();
        append_text(&mut text, &ids);
        assert_eq!(text, " t0 t7 t10 t4294967295 t1000");
        assert_eq!(tokens(&text), ids);
        let mut list = String::new();
        append_list(&mut list, &ids[..2]);
        append_list(&mut list, &ids[2..3]);
        assert_eq!(list, "0,7,10");
    }

    #[test]
    fn any_word_is_one_token() {
        assert_eq!(tokens(" fix  the\tbug\n").len(), 3);
        assert_eq!(tokens("the t the t99999999999"), tokens("the t the t99999999999"));
        assert_ne!(tokens("fix"), tokens("bug"));
    }

    #[test]
    fn a_chat_is_the_words_of_its_texts() {
        let message = |content: Value| ChatMessage { role: "user".into(), content };
        let chat = [
            message(json!("t1 t2")),
            message(json!([{"type": "text", "text": "t3"}, {"type": "image_url", "image_url": {}}])),
            message(Value::Null),
        ];
        assert_eq!(chat_tokens(&chat), [1, 2, 3]);
    }
}
