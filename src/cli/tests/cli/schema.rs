//! The lines of `perf --json` and the schema of them, which `perf --schema` prints.

use super::{objects, printed};
use serde_json::Value;

/// What is wrong with `value` by `rule`, at `path`; the parts of JSON Schema that this schema uses.
/// Unlike other readers, a key that the schema does not name is an objection, too.
fn objections(schema: &Value, rule: &Value, value: &Value, path: &str) -> Vec<String> {
    if let Some(name) = rule["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").expect("a definition of this schema");
        return objections(schema, &schema["$defs"][name], value, path);
    }
    if let Some(choices) = rule["oneOf"].as_array() {
        let found = choices.iter().map(|rule| objections(schema, rule, value, path));
        let found: Vec<_> = found.collect();
        let fitting = found.iter().filter(|objections| objections.is_empty()).count();
        let least = found.into_iter().min_by_key(Vec::len).unwrap_or_default();
        return if fitting == 1 { Vec::new() } else { least };
    }
    let mut wrong = Vec::new();
    let types: Vec<&str> = match &rule["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
        wrong.push(format!("{path}: {value} is none of {types:?}"));
    }
    if let Some(allowed) = rule["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        wrong.push(format!("{path}: {value} is none of {allowed:?}"));
    }
    if rule.get("const").is_some_and(|only| only != value) {
        wrong.push(format!("{path}: {value} is not {}", rule["const"]));
    }
    if rule["minimum"].as_f64().zip(value.as_f64()).is_some_and(|(least, it)| it < least) {
        wrong.push(format!("{path}: {value} is less than {}", rule["minimum"]));
    }
    if let Some(all) = value.as_array() {
        let item = |item| objections(schema, &rule["items"], item, &format!("{path}[]"));
        wrong.extend(all.iter().flat_map(item));
    }
    if let Some(all) = value.as_object() {
        for name in rule["required"].as_array().into_iter().flatten() {
            if !all.contains_key(name.as_str().unwrap()) {
                wrong.push(format!("{path} has no {name}"));
            }
        }
        for (name, value) in all {
            match rule["properties"].get(name) {
                Some(rule) => {
                    wrong.extend(objections(schema, rule, value, &format!("{path}.{name}")));
                }
                None => wrong.push(format!("{path}.{name} is not in the schema")),
            }
        }
    }
    wrong
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => panic!("the schema has a type {name}"),
    }
}

#[test]
fn every_line_is_as_the_schema_says() {
    let schema: Value = serde_json::from_str(&printed("perf --schema")).unwrap();
    let mut kinds = [0; 3];
    for line in [
        "perf all-reduce reduce barrier -n 2 --sizes 8 --budget 2 --samples --json -",
        "perf all-gather --counts linear --off-cache=1M --threads -n 2 --sizes 8 --budget 2 --json -",
        "perf p2p sendrecv -n 2 --sizes 8 --budget 2 --json -",
        "perf bandwidth --pairs all -n 3 --threads --transport shm --sizes 8 --budget 2 --json -",
    ] {
        for object in objects(&printed(line)) {
            let wrong = objections(&schema, &schema, &object, "line");
            assert!(wrong.is_empty(), "{line}: {wrong:#?}");
            let kind = ["collective", "window", "matrix_us"].map(|key| object.get(key).is_some());
            let kind = kind.iter().position(|is| *is).expect("one of three kinds");
            kinds[kind] += 1;
        }
    }
    assert!(kinds.iter().all(|lines| *lines > 0), "{kinds:?}");
    // Another key, type or value is an objection, and so is a key that is missing.
    let object =
        objects(&printed("perf latency --threads -n 2 --sizes 8 --budget 2 --json -")).remove(0);
    for (key, value) in [
        ("unknown", Value::Null),
        ("bytes", "8".into()),
        ("bytes", (-8).into()),
        ("test", "lag".into()),
        ("schema", 2.into()),
    ] {
        let mut changed = object.clone();
        changed[key] = value;
        assert!(!objections(&schema, &schema, &changed, "line").is_empty(), "{key}");
    }
    let mut shorter = object;
    shorter.as_object_mut().unwrap().remove("noise");
    assert!(!objections(&schema, &schema, &shorter, "line").is_empty());
}
