// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"regexp"
	"strconv"
	"strings"
)

// Path leads to a field of one document. Its text form is what Talos' users write, machine.certSANs[0]; a key that is no
// plain word is quoted in brackets: machine.sysctls["net.core.somaxconn"].
type Path []Step

// Step is a key of an object, or, if Key is empty and Index is not negative, an element of a list.
type Step struct {
	Key   string
	Index int
}

func key(name string) Step    { return Step{Key: name, Index: -1} }
func element(index int) Step  { return Step{Index: index} }
func (s Step) isIndex() bool  { return s.Index >= 0 }
func (p Path) at(s Step) Path { return append(p[:len(p):len(p)], s) }

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func (p Path) String() string {
	var text strings.Builder
	for i, step := range p {
		switch {
		case step.isIndex():
			text.WriteString("[" + strconv.Itoa(step.Index) + "]")
		case plainKey.MatchString(step.Key):
			if i > 0 {
				text.WriteByte('.')
			}
			text.WriteString(step.Key)
		default:
			text.WriteString("[" + strconv.Quote(step.Key) + "]")
		}
	}
	return text.String()
}

// under tells whether the path is, or lies below, another one of keys.
func (p Path) under(keys []string) bool {
	if len(p) < len(keys) {
		return false
	}
	for i, key := range keys {
		if p[i].isIndex() || p[i].Key != key {
			return false
		}
	}
	return true
}
