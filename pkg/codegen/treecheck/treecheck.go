// SPDX-License-Identifier: Apache-2.0

// Package treecheck holds the checks of `make verify` that read the files of the checkout and need no compiler:
// licence headers, sizes, package names, links between documents and calls that don't belong here. It owns the
// rules and their words; which files there are is told by the caller, and nothing is ever written.
package treecheck

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxLines is the size that no hand-written source file passes.
const maxLines = 600

// Fault is one thing that a check found.
type Fault struct {
	File string
	Line int // from 1; 0 for the file as a whole
	What string
}

func (f Fault) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.File, f.What)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.What)
}

// Check runs every check over the given files of tree and returns the faults in the files' order. A file that
// is listed but gone (deleted, not committed yet) is left out.
func Check(tree fs.FS, files []string) ([]Fault, error) {
	var faults []Fault
	for _, name := range files {
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			if info, statErr := fs.Stat(tree, name); statErr != nil || info.IsDir() {
				continue
			}
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		faults = append(faults, licence(name, content)...)
		faults = append(faults, packageName(name)...)
		if path.Ext(name) == ".go" && !generated(name, content) {
			faults = append(faults, size(name, content)...)
			faults = append(faults, calls(name, content)...)
		}
		if path.Ext(name) == ".md" {
			faults = append(faults, links(tree, name, content)...)
		}
	}
	return faults, nil
}

// generated reports whether a generator wrote the file (the marker of `go generate`, see `go help generate`).
func generated(name string, content []byte) bool {
	return strings.HasPrefix(path.Base(name), "zz_generated.") || generatedMarker.Match(content)
}

var generatedMarker = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// licence wants the SPDX line within the first lines of every source file and script.
func licence(name string, content []byte) []Fault {
	script := bytes.HasPrefix(content, []byte("#!"))
	if !script && !slices.Contains([]string{".go", ".sh", ".nix"}, path.Ext(name)) && path.Base(name) != "Makefile" {
		return nil
	}
	head := bytes.SplitN(content, []byte("\n"), 6)
	for _, line := range head[:min(len(head), 5)] {
		if bytes.Contains(line, []byte("SPDX-License-Identifier: Apache-2.0")) {
			return nil
		}
	}
	return []Fault{{File: name, What: "no licence header: its first lines need SPDX-License-Identifier: Apache-2.0"}}
}

// packageName refuses directories whose name says nothing about what is in them.
func packageName(name string) []Fault {
	if path.Ext(name) != ".go" {
		return nil
	}
	switch base := path.Base(path.Dir(name)); base {
	case "util", "utils", "common", "helper", "helpers", "misc", "shared":
		return []Fault{{File: name, What: fmt.Sprintf("a package named %s says nothing about what is in it", base)}}
	}
	return nil
}

func size(name string, content []byte) []Fault {
	if lines := bytes.Count(content, []byte("\n")); lines > maxLines {
		return []Fault{{File: name, What: fmt.Sprintf("%d lines, the limit is %d: split it by subject", lines, maxLines)}}
	}
	return nil
}

// unwanted are lines that stand for something that isn't finished or that makes a test guess.
var unwanted = []struct {
	pattern *regexp.Regexp
	what    string
}{
	{regexp.MustCompile(`\btime\.Sleep\(`), "waits for a time: wait for a condition, with a bound"},
	{regexp.MustCompile(`\b[tb]\.Skip(f|Now)?\(`), "skips a test: make it run, or take it out"},
	{regexp.MustCompile(`//.*\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`), "leaves work behind: do it, or file an issue"},
}

var (
	skipsVerification = regexp.MustCompile(`\bInsecureSkipVerify:\s*true\b`)
	comment           = regexp.MustCompile(`//\s*\S`)
)

func calls(name string, content []byte) []Fault {
	var faults []Fault
	lines := bytes.Split(content, []byte("\n"))
	for i, line := range lines {
		for _, rule := range unwanted {
			if rule.pattern.Match(line) {
				faults = append(faults, Fault{File: name, Line: i + 1, What: rule.what})
			}
		}
		if skipsVerification.Match(line) && !comment.Match(line) && (i == 0 || !comment.Match(lines[i-1])) {
			faults = append(faults, Fault{File: name, Line: i + 1, What: "skips TLS verification without a comment that says what verifies instead"})
		}
	}
	return faults
}
