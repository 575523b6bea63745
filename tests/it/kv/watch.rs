//! `index watch` on real terminals (those of `script`, from util-linux), of any size, with the server killed meanwhile.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;

use crate::live::support::process::{Server, wait_for};
use crate::run::Scratch;

/// Where each frame begins.
const HOME: &str = "\u{1b}[H";

/// A terminal with `index watch` on it.
struct Watching {
    script: Child,
    drawn: Arc<Mutex<String>>,
}

impl Watching {
    /// `None`, with a plain line, where there is no `script`.
    fn start(url: &str, rows: usize, columns: usize) -> Option<Watching> {
        let program = env!("CARGO_BIN_EXE_pdreplay");
        let command = format!("stty rows {rows} cols {columns}; exec '{program}' index watch --url {url}");
        let mut script = Command::new("script");
        script.args(["-qfec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        script.env_remove("COLUMNS").env_remove("LINES").env("TERM", "xterm").env("SHELL", "/bin/sh");
        let Ok(mut script) = script.stderr(Stdio::null()).spawn() else {
            println!("skipped: `script` is missing; it is in util-linux (Debian: bsdutils)");
            return None;
        };
        let drawn = Arc::new(Mutex::new(String::new()));
        let (mut from, into) = (script.stdout.take().unwrap(), Arc::clone(&drawn));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Some(Watching { script, drawn })
    }

    /// Frames that are whole.
    fn frames(&self) -> Vec<String> {
        let drawn = self.drawn.lock().unwrap().clone();
        let mut frames: Vec<String> = drawn.split(HOME).skip(1).map(str::to_owned).collect();
        frames.pop();
        frames
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// The letters of a frame by row.
fn rows(frame: &str) -> Vec<String> {
    let (mut text, mut letters) = (String::new(), frame.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => {}
            letter => text.push(letter),
        }
    }
    text.split('\n').map(str::to_owned).collect()
}

#[test]
fn every_terminal_is_drawn_on_without_scrolling_and_a_server_that_goes_is_told_in_words() {
    let scratch = Scratch::new();
    let away =
        json!({"instance_name": "away", "endpoint": "tcp://127.0.0.1:1", "replay_endpoint": "tcp://127.0.0.1:2"});
    let config = scratch.write("kv.json", &json!({ "streams": [away] }).to_string());
    let mut server = Server::index(&config, &[]);
    // 0 and 0: a terminal that does not say.
    let sizes = [(24, 80), (1, 1), (2, 9), (3, 200), (0, 0)];
    let terminals: Vec<_> =
        sizes.iter().map_while(|&(rows, columns)| Watching::start(&server.url, rows, columns)).collect();
    if terminals.is_empty() {
        return;
    }
    for terminal in &terminals {
        wait_for("it is drawn", || (terminal.frames().len() >= 2).then_some(()));
    }
    let whole = terminals[0].frames().concat();
    assert!(whole.contains("streams: 1, in step: 0") && whole.contains("away"), "{whole}");
    assert!(whole.contains("connection refused"), "of the publisher: {whole}");
    server.kill();
    for (terminal, (row_count, columns)) in terminals.iter().zip(sizes) {
        let before = terminal.frames().len();
        wait_for("it goes on", || (terminal.frames().len() >= before + 2).then_some(()));
        let size = |told: usize, unknown| if told == 0 { unknown } else { told };
        let (row_count, columns) = (size(row_count, 24), size(columns, 80));
        for frame in terminal.frames() {
            let shown = rows(&frame);
            assert!(shown.len() <= row_count, "{shown:?} in {row_count} rows");
            assert!(shown.iter().all(|row| row.chars().count() <= columns), "{shown:?} in {columns} columns");
            assert!(!frame.contains("os error"), "{frame}");
        }
    }
    let last = terminals[0].frames().pop().unwrap();
    assert!(last.contains("connection refused") && last.contains("it is waited for"), "{last}");
    let last = rows(&terminals[1].frames().pop().unwrap());
    assert_eq!(last, ["h"], "the address begins so");
}
