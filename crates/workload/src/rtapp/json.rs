//! JSON as json-c reads it for rt-app: what is taken, what is refused and what a repeated key means.
//!
//! A file is read by `json_tokener_parse_ex()` without flags (json-c 0.16 to 0.19). No other reader takes the same files:
//!
//! - comments, commas before a closing bracket, single quotes and `True`, `NULL`, `nan` in any case are taken;
//! - a comment that the text ends in is refused, even one of `//`, and `**/` ends a comment only where an odd number of
//!   stars precedes the slash;
//! - a key that is there again replaces the value and keeps the place;
//! - an integer beyond 64 bits is the largest one; `01`, `1.` and `1e+` are numbers;
//! - of half a surrogate pair, U+FFFD is left; a key ends at U+0000;
//! - whatever comes after the value has no effect.
//!
//! Deviation: a key without a value (`"suspend",`) counts as null, because rt-app's own examples have it.

/// A value and the line where it begins, from 1.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Node {
    pub line: usize,
    pub value: Value,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Saturated to 64 bits.
    Int(i64),
    /// A number that is no integer, as it is written.
    Other(String),
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

/// A key and the last value that it has in its object, at the place of the first.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub key: String,
    /// Line of the key whose value counts.
    pub line: usize,
    pub node: Node,
    /// How often the key is there.
    pub times: usize,
    /// Whether it has a value at all.
    pub has_value: bool,
}

impl Value {
    /// Returns the kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Int(_) => "an integer",
            Value::Other(_) => "a number that is not an integer",
            Value::String(_) => "a string",
            Value::Array(_) => "a list",
            Value::Object(_) => "an object",
        }
    }
}

/// Where and why a text is not JSON.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct SyntaxError {
    pub line: usize,
    pub message: String,
}

type Result<T> = std::result::Result<T, SyntaxError>;

/// Values in one another, the outermost included (JSON_TOKENER_DEFAULT_DEPTH).
const DEPTH_MAX: usize = 32;

/// A value and the notes about its text.
#[derive(PartialEq, Debug)]
pub(super) struct Parsed {
    pub root: Node,
    /// Line of what comes after the value, if anything does; json-c looks at none of it.
    pub rest: Option<usize>,
}

/// Reads a text as json-c does for rt-app.
pub(super) fn parse(text: &str) -> Result<Parsed> {
    let mut parser = Parser {
        text,
        at: 0,
        line: 1,
    };
    parser.blank()?;
    let root = parser.value(0)?;
    parser.blank()?;
    let rest = parser.peek().map(|_| parser.line);
    Ok(Parsed { root, rest })
}

struct Parser<'a> {
    text: &'a str,
    /// Bytes that were read.
    at: usize,
    /// The line of the next byte.
    line: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        self.line += usize::from(byte == b'\n');
        Some(byte)
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(SyntaxError {
            line: self.line,
            message: message.into(),
        })
    }

    /// Returns the text at this place, for messages.
    fn found(&self) -> String {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return "the file ends".to_owned();
        };
        if matches!(first, '"' | '\'') {
            let inner = &rest[1..];
            let end = inner.find([first, '\n']).unwrap_or(inner.len());
            return format!("there is the string {first}{}{first}", &inner[..end]);
        }
        let is_word = |c: char| c.is_alphanumeric() || "_-+.".contains(c);
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let shown = &rest[..word.max(first.len_utf8())];
        format!("there is `{}`", shown.escape_debug())
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        self.error(format!("expected {wanted}, but {}", self.found()))
    }

    /// Passes white space and comments.
    fn blank(&mut self) -> Result<()> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => {
                    self.next();
                }
                Some(b'/') => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Result<()> {
        let (start, begun) = (self.at, self.line);
        self.next();
        match self.next() {
            Some(b'/') => loop {
                match self.next() {
                    Some(b'\n') => return Ok(()),
                    Some(1..) => {}
                    Some(0) | None => {
                        return self.error(
                            "the file ends within a `//` comment, which json-c refuses: end the line",
                        );
                    }
                }
            },
            Some(b'*') => loop {
                match self.next() {
                    // The byte after a star is either the slash or passed over, be it a star.
                    Some(b'*') if self.next() == Some(b'/') => return Ok(()),
                    Some(1..) => {}
                    Some(0) | None => return Err(self.open_comment(start, begun)),
                }
            },
            _ => self.error("a `/` begins neither `//` nor `/*`"),
        }
    }

    /// Why the comment that begins at `start` has no end.
    fn open_comment(&self, start: usize, line: usize) -> SyntaxError {
        let message = if self.text[start + 2..].contains("**/") {
            "a `/*` comment does not end: json-c passes over `**/` where it has read an even number of stars; write one star before the slash"
        } else {
            "a `/*` comment does not end"
        };
        let message = message.to_owned();
        SyntaxError { line, message }
    }

    /// Returns the value that begins here.
    fn value(&mut self, depth: usize) -> Result<Node> {
        let line = self.line;
        if depth >= DEPTH_MAX {
            return self.error(format!("more than {DEPTH_MAX} values in one another"));
        }
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"' | b'\'') => Value::String(self.string()?),
            Some(b'0'..=b'9' | b'-') => self.number()?,
            Some(_) => self.word()?,
            None => return self.unexpected("a value"),
        };
        Ok(Node { line, value })
    }

    /// Returns a constant, in capital or small letters.
    fn word(&mut self) -> Result<Value> {
        const WORDS: [(&str, Value); 5] = [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
            ("nan", Value::Other(String::new())),
            ("infinity", Value::Other(String::new())),
        ];
        let rest = &self.text.as_bytes()[self.at..];
        let known = WORDS.into_iter().find(|(word, _)| {
            rest.get(..word.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes()))
        });
        let Some((word, value)) = known else {
            return self.unexpected("a value");
        };
        self.at += word.len();
        Ok(match value {
            Value::Other(_) => Value::Other(word.to_owned()),
            value => value,
        })
    }

    /// `json_tokener_state_number`.
    fn number(&mut self) -> Result<Value> {
        let start = self.at;
        let (mut is_double, mut is_exponent, mut sign_ok) = (false, false, false);
        while let Some(byte) = self.peek() {
            match byte {
                b'0'..=b'9' => sign_ok = false,
                b'-' if sign_ok || self.at == start => sign_ok = false,
                b'+' if sign_ok => sign_ok = false,
                b'e' | b'E' if !is_exponent => {
                    (is_exponent, is_double, sign_ok) = (true, true, true)
                }
                b'.' if !is_double => (is_double, sign_ok) = (true, true),
                _ => break,
            }
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if text == "-" && matches!(self.peek(), Some(b'i' | b'I')) {
            return self.word();
        }
        let wrong = |parser: &mut Self| {
            parser.at = start;
            parser.unexpected("a number")
        };
        match self.peek() {
            None | Some(b',' | b']' | b'}' | b'/' | b' ' | b'\t' | b'\n' | b'\r') => {}
            Some(_) => return wrong(self),
        }
        if is_double {
            let trimmed = text.trim_end_matches(['e', 'E', '-', '+']);
            return match trimmed.parse::<f64>() {
                Ok(_) => Ok(Value::Other(text.to_owned())),
                Err(_) => wrong(self),
            };
        }
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() {
            return wrong(self);
        }
        let limit = if digits.len() < text.len() {
            i64::MIN
        } else {
            i64::MAX
        };
        Ok(Value::Int(text.parse().unwrap_or(limit)))
    }

    /// Returns a string or key in quotes of either kind.
    fn string(&mut self) -> Result<String> {
        let begun = self.line;
        let quote = self.next();
        let mut read = String::new();
        loop {
            let start = self.at;
            let end = loop {
                let at = self.at;
                match self.next() {
                    Some(b'\\') => break at,
                    byte if byte == quote => {
                        read.push_str(&self.text[start..at]);
                        return Ok(read);
                    }
                    Some(0) | None => {
                        return Err(SyntaxError {
                            line: begun,
                            message: "a string does not end".to_owned(),
                        });
                    }
                    Some(_) => {}
                }
            };
            read.push_str(&self.text[start..end]);
            self.escape(&mut read)?;
        }
    }

    /// Reads the character after a backslash.
    fn escape(&mut self, read: &mut String) -> Result<()> {
        let escaped = match self.next() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(read),
            _ => return self.error("there is no such escape in JSON"),
        };
        read.push(escaped);
        Ok(())
    }

    /// `\uNNNN`, or two of them for one character.
    fn unicode(&mut self, read: &mut String) -> Result<()> {
        let mut unit = self.hex()?;
        // A half that no other follows is replaced, and what follows instead counts for itself.
        while (0xd800..0xdc00).contains(&unit) {
            let rest = &self.text.as_bytes()[self.at..];
            if !rest.starts_with(b"\\u") {
                break;
            }
            self.at += 2;
            let low = self.hex()?;
            if (0xdc00..0xe000).contains(&low) {
                unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            } else {
                read.push(char::REPLACEMENT_CHARACTER);
                unit = low;
            }
        }
        read.push(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(())
    }

    fn hex(&mut self) -> Result<u32> {
        let digits = self.text.get(self.at..self.at + 4);
        let is_hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(digits) = digits.filter(is_hex) else {
            return self.error("`\\u` needs four hexadecimal digits");
        };
        self.at += 4;
        Ok(u32::from_str_radix(digits, 16).expect("four digits"))
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        self.next();
        self.blank()?;
        while self.peek() != Some(b']') {
            items.push(self.value(depth + 1)?);
            self.separator(b']', "`,` or `]`")?;
        }
        self.next();
        Ok(Value::Array(items))
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let mut members = Vec::new();
        self.next();
        self.blank()?;
        while self.peek() != Some(b'}') {
            if !matches!(self.peek(), Some(b'"' | b'\'')) {
                return self.unexpected("a key in quotes or `}`");
            }
            let line = self.line;
            let mut key = self.string()?;
            if let Some(end) = key.find('\0') {
                key.truncate(end);
            }
            self.blank()?;
            let has_value = self.peek() == Some(b':');
            let node = if has_value {
                self.next();
                self.blank()?;
                self.value(depth + 1)?
            } else {
                let value = Value::Null;
                Node { line, value }
            };
            members.push(Member {
                key,
                line,
                node,
                times: 1,
                has_value,
            });
            let wanted = if has_value { "`,` or `}`" } else { "`:`" };
            self.separator(b'}', wanted)?;
        }
        self.next();
        Ok(Value::Object(united(members)))
    }

    /// Passes a comma, if there is one; otherwise the object or list must end.
    fn separator(&mut self, close: u8, wanted: &str) -> Result<()> {
        self.blank()?;
        match self.peek() {
            Some(b',') => {
                self.next();
                self.blank()
            }
            Some(byte) if byte == close => Ok(()),
            _ => self.unexpected(wanted),
        }
    }
}

/// Returns each key once: at the place of the first with the value of the last (`json_object_object_add()`).
fn united(mut members: Vec<Member>) -> Vec<Member> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|&a, &b| members[a].key.cmp(&members[b].key));
    let runs = order.chunk_by(|&a, &b| members[a].key == members[b].key);
    let repeated: Vec<Vec<usize>> = runs
        .filter(|run| run.len() > 1)
        .map(<[_]>::to_vec)
        .collect();
    for run in &repeated {
        members.swap(run[0], run[run.len() - 1]);
        members[run[0]].times = run.len();
        for &other in &run[1..] {
            members[other].times = 0;
        }
    }
    if !repeated.is_empty() {
        members.retain(|member| member.times > 0);
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(node: &Node) -> String {
        match &node.value {
            Value::Null => "null".to_owned(),
            Value::Bool(flag) => flag.to_string(),
            Value::Int(n) => n.to_string(),
            Value::Other(text) => format!("<{text}>"),
            Value::String(text) => format!("{text:?}"),
            Value::Array(items) => format!(
                "[{}]",
                items.iter().map(shown).collect::<Vec<_>>().join(",")
            ),
            Value::Object(members) => {
                let shown = |member: &Member| format!("{}:{}", member.key, shown(&member.node));
                format!(
                    "{{{}}}",
                    members.iter().map(shown).collect::<Vec<_>>().join(",")
                )
            }
        }
    }

    /// The value that `json_object_from_file()` of json-c 0.16 makes of each text, `None` where it fails.
    #[test]
    fn texts_are_read_as_json_c_reads_them() {
        for (text, expected) in [
            (r#"{"a":1,"b":2,"a":3}"#, Some("{a:3,b:2}")),
            (
                r#"{"b":1,"a":1,"b":2,"c":3,"a":4,"b":5}"#,
                Some("{b:5,a:4,c:3}"),
            ),
            (r#"{"a":{"x":1},"a":{"y":2}}"#, Some("{a:{y:2}}")),
            (r#"{'a':'b"c', "d":'e'}"#, Some(r#"{a:"b\"c",d:"e"}"#)),
            (
                r#"{"a":[true,FALSE,Null,nAn,infinity,],}"#,
                Some("{a:[true,false,null,<nan>,<infinity>]}"),
            ),
            (
                r#"{"a":01,"b":1.,"c":1e+,"d":-Infinity,"e":-0}"#,
                Some("{a:1,b:<1.>,c:<1e+>,d:<infinity>,e:0}"),
            ),
            (
                r#"{"a":99999999999999999999,"b":-99999999999999999999}"#,
                Some("{a:9223372036854775807,b:-9223372036854775808}"),
            ),
            (r#"{"a":1.-5}"#, None),
            (r#"{"a":+1}"#, None),
            (r#"{"a":.5}"#, None),
            (r#"{"a":0x10}"#, None),
            (r#"{"a":-}"#, None),
            (r#"{"a":-e}"#, None),
            (r#"{"a":1-2}"#, None),
            (r#"{"a":truey}"#, None),
            (r#"{a:1}"#, None),
            ("{\"a\":\"x\ny\"}", Some(r#"{a:"x\ny"}"#)),
            (r#"{"\u0041\/\u00e9":1}"#, Some("{A/é:1}")),
            (r#"{"a":"\ud83d\ude00"}"#, Some("{a:\"😀\"}")),
            (
                r#"{"a":"\ud800x\udc00\ud800\u0041\ud800\n"}"#,
                Some("{a:\"\u{fffd}x\u{fffd}\u{fffd}A\u{fffd}\\n\"}"),
            ),
            (r#"{"a\u0000b":1,"a":2}"#, Some("{a:2}")),
            (r#"{"a":"\x"}"#, None),
            (r#"{"a":"\u12g4"}"#, None),
            (r#"{"a":"\u12é"}"#, None),
            ("{/****/}", Some("{}")),
            ("{/* *\n*/}", Some("{}")),
            ("{/***/}", None),
            ("{/*/}", None),
            ("{/ }", None),
            ("{} // end\n", Some("{}")),
            ("{} // end", None),
            ("{} /* end", None),
            ("{} /x", None),
            ("{}x", Some("{}")),
            ("{}\u{b}", Some("{}")),
            ("{\u{c}}", None),
            ("\u{feff}{}", None),
            ("{\"a\":\"\u{0}\"}", None),
            ("{,}", None),
            ("[,]", None),
            (r#"{"a":1,,}"#, None),
            (r#"{"a":1 "b":2}"#, None),
        ] {
            let read = parse(text).ok().map(|parsed| shown(&parsed.root));
            assert_eq!(read.as_deref(), expected, "{text:?}");
        }
        let nested = |depth: usize| "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        assert!(parse(&nested(31)).is_ok());
        assert!(parse(&nested(32)).is_err());
    }

    #[test]
    fn members_know_their_lines_and_how_often_they_are_there() {
        let text = "{ /* c\n */ \"run\": 1, // d\n \"sleep\": -2,\n\"run\": 3, \"suspend\",\n\"x\": [\ntrue], }";
        let Value::Object(members) = parse(text).unwrap().root.value else {
            panic!("no object");
        };
        let seen: Vec<_> = members
            .iter()
            .map(|m| (m.key.as_str(), m.line, m.times, m.has_value))
            .collect();
        let expected = [
            ("run", 4, 2, true),
            ("sleep", 3, 1, true),
            ("suspend", 4, 1, false),
            ("x", 5, 1, true),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_comes_after_the_value_is_not_looked_at() {
        for (text, rest) in [
            ("{}", None),
            ("{}\n // end\n", None),
            ("{}\n}", Some(2)),
            ("{}\n\n{\"b\": 2}", Some(3)),
            ("{} ; /*", Some(1)),
            ("{}\n'x", Some(2)),
        ] {
            let parsed = parse(text).unwrap();
            assert_eq!(parsed.root.value, Value::Object(Vec::new()), "{text}");
            assert_eq!(parsed.rest, rest, "{text}");
        }
    }

    #[test]
    fn what_is_no_json_is_told_with_its_line() {
        let check = |text: &str, line: usize, part: &str| {
            let error = parse(text).unwrap_err();
            assert!(
                error.line == line && error.message.contains(part),
                "{text:?} gave {error:?}"
            );
        };
        check("", 1, "the file ends");
        check("{\n\"a\": 1\n\"b\": 2}", 3, "the string \"b\"");
        check("{\"a\":\n}", 2, "expected a value");
        check("{a: 1}", 1, "`a`");
        check("{\"a\":\nYes, \"b\": 1}", 2, "there is `Yes`");
        check("{\"a\": 1,\n;}", 2, "there is `;`");
        check("{\"a\": 1", 1, "the file ends");
        check("[1\n,\n,]", 3, "expected a value");
        check("{'a: 1}", 1, "a string does not end");
        check("\n/* open", 2, "a `/*` comment does not end");
        check("/* open\n**/", 1, "even number of stars");
        check("{}\n// x", 2, "end the line");
        check("\n\"open", 2, "a string does not end");
        check(&"[".repeat(1_000), 1, "in one another");
    }
}
