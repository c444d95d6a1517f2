//! Every key that a config may have, with type, default and meaning: what is checked against, what names are
//! offered for an unknown key, and what `docs/config.md` is made from.

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// Older or foreign names that are taken too.
    pub aliases: &'static [&'static str],
    pub kind: &'static str,
    pub default: &'static str,
    pub meaning: &'static str,
    /// Whether an environment variable may stand over it, where its section has any.
    pub scalar: bool,
}

const fn key(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, aliases: &[], kind, default, meaning, scalar: true }
}

const fn many(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, aliases: &[], kind, default, meaning, scalar: false }
}

/// One table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// As it is written in the file.
    pub title: &'static str,
    /// The head of the environment variables over it; none if there are none.
    pub variables: Option<&'static str>,
    pub keys: &'static [&'static [Key]],
}

impl Section {
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + Clone + use<> {
        self.keys.iter().flat_map(|group| group.iter())
    }

    /// The key of this name or alias.
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys().find(|key| key.name == name || key.aliases.contains(&name))
    }
}

const DURATION: &str = "duration";
const SIZE: &str = "size";
const COUNT: &str = "number";

pub const ROOT: Section = Section {
    title: "",
    variables: None,
    keys: &[&[
        many("listen", "table", "", "where forebay listens"),
        many("auth", "table", "", "how callers are known"),
        many("global", "table", "", "limits over all upstreams"),
        many("defaults", "table", "", "limits of every upstream that says nothing else"),
        many("upstreams", "tables by name", "required", "the MCP servers"),
        many("callers", "tables by name", "none", "what single callers may do"),
        many("hooks", "table", "", "who is told of what happens"),
    ]],
};

pub const LISTEN: Section = Section {
    title: "listen",
    variables: Some("FOREBAY_LISTEN_"),
    keys: &[&[
        key(
            "mcp",
            "address:port",
            "127.0.0.1:7300",
            "where MCP (`/mcp`, `/mcp/NAME`) and REST are served; port 0 takes any free one",
        ),
        key(
            "mcp_unix",
            "unix:PATH",
            "none",
            "a unix socket on which the same is served; callers there are known by their user id",
        ),
        key("admin", "unix:PATH", "see below", "the admin API's socket"),
        many(
            "hosts",
            "list of names",
            "[]",
            "host names allowed in `Host` beside the listener's own address, without port, matched whole",
        ),
        many(
            "origins",
            "list of origins",
            "[]",
            "origins allowed beside the listener's own, such as `https://app.example`, matched whole",
        ),
        key("threads", COUNT, "one a core, at most 8", "threads that serve sockets (1 to 64)"),
        key("max_body", SIZE, "4MiB", "largest request body; larger ones are answered 413"),
    ]],
};

pub const AUTH: Section = Section {
    title: "auth",
    variables: None,
    keys: &[&[
        key(
            "mode",
            "none, keys, jwt",
            "none",
            "`none`: everybody is `anonymous`, allowed on loopback only; `keys`: callers send `Authorization: Bearer KEY`; `jwt`: they send a token of an issuer under `[auth.jwt]`",
        ),
        many("jwt", "table", "none", "which tokens are believed; needed for mode `jwt`"),
    ]],
};

pub const JWT: Section = Section {
    title: "auth.jwt",
    variables: None,
    keys: &[&[
        many(
            "audience",
            "string",
            "required",
            "the URL by which callers reach this daemon; a token's `aud` must name it",
        ),
        many(
            "issuers",
            "table of strings",
            "required",
            "each issuer (`iss`, as tokens have it) with the URL of its public keys (JWKS)",
        ),
        many(
            "algorithms",
            "list of algorithms",
            "RS256, ES256",
            "signatures that are taken, of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA",
        ),
        many("leeway", DURATION, "10s", "how far the clocks of issuer and daemon may differ, at most 30s"),
        many(
            "scopes",
            "list of scopes",
            "none",
            "scopes that every token must have; one that lacks any is answered 403",
        ),
    ]],
};

pub const GLOBAL: Section = Section {
    title: "global",
    variables: Some("FOREBAY_GLOBAL_"),
    keys: &[&[
        Key {
            aliases: &["max_concurrent_requests"],
            ..key("max_concurrent", COUNT, "0", "calls in flight over all upstreams; 0 or \"unlimited\" means no limit")
        },
        key(
            "max_share",
            "fraction",
            "0.75",
            "the part of `max_concurrent` that one upstream may hold, above 0 and at most 1",
        ),
        key(
            "max_bytes",
            SIZE,
            "256MiB",
            "request bodies and buffered results held at once; more is refused `overloaded`",
        ),
        key(
            "drain_timeout",
            DURATION,
            "30s",
            "how long a stop waits for queued and running calls; then the rest is answered",
        ),
        key("connect_concurrency", COUNT, "4", "how many upstreams connect at once"),
        key(
            "overload_error_code",
            "JSON-RPC code",
            "-31429",
            "code of forebay's own errors; -32099 to -32020 are reserved and refused",
        ),
        key(
            "overload_reply",
            "tool_error, jsonrpc_error, http_429",
            "tool_error",
            "the form in which a `tools/call` over MCP is refused",
        ),
        key(
            "enforce",
            "on, shadow",
            "on",
            "`shadow`: rates, quotas, cursors and gates only count what they would refuse; the queues always hold",
        ),
        key(
            "legacy_disconnect",
            "drop_queued, keep, cancel",
            "drop_queued",
            "what the disconnect of a client of an older protocol does to its calls",
        ),
        key(
            "builtin_tools",
            "true, false",
            "false",
            "`/mcp` has two tools more: `forebay__my_calls` and `forebay__cancel_my_call`, for a caller's own calls",
        ),
    ]],
};

const LIMITS: &[Key] = &[
    Key {
        aliases: &["max_concurrent_requests"],
        ..key(
            "max_concurrent",
            "number, \"unlimited\" or { min, max }",
            "5 for a command, 32 for a url",
            "calls in flight at the upstream; 0 or \"unlimited\" means 4096, the most there is; with `{ min = 2, max = 20 }` the limit moves with the load between the two, beginning at `min`",
        )
    },
    key(
        "queue_size",
        COUNT,
        "100",
        "calls that may wait; 0 means never wait: a free slot is used, else the call is refused `concurrency_limit`",
    ),
    key("queue_bytes", SIZE, "64MiB", "bytes of the requests that wait"),
    key("queue_timeout", DURATION, "30s", "longest wait, then the call ends `expired`; 0 means none"),
    key(
        "call_timeout",
        DURATION,
        "2m",
        "longest run, then `timed_out`; the clock starts when the call starts; 0 means none",
    ),
    key(
        "cancel_grace",
        DURATION,
        "5s",
        "how long the slot of a cancelled or timed-out call waits for the upstream; not 0",
    ),
    key(
        "after_cancel",
        "release, hold, recycle",
        "release",
        "`release`: the slot is free after `cancel_grace`; `hold`: it stays taken until the upstream answers or `call_timeout`; `recycle`: the child process is replaced",
    ),
    key(
        "on_full",
        "displace, reject",
        "displace",
        "`displace`: a newcomer may take the place of a call of a lower lane or of a longer flow; `reject`: it never does",
    ),
    key(
        "fairness",
        "callers, none",
        "callers",
        "`callers`: callers take turns by weight; `none`: plain first in, first out in each lane",
    ),
    key(
        "max_queued",
        COUNT,
        "none; half of queue_size with on_full = \"reject\"",
        "most calls of one caller in this queue",
    ),
    key(
        "sojourn_control",
        "true, false",
        "false",
        "while even the shortest wait of a lane stays above a quarter of `queue_timeout` for 10 s, what waited over half of it is dropped at its turn, lowest lane first (`expired`, reason `sojourn`)",
    ),
    key(
        "count_everything",
        "true, false",
        "false",
        "probes and list fetches take a slot too, for servers that break on any second request",
    ),
    key("start", "eager, on_demand", "eager", "connect at once, or with the first call"),
    key("connect_timeout", DURATION, "60s", "how long start and handshake may take; not 0"),
    key("max_message", SIZE, "16MiB", "longest line or body that the upstream may send; a longer one costs its call"),
];

pub const DEFAULTS: Section = Section { title: "defaults", variables: Some("FOREBAY_DEFAULTS_"), keys: &[LIMITS] };

pub const UPSTREAM: Section = Section {
    title: "upstreams.NAME",
    variables: None,
    keys: &[
        &[
            key("command", "string", "", "the program of a stdio server, started without a shell; this or `url`"),
            many("args", "list of strings", "[]", "its arguments"),
            many(
                "env",
                "table of strings",
                "{}",
                "variables laid over a small base (`PATH`, `HOME` and the like); forebay's own environment is not handed on",
            ),
            key(
                "cwd",
                "path",
                "forebay's own",
                "its working directory; a relative one starts at the config's directory",
            ),
            key("processes", COUNT, "1", "how many children share the calls (1 to 64), for servers that serialise"),
            key("url", "http(s) URL", "", "a Streamable HTTP server; this or `command`"),
            many("headers", "table of strings", "{}", "headers sent with each request, credentials too"),
            many("tools", "tables by name", "none", "what single tools have of their own"),
        ],
        LIMITS,
    ],
};

pub const TOOL: Section = Section {
    title: "upstreams.NAME.tools.TOOL",
    variables: None,
    keys: &[&[
        Key {
            aliases: &["max_concurrent_requests"],
            ..key(
                "max_concurrent",
                COUNT,
                "0",
                "calls of this tool in flight; 0 or \"unlimited\" means no limit of its own",
            )
        },
        key("weight", COUNT, "1", "slots that one call takes"),
        key("priority", "high, normal, low", "none", "its lane; a caller's wish counts where it is lower"),
        key("call_timeout", DURATION, "the upstream's", "longest run; 0 means none"),
        many("cursor", "table", "none", "its results leave a cursor open at the server; see below"),
        many("gate", "list of tables", "none", "what refuses a call before it runs; see below"),
        key(
            "gate_error",
            "refuse, allow",
            "refuse",
            "what becomes of a call whose gate cannot be evaluated, or whose price is not known",
        ),
        key(
            "retry",
            "true, false",
            "false",
            "may be sent once more after a lost connection, if it is annotated read-only or idempotent too",
        ),
    ]],
};

pub const CALLER: Section = Section {
    title: "callers.NAME",
    variables: None,
    keys: &[&[
        many(
            "key_hash",
            "string or list of two",
            "none",
            "printed by `forebay key new NAME`; two while a key is being replaced",
        ),
        many("uids", "list of user ids", "none", "user ids that are this caller on `listen.mcp_unix`, without a key"),
        many(
            "subjects",
            "list of subjects",
            "none",
            "with mode `jwt`: the subjects (`sub`) of tokens that are this caller",
        ),
        key(
            "issuer",
            "string",
            "the only one",
            "with mode `jwt`: whose tokens these are, where there are several issuers",
        ),
        key("weight", COUNT, "1", "share of the turns in a lane (1 to 1000)"),
        key("max_priority", "high, normal, low", "high", "the highest lane that it may ask for"),
        key("max_deadline", DURATION, "0", "longest time for each of its calls, waiting included; 0 means no limit"),
        Key {
            aliases: &["max_concurrent_requests"],
            ..key(
                "max_concurrent",
                COUNT,
                "0",
                "its calls in flight over all upstreams; 0 or \"unlimited\" means no limit",
            )
        },
        key("max_queued", COUNT, "the upstream's", "its calls in any one queue"),
        many(
            "rate",
            "{ per_second, burst }",
            "none",
            "how often it may call; `burst` is by default one second's worth",
        ),
        many(
            "quota",
            "{ bytes_per_minute, tokens_per_minute }",
            "none",
            "how much of results it may be sent; charged after each call, and a debt is worked off before the next",
        ),
        key("cursors", COUNT, "the tools' own bounds", "cursors that it may have open over all tools (1 to 10000)"),
        key("enforce", "on, shadow", "on", "`shadow`: its rate and quota only count what they would refuse"),
        many("upstreams", "list of names", "all", "the upstreams that it may use"),
        many("tools", "list of names", "all", "the tools that it may call, as `tool` or `upstream__tool`"),
    ]],
};

pub const RATE: Section = Section {
    title: "callers.NAME.rate",
    variables: None,
    keys: &[&[
        key("per_second", COUNT, "required", "calls a second, fractions allowed"),
        key("burst", COUNT, "per_second, rounded up", "calls that may come at once"),
    ]],
};

pub const QUOTA: Section = Section {
    title: "callers.NAME.quota",
    variables: None,
    keys: &[&[
        key("bytes_per_minute", SIZE, "none", "bytes of answers a minute (1KiB to 1TiB)"),
        key("tokens_per_minute", COUNT, "none", "the same in tokens, estimated: 4 bytes are one (256 to 1000000000)"),
    ]],
};

pub const CURSOR: Section = Section {
    title: "upstreams.NAME.tools.TOOL.cursor",
    variables: None,
    keys: &[&[
        key("pointer", "JSON pointer", "required", "where a result carries the next cursor: `/structuredContent/next`"),
        key("argument", "string", "required", "the argument in which a follow-up gives it back"),
        key("ttl", DURATION, "10m", "how long a cursor stays open without a follow-up; not 0"),
        key("per_caller", COUNT, "10", "open at once for one caller (1 to 10000); more are refused `caller_cursors`"),
        key("total", COUNT, "100", "open at once for all callers (1 to 10000)"),
        key("enforce", "on, shadow", "on", "`shadow`: only counts what it would refuse"),
    ]],
};

pub const GATE: Section = Section {
    title: "[upstreams.NAME.tools.TOOL.gate]",
    variables: None,
    keys: &[&[
        key("when", "CEL expression", "", "is true of what is too big, over `args` and `caller`; this or `price`"),
        key("price", "tool", "", "a cheap tool of the same upstream, asked with the same arguments; this or `when`"),
        key("max", COUNT, "required with price", "the highest price that is let through"),
        key("value", "JSON pointer", "the first text", "where the price stands in that tool's result"),
        key("say", "string", "required", "what a caller is told to narrow, one line"),
        key("enforce", "on, shadow", "on", "`shadow`: only counts what it would refuse"),
    ]],
};

pub const HOOKS: Section = Section {
    title: "hooks",
    variables: None,
    keys: &[&[
        many(
            "on_overload",
            "http(s) URL or list of strings",
            "none",
            "told when calls are refused because there are too many: a URL that is posted to, or a command with its arguments",
        ),
        key("overload_every", DURATION, "10s", "the least time between two tellings, at least 1s"),
    ]],
};

pub const RANGE: Section = Section {
    title: "max_concurrent",
    variables: None,
    keys: &[&[
        key("min", COUNT, "required", "the lowest that the limit goes to"),
        key("max", COUNT, "required", "the highest that it goes to"),
    ]],
};

/// All tables, in the order of the manual.
pub const SECTIONS: [Section; 14] =
    [ROOT, LISTEN, AUTH, JWT, GLOBAL, DEFAULTS, UPSTREAM, TOOL, CURSOR, GATE, CALLER, RATE, QUOTA, HOOKS];

/// The tables of keys as `docs/config.md` has them.
pub fn manual() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let title = if section.title.is_empty() { "Top level".to_owned() } else { format!("`[{}]`", section.title) };
        text.push_str(&format!("\n### {title}\n\n"));
        if let Some(head) = section.variables {
            text.push_str(&format!("Environment variables over scalars: `{head}...`, the key in capitals.\n\n"));
        }
        text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys() {
            let also = match key.aliases {
                [] => String::new(),
                aliases => format!(" (also `{}`)", aliases.join("`, `")),
            };
            let cell = |text: &str| text.replace('|', "\\|");
            let (kind, default, meaning) = (cell(key.kind), cell(key.default), cell(key.meaning));
            text.push_str(&format!("| `{}`{also} | {kind} | {default} | {meaning} |\n", key.name));
        }
    }
    text.push('\n');
    text
}
