// SPDX-License-Identifier: Apache-2.0
use super::*;

fn names() -> Arc<Names> {
    Arc::new(Names::new(BTreeMap::new()))
}

fn number(names: &Arc<Names>, string: &str, width: usize) -> Result<u128, Code> {
    names
        .number(string.as_bytes(), width)
        .map_err(|error| error.code)
}

#[test]
fn a_decimal_number_stands_for_itself() {
    let names = names();
    assert_eq!(number(&names, "0", 9), Ok(0));
    assert_eq!(number(&names, "511", 9), Ok(511));
    assert_eq!(number(&names, "512", 9), Err(Code::OutOfRange));
    assert_eq!(names.string(17), b"17");
}

#[test]
fn another_string_keeps_its_number_and_no_two_have_the_same() {
    let names = names();
    let strings = ["eth0", "", "01", "-1", " 1", "one"];
    let numbers = strings.map(|string| number(&names, string, 9).unwrap());
    for (string, number) in strings.iter().zip(numbers) {
        assert_eq!(names.string(number), string.as_bytes());
        assert_eq!(names.number(string.as_bytes(), 9), Ok(number));
        assert!(number != 0 && number != 511, "{string:?} is {number}");
    }
}

#[test]
fn a_number_that_stands_for_a_string_is_refused_as_a_decimal() {
    let names = names();
    let taken = number(&names, "red", 9).unwrap().to_string();
    assert_eq!(number(&names, &taken, 9), Err(Code::InvalidArgument));
}

#[test]
fn a_decimal_that_was_written_is_not_given_to_a_string() {
    let names = names();
    for taken in 1..7 {
        assert_eq!(number(&names, &taken.to_string(), 3), Ok(taken));
    }
    assert_eq!(number(&names, "red", 3), Err(Code::ResourceExhausted));
}

#[test]
fn what_nothing_holds_is_forgotten_where_numbers_are_scarce() {
    let names = names();
    let mut all = InUse::default();
    all.add(Some(&names), 4);
    let kept = number(&names, "kept", 4).unwrap();
    for other in 0..13 {
        number(&names, &format!("other {other}"), 4).unwrap();
    }
    assert_eq!(number(&names, "new", 4), Err(Code::ResourceExhausted));
    all.sweep(|| assert_eq!(names.string(kept), b"kept"));
    assert_eq!(number(&names, "kept", 4), Ok(kept));
    assert!(number(&names, "new", 4).is_ok());
    assert!(!names.knows(b"other 3"));
    all.sweep(|| panic!("no sweep is needed"));
}

#[test]
fn a_string_is_bounded() {
    let names = names();
    assert!(number(&names, &"x".repeat(256), 9).is_ok());
    assert_eq!(
        number(&names, &"x".repeat(257), 9),
        Err(Code::InvalidArgument)
    );
}

#[test]
fn mappings_are_read_as_p4c_writes_them() {
    let annotation = r#"@p4runtime_translation_mappings({ { "" , 0 } , { "a \"b\"}" , 9w7 } , { "c" , 0x1fe } })"#;
    let fixed = mappings(&[annotation.into()]).unwrap();
    let expected = [("", 0), ("a \"b\"}", 7), ("c", 510)];
    assert_eq!(
        fixed,
        expected
            .map(|(string, number)| (string.into(), number))
            .into()
    );
    let names = Arc::new(Names::new(fixed));
    assert_eq!(number(&names, "", 9), Ok(0));
    assert_eq!(names.string(510), b"c");
    assert_eq!(number(&names, "510", 9), Err(Code::InvalidArgument));
    assert_eq!(number(&names, "c", 8), Err(Code::OutOfRange));
}

#[test]
fn mappings_that_are_not_one_to_one_or_not_readable_are_refused() {
    for body in [
        r#"{ {"a", 1}, {"b", 1} }"#,
        r#"{ {"a", 1}, {"a", 2} }"#,
        r#"{ {"a", x} }"#,
        r#"{ {"a"#,
        r#"{ {"a", 1"#,
    ] {
        assert!(mappings(&[format!("{MAPPINGS}{body})")]).is_err(), "{body}");
    }
    assert_eq!(mappings(&["@brief(\"x\")".into()]), Ok(BTreeMap::new()));
}
