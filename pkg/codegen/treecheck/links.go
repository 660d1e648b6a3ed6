// SPDX-License-Identifier: Apache-2.0

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

// target matches the target of an inline link or image; reference definitions aren't used in this project.
var target = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// elsewhere matches a target with a scheme: what is outside the checkout isn't looked up.
var elsewhere = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)

// links returns the relative links of a Markdown file whose file or heading isn't there.
func links(tree fs.FS, name string, content []byte) []Fault {
	var faults []Fault
	prose(content, func(number int, line string) {
		for _, match := range target.FindAllStringSubmatch(line, -1) {
			if elsewhere.MatchString(match[1]) {
				continue
			}
			if what := broken(tree, name, content, match[1]); what != "" {
				faults = append(faults, Fault{File: name, Line: number, What: what})
			}
		}
	})
	return faults
}

// broken says what is wrong with a relative link of the document name, or "".
func broken(tree fs.FS, name string, content []byte, link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	if file != "" {
		file = path.Join(path.Dir(name), file)
		if _, err := fs.Stat(tree, file); err != nil {
			return fmt.Sprintf("dead link to %s: no such file in the checkout", link)
		}
		if path.Ext(file) != ".md" {
			return ""
		}
		var err error
		if content, err = fs.ReadFile(tree, file); err != nil {
			return fmt.Sprintf("dead link to %s: %v", link, err)
		}
	}
	if anchor != "" && !slices.Contains(anchors(content), anchor) {
		return fmt.Sprintf("dead link to %s: no such heading", link)
	}
	return ""
}

// anchors returns the names that a renderer gives to the headings of a document.
func anchors(content []byte) []string {
	var names []string
	prose(content, func(_ int, line string) {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			names = append(names, anchor(heading))
		}
	})
	return names
}

// anchor is a heading in lower case without punctuation, its spaces turned into hyphens.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			return r
		}
		return -1
	}, strings.ToLower(strings.TrimSpace(heading)))
}

// prose calls visit with each line that isn't inside a fenced block of code, numbered from 1.
func prose(content []byte, visit func(number int, line string)) {
	fenced := false
	for i, line := range bytes.Split(content, []byte("\n")) {
		if bytes.HasPrefix(bytes.TrimSpace(line), []byte("```")) {
			fenced = !fenced
			continue
		}
		if !fenced {
			visit(i+1, string(line))
		}
	}
}
