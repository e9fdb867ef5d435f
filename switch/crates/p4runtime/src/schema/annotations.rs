// SPDX-License-Identifier: Apache-2.0
//! Reads the annotations of objects that name roles.

/// Returns the roles to which annotations assign an object.
pub(super) fn roles(annotations: &[String]) -> Vec<String> {
    let name = |annotation: &String| {
        let argument = annotation
            .strip_prefix("@p4runtime_role(")?
            .strip_suffix(')')?;
        Some(argument.trim().trim_matches('"').to_string())
    };
    annotations.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_name_roles() {
        let annotations = ["@p4runtime_role(\"sdn\")".into(), "@brief(\"x\")".into()];
        assert_eq!(roles(&annotations), ["sdn"]);
    }
}
