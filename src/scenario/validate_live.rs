//! What `[live]` may say: addresses, lists against counts, what a target can do at all, where secrets are.
//!
//! What only the target itself can tell (its kind of router, whether it is emulated) is checked when it is looked at.
//! Invariant: with a target that is not embedded, the lists are the cluster: `[cluster]` counts what they name.

use std::collections::BTreeSet;

use super::address::Address;
use super::error::{Problem, without_queries};
use super::model::Scenario;
use super::validate::problem;
use super::{Legs, LiveConfig, RouterKind, TargetKind};
use crate::policies::PolicyName;
use crate::replay::Mechanism;

/// Why `kvc` cannot go through a router that copies `session_params` to P.
pub const SESSIONS_REACH_P: &str = "which copies session_params to the prefill leg too: P holds no such session and aborts it, \
                                    so every seed and reseed fails";

/// Takes the counts of `[cluster]` from the lists of a target that is not embedded. `beside` says whether a key of
/// `[cluster]` was written where the list of that key is, or over it; one that disagrees is a problem then.
pub(super) fn count_lists(scenario: &mut Scenario, beside: impl Fn(&str, &str) -> bool) -> Vec<Problem> {
    let Scenario { live, cluster, .. } = scenario;
    if live.is_embedded() {
        return Vec::new();
    }
    let lists = [
        ("prefill", live.prefill.len(), &mut cluster.prefill),
        ("decode", live.decode.len(), &mut cluster.decode),
        ("colocated", live.colocated.len(), &mut cluster.colocated),
    ];
    let mut problems = Vec::new();
    for (role, listed, count) in lists {
        let key = format!("cluster.{role}");
        let listed = u16::try_from(listed).unwrap_or(u16::MAX);
        if *count != listed && beside(&key, &format!("live.{role}")) {
            let cause = format!("is {count}, but live.{role} lists {listed}");
            problems.push(problem(&key, cause, "leave it out: the lists of [live] are counted"));
        }
        *count = listed;
    }
    problems
}

/// Everything impossible in `[live]`.
pub(super) fn live_problems(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let live = &scenario.live;
    addresses(live, problems);
    match live.target {
        TargetKind::Embedded => embedded(live, problems),
        TargetKind::Sglang => sglang(scenario, problems),
        TargetKind::Openai => openai(scenario, problems),
    }
    if !live.is_embedded() && !scenario.fault.is_empty() {
        let cause = "is given, but faults are those of the emulated workers themselves";
        let remedy = "leave the faults out, or use live.target = \"embedded\"";
        problems.push(problem("fault", cause, remedy));
    }
    headers(scenario, problems);
    secrets(live, problems);
    tokens(live, problems);
}

fn lists(live: &LiveConfig) -> [(&'static str, &Vec<String>); 3] {
    [("live.prefill", &live.prefill), ("live.decode", &live.decode), ("live.colocated", &live.colocated)]
}

fn addresses(live: &LiveConfig, problems: &mut Vec<Problem>) {
    const REMEDY: &str = "write a base URL such as http://10.0.0.7:30000";
    let mut check = |key: &str, text: &str, may_have_port: bool| match Address::parse(text) {
        Ok(Address { bootstrap_port: Some(_), .. }) if !may_have_port => {
            let cause = format!("has \"{text}\" with a second port");
            problems.push(problem(key, cause, "only prefill workers have a bootstrap port"));
            None
        }
        Ok(address) => Some(address.url),
        Err(cause) => {
            // A password is not shown again.
            let text = without_queries(text);
            let shown = if text.contains('@') { "an address that is".to_owned() } else { format!("\"{text}\",") };
            let remedy = Address::meant(&text).map_or_else(|| REMEDY.to_owned(), |url| format!("write {url}"));
            problems.push(problem(key, format!("has {shown} not a base URL: {cause}"), remedy));
            None
        }
    };
    if !live.router.is_empty() {
        check("live.router", &live.router, false);
    }
    if !live.proxy.is_empty() {
        check("live.proxy", &live.proxy, false);
    }
    let mut repeated = Vec::new();
    let mut seen = BTreeSet::new();
    for (key, list) in lists(live) {
        for text in list {
            if let Some(url) = check(key, text, key == "live.prefill")
                && !seen.insert(url.clone())
            {
                repeated.push((key, url));
            }
        }
    }
    for (key, url) in repeated {
        problems.push(problem(key, format!("names {url} a second time"), "give each worker once"));
    }
}

fn embedded(live: &LiveConfig, problems: &mut Vec<Problem>) {
    let given = lists(live).into_iter().filter(|(_, list)| !list.is_empty()).map(|(key, _)| key);
    for key in given.chain((!live.router.is_empty()).then_some("live.router")) {
        let cause = "is given, but target \"embedded\" starts workers and router of its own";
        problems.push(problem(key, cause, "set live.target = \"sglang\" or \"openai\", or leave it out"));
    }
}

fn sglang(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let (live, mechanism) = (&scenario.live, scenario.replay.mechanism);
    let (needed, role) = match mechanism {
        Mechanism::Dp => (vec![("live.colocated", live.colocated.len(), "--worker")], "colocated workers"),
        Mechanism::Pd | Mechanism::Kvc => (
            vec![("live.prefill", live.prefill.len(), "--prefill"), ("live.decode", live.decode.len(), "--decode")],
            "prefill and decode workers, also those behind a router",
        ),
    };
    for (key, _, flag) in needed.into_iter().filter(|(_, listed, _)| *listed == 0) {
        let cause = format!("is empty, but mechanism `{}` on target \"sglang\" needs it", mechanism.as_str());
        problems.push(problem(key, cause, format!("list the base URLs of the {role} ({flag} URL)")));
    }
    if mechanism == Mechanism::Dp {
        return;
    }
    match live.legs {
        Legs::Router if live.router.is_empty() => problems.push(problem(
            "live.router",
            "is empty, but legs = \"router\" sends every plain request to a PD router",
            "write its base URL (--router URL), or set live.legs = \"direct\": the client then joins the legs itself",
        )),
        Legs::Direct if !live.router.is_empty() => problems.push(problem(
            "live.router",
            "is given, but legs = \"direct\" uses no router",
            "leave it out, or set live.legs = \"router\"",
        )),
        Legs::Router | Legs::Direct => {}
    }
    let copies = matches!(live.router_kind, RouterKind::Smg | RouterKind::SglangRouter);
    if mechanism == Mechanism::Kvc && live.legs == Legs::Router && copies {
        let cause = format!("is a router of SGLang, {SESSIONS_REACH_P}");
        problems.push(problem("live.router_kind", cause, "set live.legs = \"direct\", or use `pdreplay router`"));
    }
}

fn openai(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let live = &scenario.live;
    if scenario.replay.mechanism != Mechanism::Dp {
        let cause = format!(
            "is `{}`, but target \"openai\" has no prefill and decode workers of its own",
            scenario.replay.mechanism.as_str()
        );
        problems.push(problem("replay.mechanism", cause, "choose mechanism `dp` (--mechanism dp)"));
    }
    if live.colocated.is_empty() {
        let cause = "is empty, but target \"openai\" needs it";
        problems.push(problem("live.colocated", cause, "list the base URLs of the servers (--worker URL)"));
    }
    for (key, list) in lists(live).into_iter().filter(|(key, list)| *key != "live.colocated" && !list.is_empty()) {
        let cause = format!("lists {} workers, but target \"openai\" uses live.colocated alone", list.len());
        problems.push(problem(key, cause, "leave it out"));
    }
    if live.emulation_speed != 1.0 {
        let cause = format!("is {}, but target \"openai\" runs in real time", live.emulation_speed);
        problems.push(problem("live.emulation_speed", cause, "leave it out"));
    }
}

/// Request headers that two keys name: a router would take the one for the other.
fn one_header_for_two(names: &[(&'static str, &String)]) -> Vec<Problem> {
    let given = names.iter().enumerate().filter(|(_, (_, name))| !name.is_empty());
    let clash = |(nth, (key, name)): (usize, &(&'static str, &String))| {
        let (other, _) = names[..nth].iter().find(|(_, earlier)| earlier.eq_ignore_ascii_case(name))?;
        let cause = format!("is \"{name}\", as {other} is: the router cannot tell the two apart");
        Some(problem(*key, cause, "give each a name of its own"))
    };
    given.filter_map(clash).collect()
}

fn headers(scenario: &Scenario, problems: &mut Vec<Problem>) {
    let header = &scenario.live.header;
    let names = [
        ("live.header.target_name", &header.target_name),
        ("live.header.prefill_name", &header.prefill_name),
        ("live.header.key_name", &header.key_name),
        ("live.header.echo_name", &header.echo_name),
        ("live.served_by.header", &scenario.live.served_by.header),
    ];
    for (key, name) in names.into_iter().filter(|(_, name)| !name.is_empty() && !is_header_name(name)) {
        problems.push(problem(key, format!("is \"{name}\", no name of a header"), "letters, digits and - make a name"));
    }
    let request_names = names[..4].iter().filter(|(_, name)| is_reserved_header(name));
    for (key, name) in request_names {
        let cause = format!("is \"{name}\", which the client itself sets or a connection needs");
        problems.push(problem(*key, cause, "choose a name of the router's own, such as x-smg-target-worker"));
    }
    problems.extend(one_header_for_two(&names[..4]));
    let routed = scenario.replay.mechanism != Mechanism::Dp;
    let wanted = match scenario.policy.name {
        PolicyName::Default => None,
        PolicyName::Sticky => Some(("live.header.key_name", &header.key_name, "x-smg-routing-key")),
        PolicyName::KvAware | PolicyName::CacheAware | PolicyName::Car => {
            Some(("live.header.target_name", &header.target_name, "x-smg-target-worker"))
        }
    };
    if let Some((key, _, usual)) = wanted.filter(|(_, name, _)| routed && name.is_empty()) {
        let cause = format!("is empty, but policy {} tells the router by it", scenario.policy.name.as_str());
        problems.push(problem(key, cause, format!("write the router's header, such as {usual}")));
    }
    if routed && scenario.policy.name == PolicyName::Car && header.prefill_name.is_empty() {
        let cause = "is empty, but policy car tells the router the P by it";
        problems.push(problem("live.header.prefill_name", cause, "write x-pdreplay-target-prefill"));
    }
    let pointer = &scenario.live.served_by.pointer;
    if !pointer.is_empty() && !pointer.starts_with('/') {
        let cause = format!("is \"{pointer}\", no JSON pointer");
        problems.push(problem("live.served_by.pointer", cause, "begin it with /, as in /meta_info/served_by"));
    }
}

/// Whether a text can name an HTTP header.
pub fn is_header_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(is_part)
}

/// Whether a header is the HTTP client's own: another value in it would break or redirect requests.
pub fn is_reserved_header(name: &str) -> bool {
    const RESERVED: [&str; 14] = [
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

fn secrets(live: &LiveConfig, problems: &mut Vec<Problem>) {
    if !live.api_key_env.is_empty() && !live.api_key_file.is_empty() {
        let cause = "is given beside live.api_key_env";
        problems.push(problem("live.api_key_file", cause, "name one place of the API key"));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !live.api_key_env.chars().all(is_name) {
        // What stands there may be the key itself.
        let cause = "is no name of an environment variable";
        problems.push(problem("live.api_key_env", cause, "write the variable's name, never the key"));
    }
}

fn tokens(live: &LiveConfig, problems: &mut Vec<Problem>) {
    let last = u64::from(live.token_id_min) + u64::from(live.token_id_count);
    if last > 1 << 31 {
        let cause = format!("is {}, so that token ids reach {last}", live.token_id_count);
        problems.push(problem("live.token_id_count", cause, "stay below 2^31, and inside the model's vocabulary"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Overlay, load, load_text};

    const SGLANG: &str = "live = { target = 'sglang', router = 'http://r:1', prefill = ['http://p:1 8998'], decode = \
                          ['http://d:1', 'http://d:2'] }\n";

    fn refusal(text: &str) -> String {
        load_text("x.toml", text).expect_err("should be refused").to_string()
    }

    #[test]
    fn the_lists_are_the_cluster() {
        let scenario = load_text("x.toml", SGLANG).unwrap();
        assert_eq!((scenario.cluster.prefill, scenario.cluster.decode, scenario.cluster.colocated), (1, 2, 0));
        let again = load_text("y.toml", &scenario.to_toml().unwrap()).unwrap();
        assert_eq!(again, scenario, "a resolved scenario loads to itself");
        let flags = |given: &[(&str, &str)]| {
            let given = given.iter().map(|(flag, key)| Overlay::shorthand(flag, key, "['http://w:1', 'http://w:2']"));
            [given.collect(), vec![Overlay::set("live.target=sglang").unwrap()]].concat()
        };
        let listed = load(Some("dp8"), &flags(&[("--worker", "live.colocated")])).unwrap();
        assert_eq!(listed.cluster.colocated, 2, "a list wins over the count of a scenario file");
        let mut both = flags(&[("--worker", "live.colocated")]);
        both.push(Overlay::set("cluster.colocated=3").unwrap());
        let text = load(Some("dp8"), &both).unwrap_err().to_string();
        assert_eq!(
            text,
            "--set cluster.colocated=3: `cluster.colocated` is 3, but live.colocated lists 2; leave it out: the lists of \
             [live] are counted"
        );
        let text = refusal(&format!("{SGLANG}cluster.decode = 3\n"));
        assert!(text.starts_with("x.toml:2:9: `cluster.decode` is 3, but live.decode lists 2; leave it out"), "{text}");
    }

    #[test]
    fn what_lists_lack_is_said_of_the_lists_alone() {
        let text = refusal("live = { target = 'sglang', router = 'http://r:1' }");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].contains("`live.prefill` is empty") && lines[0].contains("(--prefill URL)"), "{text}");
        assert!(lines[1].contains("`live.decode` is empty") && lines[1].contains("(--decode URL)"), "{text}");
        let text = refusal("live = { target = 'openai', colocated = ['http://w:1'] }");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("`replay.mechanism` is `kvc`") && text.ends_with("(--mechanism dp)"), "{text}");
    }

    #[test]
    fn what_a_target_cannot_do_is_refused_with_the_way_out() {
        let live = |more: &str| SGLANG.replace("'sglang'", &format!("'sglang', header = {{ {more} }}"));
        let cases: &[(String, &str)] = &[
            (SGLANG.replace("'http://r:1'", "''"), "`live.router` is empty, but legs = \"router\""),
            (SGLANG.replace("'sglang'", "'sglang', legs = 'direct'"), "`live.router` is given, but legs = \"direct\""),
            (SGLANG.replace("['http://p:1 8998']", "[]"), "`live.prefill` is empty, but mechanism `kvc`"),
            (SGLANG.replace("http://d:2", "http://d:1/"), "`live.decode` names http://d:1 a second time"),
            (
                SGLANG.replace("http://d:2", "d:2"),
                "`live.decode` has \"d:2\", not a base URL: it has no scheme such as http://; write http://d:2",
            ),
            (
                SGLANG.replace("http://d:2", "http://d:2/v1"),
                "it ends in /v1, which is added by itself; write http://d:2",
            ),
            (SGLANG.replace("http://d:2", "http://d:2 8998"), "only prefill workers have a bootstrap port"),
            (SGLANG.replace("'sglang'", "'sglang', router_kind = 'smg'"), "copies session_params to the prefill leg"),
            (SGLANG.replace("'sglang'", "'embedded'"), "`live.router` is given, but target \"embedded\""),
            (SGLANG.replace("'sglang'", "'openai'"), "`replay.mechanism` is `kvc`, but target \"openai\""),
            (SGLANG.replace("'sglang'", "'sglang', proxy = 'http://me:pw@x'"), "it holds a user or password"),
            (SGLANG.replace("'sglang'", "'sglang', emulation_speed = 0"), "`live.emulation_speed` is 0"),
            (SGLANG.replace("'sglang'", "'sglang', token_id_min = 4000000000"), "token ids reach"),
            (SGLANG.replace("'sglang'", "'sglang', api_key_env = 'sk-1'"), "never the key"),
            (SGLANG.replace("'sglang'", "'sglang', api_key_env = 'A', api_key_file = 'b'"), "name one place"),
            (format!("{SGLANG}fault = [{{ kind = 'kill', worker = 'D0', at_s = 1 }}]"), "leave the faults out"),
            (live("target_name = ''"), "policy kv-aware tells the router by it"),
            (live("key_name = 'a b'"), "no name of a header"),
            (
                live("target_name = 'Content-Length'"),
                "`live.header.target_name` is \"Content-Length\", which the client",
            ),
            (live("key_name = 'host'"), "`live.header.key_name` is \"host\", which the client"),
            (live("echo_name = 'transfer-encoding'"), "which the client itself sets"),
            (
                live("key_name = 'X-SMG-Target-Worker'"),
                "`live.header.key_name` is \"X-SMG-Target-Worker\", as live.header.target_name is",
            ),
            (live("prefill_name = 'x-smg-target-worker'"), "as live.header.target_name is"),
            (live("echo_name = 'x-smg-routing-key'"), "as live.header.key_name is"),
        ];
        for (text, wanted) in cases {
            let found = refusal(text);
            assert!(found.contains(wanted), "{text}\n{found}");
            assert!(!found.contains("sk-1") && !found.contains("pw"), "{found}");
        }
        let kvc_by_hand =
            SGLANG.replace("'sglang'", "'sglang', legs = 'direct'").replace("router = 'http://r:1', ", "");
        load_text("x.toml", &kvc_by_hand).unwrap();
    }
}
