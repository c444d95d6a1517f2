//! Environment variables that stand over scalars of `[listen]`, `[global]` and `[defaults]`.

use super::Env;
use super::fault::{Finding, Place, did_you_mean};
use super::node::{Node, Value};
use super::schema::{DEFAULTS, GLOBAL, Key, LISTEN, Section};

/// All of them, as values of the tree.
#[derive(Debug)]
pub(super) struct Variables(Vec<Variable>);

#[derive(Debug)]
pub(super) struct Variable {
    pub name: String,
    head: &'static str,
    pub key: &'static Key,
    pub node: Node,
}

impl Variables {
    /// Reads them, with a fault for each that names no key. `FOREBAY_` variables of other heads are not the
    /// config's.
    pub(super) fn read(env: &dyn Env, faults: &mut Vec<Finding>) -> Self {
        let mut all: Vec<Variable> = Vec::new();
        for (name, value) in env.own_vars() {
            let of = |section: Section| Some((section, section.variables?, name.strip_prefix(section.variables?)?));
            let Some((section, head, rest)) = [LISTEN, GLOBAL, DEFAULTS].into_iter().find_map(of) else { continue };
            let mut fault = |message: &str, hint: String| {
                let place = Place::Variable(name.clone());
                faults.push(Finding { place, key: String::new(), message: message.into(), hint: Some(hint) });
            };
            match section.find(&rest.to_ascii_lowercase()) {
                Some(key) if !key.scalar => fault(
                    "cannot be set by a variable, since it is a list",
                    format!("set `{}` under [{}] in the file", key.name, section.title),
                ),
                Some(key) if all.iter().any(|other| other.head == head && other.key.name == key.name) => {
                    fault("sets a key that another variable sets too", "keep one of the two".into());
                }
                Some(key) => {
                    let node = Node { span: 0..0, value: Value::Text(value) };
                    all.push(Variable { name, head, key, node });
                }
                None => {
                    let known = section.keys().filter(|key| key.scalar).map(|key| key.name);
                    let hint = match did_you_mean(rest, known.clone()) {
                        Some(near) => format!("did you mean {head}{}?", near.to_ascii_uppercase()),
                        None => format!("known keys of [{}]: {}", section.title, known.collect::<Vec<_>>().join(", ")),
                    };
                    fault("names no key of the config", hint);
                }
            }
        }
        Variables(all)
    }

    pub(super) fn of(&self, section: &Section) -> impl Iterator<Item = &Variable> {
        let head = section.variables;
        self.0.iter().filter(move |variable| Some(variable.head) == head)
    }
}
