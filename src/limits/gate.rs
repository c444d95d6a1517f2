//! Gates: what refuses a question that is too big before it runs (rules R35, R36).
//!
//! A gate is a CEL expression over `args` and `caller` that is true of what is too big, or the name of a cheap tool of
//! the same upstream that tells a price. What may go into an expression is checked when the config is read
//! ([`When::compile`]), so that no caller's arguments can make it run for long; who asks it, and who asks for a price,
//! is [`crate::dispatcher`].

use super::pointer::Pointer;
use super::shadow::Enforce;
use cel::common::ast::{EntryExpr, Expr, IdedExpr, ListExpr, operators};
use cel::objects::{Key, Map, Value};
use cel::{Context, Env, Program};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

/// The longest expression, in bytes.
pub const LONGEST_SOURCE: usize = 2 << 10;
/// The largest arguments that a gate looks at, in bytes.
pub const LARGEST_ARGUMENTS: usize = 64 << 10;
/// How deep an expression may nest: its evaluation needs a thread's stack.
const DEEPEST: usize = 64;

/// One gate of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    pub test: Test,
    /// What a caller is told to narrow.
    pub say: Arc<str>,
    pub enforce: Enforce,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    When(Arc<When>),
    Price(Price),
}

/// What becomes of a call whose gate cannot be evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGateError {
    #[default]
    Refuse,
    Allow,
}

/// A price asked of another tool, with the call's own arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    pub tool: Arc<str>,
    pub max: f64,
    /// Where the number stands in the result; none is its first text.
    pub value: Option<Pointer>,
}

impl Price {
    /// The number in a result.
    pub fn number(&self, result: &str) -> Option<f64> {
        static TEXT: LazyLock<Option<Pointer>> = LazyLock::new(|| Pointer::parse("/content/0/text").ok());
        super::pointer::number(self.value.as_ref().or(TEXT.as_ref())?.find(result)?)
    }
}

/// An expression that is true of what is too big.
#[derive(Debug)]
pub struct When {
    source: String,
    program: Program,
    heavy: bool,
}

impl PartialEq for When {
    fn eq(&self, other: &When) -> bool {
        self.source == other.source
    }
}

/// Functions, operators and macros of the language; made once, since that takes longer than most expressions.
static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

impl When {
    /// Reads an expression. The error is what is wrong and a hint; the first reads well behind the name of a key.
    pub fn compile(source: &str) -> Result<When, (String, &'static str)> {
        const SHORTER: &str = "put it in simpler words, or into several gates";
        if source.trim().is_empty() {
            return Err(("is empty".into(), "write what is too big, such as \"args.limit > 1000\""));
        }
        if source.len() > LONGEST_SOURCE {
            return Err((format!("is longer than {LONGEST_SOURCE} bytes"), SHORTER));
        }
        // Before it is parsed, since the parser needs a stack too.
        if nesting(source) > DEEPEST {
            return Err((format!("nests more than {DEEPEST} deep"), SHORTER));
        }
        // A long chain of operators is as deep a tree as brackets are.
        if source.bytes().filter(|byte| b"+-*/%&|<>=?.".contains(byte)).count() > 4 * DEEPEST {
            return Err(("is too long a chain of operators".into(), SHORTER));
        }
        let compiled = catch_unwind(|| LANGUAGE.compile(source));
        let program = match compiled {
            Ok(Ok(program)) => program,
            Ok(Err(errors)) => {
                let why = errors.errors.first().map(|error| error.msg.clone()).unwrap_or_default();
                let why: String = why.chars().filter(|c| !c.is_control()).take(160).collect();
                return Err((format!("is no CEL expression: {why}"), "docs/limits.md shows what it may hold"));
            }
            Err(_) => return Err(("is no CEL expression".into(), SHORTER)),
        };
        let mut look = Look { names: vec!["args", "caller"], heavy: false };
        look.at(program.expression(), 0, false)?;
        let heavy = look.heavy;
        Ok(When { source: source.into(), program, heavy })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// It goes through lists, so it may take milliseconds: not to be evaluated on a thread that serves sockets.
    pub fn is_heavy(&self) -> bool {
        self.heavy
    }

    /// Whether the call is too big. The error is a short phrase.
    pub fn holds(&self, question: &Question) -> Result<bool, String> {
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let mut context = Context::with_env(LANGUAGE.clone());
            context.add_variable_from_value("args", question.args.clone());
            context.add_variable_from_value("caller", question.caller.clone());
            self.program.execute(&context)
        }));
        match asked {
            Ok(Ok(Value::Bool(too_big))) => Ok(too_big),
            Ok(Ok(other)) => Err(format!("it gives {} and not true or false", other.type_of())),
            Ok(Err(fault)) => Err(fault.to_string().chars().filter(|c| !c.is_control()).take(160).collect()),
            Err(_) => Err("its evaluation failed".into()),
        }
    }
}

/// What an expression is asked about.
#[derive(Clone, Debug)]
pub struct Question {
    args: Value,
    caller: Value,
}

impl Question {
    /// `arguments` is a raw JSON object. The error is a short phrase.
    pub fn new(arguments: &str, caller: &str, identity: &str) -> Result<Question, String> {
        if arguments.len() > LARGEST_ARGUMENTS {
            return Err(format!("its arguments are larger than {} KiB", LARGEST_ARGUMENTS >> 10));
        }
        let args: serde_json::Value =
            serde_json::from_str(arguments).map_err(|_| "its arguments have a number that is out of bounds")?;
        let text = |text: &str| Value::String(Arc::new(text.to_owned()));
        let caller = HashMap::from([
            (Key::from("name".to_owned()), text(caller)),
            (Key::from("identity".to_owned()), text(identity)),
        ]);
        Ok(Question { args: value(args), caller: Value::Map(Map { map: Arc::new(caller) }) })
    }
}

fn value(json: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Int(whole),
            None => Value::Float(number.as_f64().unwrap_or(f64::INFINITY)),
        },
        Json::String(text) => Value::String(Arc::new(text)),
        Json::Array(list) => Value::List(Arc::new(list.into_iter().map(value).collect())),
        Json::Object(map) => {
            let map = map.into_iter().map(|(key, json)| (Key::from(key), value(json))).collect();
            Value::Map(Map { map: Arc::new(map) })
        }
    }
}

/// How deep brackets and signs pile up.
fn nesting(source: &str) -> usize {
    let (mut depth, mut signs, mut deepest) = (0usize, 0usize, 0usize);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'?' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'!' | b'-' => signs += 1,
            byte if byte.is_ascii_whitespace() => {}
            _ => signs = 0,
        }
        deepest = deepest.max(depth + signs);
    }
    deepest
}

/// The look at an expression that has been read.
struct Look<'a> {
    /// Names that stand for something.
    names: Vec<&'a str>,
    heavy: bool,
}

impl<'a> Look<'a> {
    /// `inside` is whether it is evaluated once an element of a list.
    fn at(&mut self, expression: &'a IdedExpr, depth: usize, inside: bool) -> Result<(), (String, &'static str)> {
        if depth > 4 * DEEPEST {
            return Err(("is too long a chain".into(), "put it into several gates"));
        }
        let depth = depth + 1;
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) if name.starts_with('@') || self.names.contains(&name.as_str()) => Ok(()),
            Expr::Ident(name) => {
                let shown: String = name.chars().take(40).collect();
                Err((format!("names `{shown}`, which is nothing here"), "`args` and `caller` are known"))
            }
            Expr::Select(select) => self.at(&select.operand, depth, inside),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.at(element, depth, inside)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth, inside)),
            Expr::Struct(made) => made.entries.iter().try_for_each(|entry| self.entry(&entry.expr, depth, inside)),
            Expr::Call(call) => {
                if call.func_name == "matches" {
                    let hint = "use ==, contains, startsWith or endsWith: a pattern may take for ever";
                    return Err(("uses `matches`".into(), hint));
                }
                let literal = |list: &IdedExpr| matches!(&list.expr, Expr::List(ListExpr { .. }));
                if call.func_name == operators::IN && inside && !call.args.get(1).is_some_and(literal) {
                    let hint = "that takes the product of both lengths; compare with a list that is written out";
                    return Err(("searches a list for each element of another".into(), hint));
                }
                call.target.iter().try_for_each(|target| self.at(target, depth, inside))?;
                call.args.iter().try_for_each(|argument| self.at(argument, depth, inside))
            }
            Expr::Comprehension(each) => {
                if inside {
                    let hint = "that takes the product of their lengths; take one list a gate";
                    return Err(("goes through a list within another".into(), hint));
                }
                self.heavy = true;
                self.at(&each.iter_range, depth, inside)?;
                self.at(&each.accu_init, depth, inside)?;
                let known = self.names.len();
                self.names.extend([each.iter_var.as_str(), each.accu_var.as_str()]);
                self.names.extend(each.iter_var2.as_deref());
                self.at(&each.loop_cond, depth, true)?;
                self.at(&each.loop_step, depth, true)?;
                self.at(&each.result, depth, inside)?;
                self.names.truncate(known);
                Ok(())
            }
        }
    }

    fn entry(&mut self, entry: &'a EntryExpr, depth: usize, inside: bool) -> Result<(), (String, &'static str)> {
        match entry {
            EntryExpr::StructField(field) => self.at(&field.value, depth, inside),
            EntryExpr::MapEntry(entry) => {
                self.at(&entry.key, depth, inside)?;
                self.at(&entry.value, depth, inside)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(source: &str, arguments: &str) -> Result<bool, String> {
        let when = When::compile(source).unwrap_or_else(|(fault, _)| panic!("{source}: {fault}"));
        when.holds(&Question::new(arguments, "ann", "key")?)
    }

    #[test]
    fn an_expression_says_what_is_too_big() {
        for (source, arguments, too_big) in [
            ("args.limit > 1000", r#"{"limit":1001}"#, true),
            ("args.limit > 1000", r#"{"limit":1000}"#, false),
            ("!has(args.limit) || args.limit > 10", "{}", true),
            ("size(args.ids) > 2", r#"{"ids":[1,2,3]}"#, true),
            ("caller.name == 'ann' && args.all", r#"{"all":true}"#, true),
            ("caller.identity != 'key'", "{}", false),
            ("args.rows.exists(row, row.size > 5)", r#"{"rows":[{"size":1},{"size":6}]}"#, true),
            ("args.ids.filter(id, id in [1, 2]).size() > 1", r#"{"ids":[1,2,3]}"#, true),
            ("args.sql.contains('select *')", r#"{"sql":"select * from t"}"#, true),
            ("args.big > 9223372036854775806", r#"{"big":9223372036854775807}"#, true),
            ("args.f > 1.5", r#"{"f":1.6}"#, true),
            ("args.n == null", r#"{"n":null}"#, true),
        ] {
            assert_eq!(holds(source, arguments), Ok(too_big), "{source} of {arguments}");
        }
    }

    #[test]
    fn r35_what_cannot_be_evaluated_says_why() {
        assert!(holds("args.limit > 10", "{}").unwrap_err().contains("limit"));
        assert!(holds("args.limit", r#"{"limit":1}"#).unwrap_err().contains("int"));
        assert!(holds("args.limit > 10", r#"{"limit":"ten"}"#).is_err());
        assert!(holds("1 / args.x > 0", r#"{"x":0}"#).is_err());
        assert!(holds("args.x > 0", r#"{"x":1E400}"#).unwrap_err().contains("out of bounds"));
        let large = format!(r#"{{"x":"{}"}}"#, "x".repeat(LARGEST_ARGUMENTS));
        assert!(holds("true", &large).unwrap_err().contains("64 KiB"));
    }

    #[test]
    fn r35_what_could_run_for_long_is_refused_when_it_is_read() {
        let deep = format!("{}1{} == 1", "(".repeat(300), ")".repeat(300));
        let chain = format!("{}1 == 1", "1+".repeat(1000));
        let dots = format!("args{}", ".a".repeat(1000));
        let signs = format!("{}true", "!".repeat(300));
        let long = format!("args.x == '{}'", "x".repeat(LONGEST_SOURCE));
        for (source, word) in [
            ("", "empty"),
            ("args.x >", "no CEL expression"),
            ("args.rows.exists(a, args.rows.exists(b, a == b))", "within another"),
            ("args.rows.map(a, args.rows.map(b, b)).size() > 1", "within another"),
            ("args.rows.exists(a, a in args.rows)", "for each element"),
            ("args.sql.matches('(a+)+$')", "`matches`"),
            ("matches(args.sql, 'x')", "`matches`"),
            ("arg.x > 1", "`arg`"),
            ("args.rows.exists(a, b > 1)", "`b`"),
            (&deep, "nests"),
            (&chain, "chain"),
            (&dots, "chain"),
            (&signs, "nests"),
            (&long, "longer than"),
        ] {
            let (fault, hint) = When::compile(source).err().unwrap_or_else(|| panic!("taken: {source}"));
            assert!(fault.contains(word) && !hint.is_empty(), "{source}: {fault}");
        }
    }

    #[test]
    fn r35_only_what_goes_through_lists_is_heavy() {
        assert!(!When::compile("args.limit > 10 && size(args.ids) > 3").unwrap().is_heavy());
        assert!(When::compile("args.ids.exists(id, id > 3)").unwrap().is_heavy());
    }

    #[test]
    fn r36_a_price_is_the_first_text_or_where_the_config_says() {
        let price = |value: Option<&str>| Price {
            tool: "estimate".into(),
            max: 1.0,
            value: value.map(|value| Pointer::parse(value).unwrap()),
        };
        let result = r#"{"content":[{"type":"text","text":" 1200 "}],"structuredContent":{"rows":7,"cost":"2.5"}}"#;
        assert_eq!(price(None).number(result), Some(1200.0));
        assert_eq!(price(Some("/structuredContent/rows")).number(result), Some(7.0));
        assert_eq!(price(Some("/structuredContent/cost")).number(result), Some(2.5));
        assert_eq!(price(Some("/structuredContent")).number(result), None);
        assert_eq!(price(None).number(r#"{"content":[]}"#), None);
    }
}
