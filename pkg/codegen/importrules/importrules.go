// SPDX-License-Identifier: Apache-2.0

// Package importrules holds the rules of dependence between Ichor's packages (docs/architecture.md): imports
// point down only. It owns the table of what each part may import and the comparison with what packages do
// import; it never reads files itself but for the one call of `go list` in Load.
package importrules

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of the module whose packages the rules are about.
const Module = "maesh.dev/ichor"

// Package is what a rule looks at: one package of the module and what it imports, tests included, because a
// test that reaches up ties the packages together just as well.
type Package struct {
	Path    string
	Imports []string
}

// Layer says what the packages of one part of the tree may import of ours. Paths are relative to the module,
// and each stands for itself and everything below it.
type Layer struct {
	Path string
	// May lists what may be imported besides the part itself.
	May []string
	// Closed: packages below Path don't import each other; the package at Path imports them.
	Closed bool
	// Why is printed with a violation.
	Why string
}

// Confined says that an import path outside our module, and what is below it, belongs to a few of our parts only.
// The most specific path decides.
type Confined struct {
	Import string
	To     []string
	Why    string
}

// Violation is one import that a rule forbids.
type Violation struct {
	Package, Import, Why string
}

func (v Violation) String() string {
	if v.Import == "" {
		return fmt.Sprintf("%s: %s", v.Package, v.Why)
	}
	return fmt.Sprintf("%s imports %s: %s", v.Package, v.Import, v.Why)
}

// Check compares packages with the rules and returns every violation, in the packages' order.
func Check(layers []Layer, confined []Confined, packages []Package) []Violation {
	var found []Violation
	for _, pkg := range packages {
		relative, ours := within(pkg.Path)
		if !ours {
			continue
		}
		layer, ok := mostSpecific(layers, func(layer Layer) string { return layer.Path }, relative)
		if !ok {
			found = append(found, Violation{Package: pkg.Path, Why: "no rule says what it may import; add one to the table in pkg/codegen/importrules"})
			continue
		}
		imports := slices.Clone(pkg.Imports)
		slices.Sort(imports)
		for _, imported := range slices.Compact(imports) {
			if why := forbidden(layer, confined, relative, imported); why != "" {
				found = append(found, Violation{Package: pkg.Path, Import: imported, Why: why})
			}
		}
	}
	return found
}

// forbidden returns why the package at relative, of layer, may not import imported, or "".
func forbidden(layer Layer, confined []Confined, relative, imported string) string {
	target, ours := within(imported)
	if !ours {
		rule, ok := mostSpecific(confined, func(rule Confined) string { return rule.Import }, imported)
		if ok && !anyCovers(rule.To, relative) {
			return rule.Why
		}
		return ""
	}
	if target == relative { // an external test package imports what it tests
		return ""
	}
	if anyCovers(layer.May, target) || covers(layer.Path, target) && (!layer.Closed || relative == layer.Path) {
		return ""
	}
	return layer.Why
}

// mostSpecific returns the rule with the longest path that covers path.
func mostSpecific[R any](rules []R, of func(R) string, path string) (R, bool) {
	var best R
	found := false
	for _, rule := range rules {
		if covers(of(rule), path) && (!found || len(of(rule)) > len(of(best))) {
			best, found = rule, true
		}
	}
	return best, found
}

// within strips the module's path; false when the import path is not of the module.
func within(path string) (string, bool) {
	relative, ok := strings.CutPrefix(path, Module+"/")
	return relative, ok
}

// covers reports whether path is prefix or below it.
func covers(prefix, path string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func anyCovers(prefixes []string, path string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return covers(prefix, path) })
}
