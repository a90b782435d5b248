//! JSON as rt-app files are written and json-c reads them: comments, trailing commas, keys that repeat, keys without a
//! value, single quotes, `True`, and whatever comes after the value.
//!
//! An object is an ordered multimap, because in these files the order of keys is the order of events and a
//! key may occur again. Every value knows its line. Tokens come from `jsonc-parser`.

use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};

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
    Int(i64),
    /// A number that is no integer of 64 bits, as it is written.
    Other(String),
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

/// A key and its value; without one (`"suspend",`) the value is null.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    pub key: String,
    pub line: usize,
    pub node: Node,
}

impl Value {
    /// What it is, for messages.
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

/// Objects and lists in one another; deeper files are refused instead of exhausting the stack.
const DEPTH_MAX: usize = 64;

/// A value and what is told of its text.
#[derive(PartialEq, Debug)]
pub(super) struct Parsed {
    pub root: Node,
    /// Line of what comes after the value, if anything does; json-c looks at none of it.
    pub rest: Option<usize>,
}

/// Reads a text as json-c does for rt-app.
pub(super) fn parse(text: &str) -> Result<Parsed, SyntaxError> {
    let options = ScannerOptions {
        allow_single_quoted_strings: true,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let mut parser = Parser {
        scanner: Scanner::new(text, &options),
        line: 1,
        counted: 0,
        token: None,
    };
    parser.advance()?;
    let root = parser.value(0)?;
    let ended = parser.advance().is_ok() && parser.token.is_none();
    let rest = (!ended).then_some(parser.line);
    Ok(Parsed { root, rest })
}

/// What a word means that json-c takes in any case.
fn constant(word: &str) -> Option<Token<'static>> {
    let known = [
        ("true", Token::Boolean(true)),
        ("false", Token::Boolean(false)),
        ("null", Token::Null),
    ];
    let mut known = known.into_iter();
    let found = known.find(|(name, _)| word.eq_ignore_ascii_case(name));
    found.map(|(_, token)| token)
}

struct Parser<'a> {
    scanner: Scanner<'a>,
    /// Line of the current token.
    line: usize,
    /// Bytes whose newlines are counted in `line`.
    counted: usize,
    /// The current token, comments left out; `None` at the end.
    token: Option<Token<'a>>,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) -> Result<(), SyntaxError> {
        loop {
            let token = self.scanner.scan();
            let start = self.scanner.token_start();
            let newlines = |text: &str| text.bytes().filter(|&b| b == b'\n').count();
            self.line += newlines(&self.scanner.file_text()[self.counted..start]);
            self.counted = start;
            self.token = match token {
                Ok(Some(Token::Word(word))) => Some(constant(word).unwrap_or(Token::Word(word))),
                Ok(token) => token,
                Err(error) => Some(self.refused(&error)?),
            };
            if !matches!(
                self.token,
                Some(Token::CommentLine(_) | Token::CommentBlock(_))
            ) {
                return Ok(());
            }
        }
    }

    /// What the scanner does not take: it ends a word at a space or a colon only, not at a comma or a brace.
    fn refused(&self, error: &ParseError) -> Result<Token<'a>, SyntaxError> {
        let text = &self.scanner.file_text()[self.scanner.token_start()..];
        let length = self.scanner.token_end() - self.scanner.token_start();
        if let Some(token) = constant(&text[..length]) {
            return Ok(token);
        }
        let message = match error.kind() {
            ParseErrorKind::UnexpectedToken => {
                let first = text.chars().next().map_or(0, char::len_utf8);
                format!("there is `{}`", &text[..length.max(first)])
            }
            kind => kind.to_string(),
        };
        let line = self.line;
        Err(SyntaxError { line, message })
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match &self.token {
            None => "the file ends".to_owned(),
            Some(Token::String(text)) => format!("there is the string \"{text}\""),
            Some(token) => format!("there is `{}`", token.as_str()),
        };
        SyntaxError {
            line: self.line,
            message: format!("expected {wanted}, but {found}"),
        }
    }

    /// The value that begins with the current token; its last one is the current one then.
    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let line = self.line;
        if depth > DEPTH_MAX {
            return Err(SyntaxError {
                line,
                message: format!("more than {DEPTH_MAX} objects and lists in one another"),
            });
        }
        let value = match &self.token {
            Some(Token::OpenBrace) => return self.object(depth),
            Some(Token::OpenBracket) => return self.array(depth),
            Some(Token::String(text)) => Value::String(text.to_string()),
            Some(Token::Boolean(flag)) => Value::Bool(*flag),
            Some(Token::Null) => Value::Null,
            Some(Token::Number(text)) => text
                .parse()
                .map_or_else(|_| Value::Other((*text).to_owned()), Value::Int),
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { line, value })
    }

    fn array(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let line = self.line;
        let mut items = Vec::new();
        self.advance()?;
        while self.token != Some(Token::CloseBracket) {
            items.push(self.value(depth + 1)?);
            self.advance()?;
            if !self.separator(&Token::CloseBracket)? {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
        let value = Value::Array(items);
        Ok(Node { line, value })
    }

    fn object(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let line = self.line;
        let mut members = Vec::new();
        self.advance()?;
        while self.token != Some(Token::CloseBrace) {
            let Some(Token::String(key)) = &self.token else {
                return Err(self.unexpected("a key in quotes or `}`"));
            };
            let (key, line) = (key.to_string(), self.line);
            self.advance()?;
            let node = if self.token == Some(Token::Colon) {
                self.advance()?;
                let node = self.value(depth + 1)?;
                self.advance()?;
                node
            } else {
                let value = Value::Null;
                Node { line, value }
            };
            members.push(Member { key, line, node });
            if !self.separator(&Token::CloseBrace)? {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
        let value = Value::Object(members);
        Ok(Node { line, value })
    }

    /// Passes a comma; false if there is neither one nor the end of the object or list.
    fn separator(&mut self, close: &Token<'a>) -> Result<bool, SyntaxError> {
        if self.token == Some(Token::Comma) {
            self.advance()?;
            return Ok(true);
        }
        Ok(self.token.as_ref() == Some(close))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_repeat() {
        let text = "{ /* c */ \"run\": 1, // d\n \"sleep\": -2,\n\"run\": 3.5, \"suspend\",\n\"x\": [true, null,], }";
        let Value::Object(members) = parse(text).unwrap().root.value else {
            panic!("no object");
        };
        let seen: Vec<_> = members
            .iter()
            .map(|m| (m.key.as_str(), m.line, m.node.value.clone()))
            .collect();
        let list = [Value::Bool(true), Value::Null]
            .map(|value| Node { line: 4, value })
            .to_vec();
        let expected = [
            ("run", 1, Value::Int(1)),
            ("sleep", 2, Value::Int(-2)),
            ("run", 3, Value::Other("3.5".to_owned())),
            ("suspend", 3, Value::Null),
            ("x", 4, Value::Array(list)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn constants_are_known_in_any_case_and_quotes_may_be_single() {
        let read = |text: &str| parse(text).unwrap();
        let plain =
            read("{\"a\": true, \"b\": false, \"c\": [null, true], \"d\": \"x\", \"e\": false}");
        for text in [
            "{'a': True, \"b\": FALSE, 'c': [NULL, True], 'd': 'x', \"e\":False}",
            "{\"a\":tRUE , \"b\":False/**/, \"c\":[Null,TRUE], \"d\": 'x', 'e': FALSE }",
        ] {
            assert_eq!(read(text), plain, "{text}");
        }
        assert!(parse("{True: 1}").is_err());
        assert!(parse("[Truey]").is_err());
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
        check("{'a: 1}", 1, "Unterminated");
        check("/* open", 1, "");
        check("\n\"open", 2, "");
        check(&"[".repeat(1_000), 1, "in one another");
    }
}
