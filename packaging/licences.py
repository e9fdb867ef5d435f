#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the licences of third-party code in a package: licences MANIFEST CRATES [SITE_PACKAGES]

First it lists the Python packages in SITE_PACKAGES. Their licence texts stay in their own
directories.

Then it lists the third-party Rust crates that are compiled into CRATES (comma-separated names in
the workspace of MANIFEST) on this platform, with the licence and the licence texts of each. A text
that several crates share is printed once. If a crate has no licence text, the program uses the text
of another crate of the same repository. If there is none, it names the licence's file in
/usr/share/common-licenses. Without such a file, the program fails.
"""

import json
import re
import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

TEXT = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|UNLICENSE|NOTICE)", re.IGNORECASE)
COMMON = {"Apache-2.0": "/usr/share/common-licenses/Apache-2.0"}


def crates(manifest: str, crate: str) -> list[dict[str, Any]]:
    """Returns the third-party crates that are compiled into `crate`, which may be several
    comma-separated names. Leaves out crates that only builds or tests depend on."""
    host = re.search(r"host: (\S+)", output("rustc", "-vV"))
    assert host
    words = ["metadata", "--locked", "--format-version=1", f"--filter-platform={host[1]}"]
    found = json.loads(output("cargo", *words, f"--manifest-path={manifest}"))
    packages = {package["id"]: package for package in found["packages"]}
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    waiting = [name for name, package in packages.items() if package["name"] in crate.split(",")]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            for dependency in nodes[name]["deps"]:
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    waiting.append(dependency["pkg"])
    others = [packages[name] for name in seen if packages[name]["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def output(*argv: str) -> str:
    """Runs a command and returns its standard output. Raises CalledProcessError if it fails."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


def texts_in(directory: Path) -> list[str]:
    """Returns the licence texts in a directory, in the order of the file names."""
    files = sorted(path for path in directory.iterdir() if TEXT.match(path.name))
    return [path.read_text(errors="replace").strip() for path in files if path.is_file()]


def describe_crates(manifest: str, crate: str) -> list[str]:
    """Returns one line for each crate, then the numbered licence texts."""
    found = crates(manifest, crate)
    own = {package["id"]: texts_in(Path(package["manifest_path"]).parent) for package in found}
    shared = {
        package["repository"]: own[package["id"]]
        for package in found
        if package["repository"] and own[package["id"]]
    }
    numbers: dict[str, int] = {}
    texts: list[str] = []
    lines = [f"Rust crates compiled into this package ({len(found)}, from https://crates.io):", ""]
    for package in found:
        licence = package["license"] or f"see {package['license_file']}"
        references = []
        for text in own[package["id"]] or shared.get(package["repository"], []):
            key = " ".join(text.split())
            if key not in numbers:
                texts.append(text)
                numbers[key] = len(texts)
            references.append(f"[{numbers[key]}]")
        if not references:
            references = [path for name, path in COMMON.items() if name in licence]
        if not references:
            sys.exit(
                f"licences: {package['name']} {package['version']} ({licence}): no licence text"
            )
        lines.append(
            f"  {package['name']} {package['version']}: {licence}; {', '.join(references)}"
        )
    for number, text in enumerate(texts, start=1):
        lines += ["", f"---- [{number}] ----", "", text]
    return lines


def describe_python(site_packages: Path) -> list[str]:
    """Returns one line for each Python package, with its licence."""
    lines = [
        "Python packages in this package; their *.dist-info folders have the licence texts:",
        "",
    ]
    for path in sorted(site_packages.glob("*.dist-info/METADATA")):
        fields = HeaderParser().parsestr(path.read_text(encoding="utf-8"))
        if fields["Name"] == "sluice":
            continue
        classified = [
            value.rpartition(" :: ")[2]
            for value in fields.get_all("Classifier", [])
            if value.startswith("License :: ")
        ]
        short = (fields["License"] or "").splitlines()[:1]
        licence = fields["License-Expression"] or ", ".join(classified) or "".join(short)
        if not licence:
            sys.exit(f"licences: {path} of {fields['Name']} names no licence")
        lines.append(f"  {fields['Name']} {fields['Version']}: {licence}")
    return lines


def main() -> None:
    """Prints the list of the Python packages, then the list of the crates."""
    manifest, crate, *site_packages = sys.argv[1:]
    lines = [line for path in site_packages for line in (*describe_python(Path(path)), "")]
    print("\n".join(lines + describe_crates(manifest, crate)))


if __name__ == "__main__":
    main()
