//! The kind "command": a WASI program that reads its input from standard input and writes its
//! output to standard output.
//!
//! Input:  {"tool":"longest","arguments":{"text":"a few words"}}
//! Output: {"result":{"word":"words","letters":5}}

use std::io::Read;

/// The text of the argument, its JSON escapes taken away.
fn find_text(input: &str) -> Option<String> {
    let start = input.find("\"text\":\"")? + "\"text\":\"".len();
    let mut text = String::new();
    let mut letters = input[start..].chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Some(text),
            '\\' => text.push(unescape(&mut letters)?),
            other => text.push(other),
        }
    }
    None
}

/// What an escape stands for; a half of a surrogate pair alone is shown as a question mark.
fn unescape(letters: &mut std::str::Chars) -> Option<char> {
    match letters.next()? {
        'n' | 'r' | 't' | 'f' | 'b' => Some('\n'), // blanks, as far as words are concerned
        'u' => {
            let digits: String = letters.take(4).collect();
            Some(char::from_u32(u32::from_str_radix(&digits, 16).ok()?).unwrap_or('?'))
        }
        itself => Some(itself),
    }
}

/// The word as JSON; of what must be escaped, only these two can be in a word.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

fn main() {
    let mut input = String::new();
    let is_read = std::io::stdin().read_to_string(&mut input).is_ok();
    let text = if is_read { find_text(&input) } else { None };
    match text {
        None => println!("{{\"error\":\"text is missing\"}}"),
        Some(text) => {
            let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
            let word = words.max_by_key(|word| word.chars().count()).unwrap_or("");
            let letters = word.chars().count();
            println!("{{\"result\":{{\"word\":{},\"letters\":{}}}}}", quoted(word), letters);
        }
    }
}
